"""Import path of aiokafka, kept as a shim: message sets of magic 0 and 1, built and read.

Tests that were copied from aiokafka build answers of old brokers with it. The producer and the
consumer work with `legacy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any, NamedTuple

from aiokafka._seams import wall_time
from aiokafka.errors import CorruptRecordError
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, GZIP, LZ4, SNAPPY
from aiokafka.record.header import RecordBatch
from aiokafka.record.legacy import LegacyRecord, build_message, read_entry, wrap_messages

__all__ = [
    "LegacyRecord",
    "LegacyRecordBatch",
    "LegacyRecordBatchBuilder",
    "LegacyRecordMetadata",
]

Buffer = bytes | bytearray | memoryview

_LOG_OVERHEAD = 12  # offset and length
_OVERHEAD = {0: 14, 1: 22}  # checksum, magic, attributes, timestamp of magic 1, two lengths
_CRC = slice(12, 16)


class LegacyRecordMetadata(NamedTuple):
    """What `append` did: offset, checksum, bytes, and time in milliseconds, -1 in magic 0."""

    offset: int
    crc: int
    size: int
    timestamp: int


class _Codecs:
    CODEC_MASK = 0x07
    CODEC_GZIP = GZIP
    CODEC_SNAPPY = SNAPPY
    CODEC_LZ4 = LZ4


class LegacyRecordBatch(_Codecs):
    """Reads one message, or those that are compressed in it."""

    is_control_batch = False
    is_transactional = False
    producer_id = None

    def __init__(self, buffer: Buffer, magic: int) -> None:
        self._batch = batch = RecordBatch(buffer)
        if batch.magic != magic:
            raise ValueError(f"magic={magic}: the message has magic {batch.magic}")
        self.next_offset = batch.base_offset + 1

    def validate_crc(self) -> bool:
        """Say whether the checksum is that of the bytes."""
        try:
            self._batch.check_crc()
        except CorruptRecordError:
            return False
        return True

    def __iter__(self) -> Iterator[LegacyRecord]:
        """Yield the messages. Raises CorruptRecordError for damaged ones."""
        yield from read_entry(self._batch, False, DEFAULT_MAX_DECOMPRESSED_BYTES)


class LegacyRecordBatchBuilder(_Codecs):
    """Builds a message set of at most `batch_size` bytes, before it is compressed."""

    def __init__(self, magic: int, compression_type: int, batch_size: int) -> None:
        self._magic = magic
        self._codec = compression_type
        self._batch_size = batch_size
        self._plain = bytearray()
        self._last_offset = 0
        self._newest = -1

    def append(
        self,
        offset: int,
        timestamp: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Any = None,
    ) -> LegacyRecordMetadata | None:
        """Add a message; None if it does not fit, which the first one always does. Without a
        timestamp it gets the time of now."""
        if self._magic == 0:
            moment = -1
        else:
            moment = int(wall_time() * 1000) if timestamp is None else timestamp
        offset, moment = index(offset), index(moment)  # TypeError for what is no whole number
        packed = build_message(
            self._magic, offset, moment, 0, _content("key", key), _content("value", value)
        )
        if self._plain and self.size() + len(packed) > self._batch_size:
            return None
        self._plain += packed
        self._last_offset = offset
        self._newest = max(self._newest, moment)
        crc = int.from_bytes(packed[_CRC], "big")
        return LegacyRecordMetadata(offset, crc, len(packed), moment)

    def size(self) -> int:
        """Return the bytes of the message set so far, before it is compressed."""
        return len(self._plain)

    def size_in_bytes(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None
    ) -> int:
        """Return the bytes that this message would take."""
        overhead = _LOG_OVERHEAD + self.record_overhead(self._magic)
        return overhead + len(key or b"") + len(value or b"")

    @staticmethod
    def record_overhead(magic: int) -> int:
        """Return the bytes of a message besides key, value, offset and length."""
        return _OVERHEAD[magic]

    def build(self) -> bytearray:
        """Return the message set, in one message if it is to be compressed."""
        if not self._codec or not self._plain:
            return self._plain
        plain = bytes(self._plain)
        return bytearray(
            wrap_messages(self._magic, plain, self._last_offset, self._newest, self._codec)
        )


def _content(what: str, data: Buffer | None) -> bytes | None:
    if data is None:
        return None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} must be bytes-like or None, not {type(data).__name__}")
    return bytes(data)
