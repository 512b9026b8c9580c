"""The record classes of the `record` package of aiokafka 0.14.

Only programs, and the tests of aiokafka 0.14, use these classes. The producer and consumer of this
package use `record/batch.py`, `record/reader.py` and `record/legacy.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, NamedTuple

from aiokafka._clock import wall_time
from aiokafka.errors import CorruptRecordError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
)
from aiokafka.record.crc32c import crc32c
from aiokafka.record.crc32c import crc32c as calc_crc32c
from aiokafka.record.header import HEADER_SIZE, RecordBatch, flat_view, parse_batch
from aiokafka.record.legacy import LegacyRecord, build_message, read_entry, wrap_messages
from aiokafka.record.reader import RecordReader

__all__ = [
    "ABORT_MARKER",
    "COMMIT_MARKER",
    "ControlRecord",
    "DefaultRecord",
    "DefaultRecordBatch",
    "DefaultRecordBatchBuilder",
    "DefaultRecordMetadata",
    "LegacyRecord",
    "LegacyRecordBatch",
    "LegacyRecordBatchBuilder",
    "LegacyRecordMetadata",
    "MemoryRecords",
    "calc_crc32c",
    "decode_varint",
    "encode_varint",
    "size_of_varint",
]


_KEY = struct.Struct(">HH")


class ControlRecord(NamedTuple):
    """A transaction marker."""

    version: int
    type_: int

    @classmethod
    def parse(cls, data: bytes) -> ControlRecord:
        """Parse the key of a control record."""
        return cls(*_KEY.unpack_from(data))


ABORT_MARKER = ControlRecord(0, 0)
COMMIT_MARKER = ControlRecord(0, 1)


# -- Varints


_LONGEST = 10


def encode_varint(value: int, write: Callable[[int], object]) -> int:
    """Call `write` with each byte of `value` as a zigzag varint; return the number of bytes."""
    out = bytearray(_LONGEST)
    end = mem.put_varint(out, 0, value)
    for byte in out[:end]:
        write(byte)
    return end


def decode_varint(buffer: bytes | bytearray | memoryview, pos: int = 0) -> tuple[int, int]:
    """Return the zigzag varint at `pos`, and the position after it (-1 if invalid)."""
    return mem.varint(buffer, pos, len(buffer))


def size_of_varint(value: int) -> int:
    """Return the number of bytes of `value` as a zigzag varint."""
    return mem.varint_size(value)


# -- Batches of magic 2, built and read record by record


Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_ALL = 0x7FFFFFFF
_HEADER = struct.Struct(">qiibIhiqqqhii")  # the header of a batch, as in `record/batch.py`
_CRC = slice(17, 21)
_LOG_OVERHEAD = 12
_TRANSACTIONAL = 0x10
# The maximum sizes of: length, attributes, timestamp delta, offset delta, key size, value size and
# header count.
_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5


class DefaultRecordMetadata(NamedTuple):
    """The result of the builder's `append`: offset, size in bytes, timestamp in milliseconds."""

    offset: int
    size: int
    timestamp: int

    @property
    def crc(self) -> None:
        """Always None: in this format only the batch has a checksum."""


class DefaultRecord(NamedTuple):
    """One record of a batch of magic 2."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def checksum(self) -> None:
        """Always None: in this format only the batch has a checksum."""


class DefaultRecordBatch:
    """Reads one batch of magic 2. Iteration returns its records, including transaction markers."""

    CODEC_MASK = 0x07
    CODEC_NONE = NONE
    CODEC_GZIP = GZIP
    CODEC_SNAPPY = SNAPPY
    CODEC_LZ4 = LZ4
    CODEC_ZSTD = ZSTD

    def __init__(self, buffer: Buffer) -> None:
        self._batch = batch = RecordBatch(buffer)
        self.base_offset = batch.base_offset
        self.last_offset_delta = batch.last_offset - batch.base_offset
        self.next_offset = batch.last_offset + 1
        self.magic = batch.magic
        self.crc = batch.crc
        self.attributes = batch.attributes
        self.compression_type = batch.codec
        self.timestamp_type = batch.timestamp_type
        self.is_transactional = batch.is_transactional
        self.is_control_batch = batch.is_control
        self.first_timestamp = batch.first_timestamp
        self.max_timestamp = batch.max_timestamp
        self.producer_id = batch.producer_id
        self.producer_epoch = batch.producer_epoch
        self.base_sequence = batch.base_sequence
        self._left: Iterator[DefaultRecord] | None = None

    def validate_crc(self) -> bool:
        """Return whether the checksum matches the bytes."""
        try:
            self._batch.check_crc()
        except CorruptRecordError:
            return False
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records before the first damaged record. Raises CorruptRecordError if the batch
        or its first record is damaged."""
        reader = RecordReader(self._batch.view, "", -1, position=0, include_control=True)
        for one in reader.take(_ALL):
            headers = list(one.headers)
            kind = one.timestamp_type
            yield DefaultRecord(one.offset, one.timestamp, kind, one.key, one.value, headers)

    def __next__(self) -> DefaultRecord:
        """Return the next record."""
        if self._left is None:
            self._left = iter(self)
        return next(self._left)


class _DefaultRecordBatchBuilderPy:
    """Builds one batch of magic 2, of at most `batch_size` bytes before compression."""

    def __init__(
        self,
        magic: int,
        compression_type: int,
        is_transactional: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> None:
        if magic != 2:
            raise ValueError(f"magic={magic}: batches of this kind are of magic 2")
        self._codec = compression_type
        self._is_transactional = bool(is_transactional)
        self._batch_size = batch_size
        self._body = bytearray()
        self._count = 0
        self._last_offset = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = -1
        self.set_producer_state(producer_id, producer_epoch, base_sequence)

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer id and epoch, and the sequence number of the first record."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def append(
        self,
        offset: int,
        timestamp: int | None,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> DefaultRecordMetadata | None:
        """Add a record; return None if the record does not fit. The first record always fits.
        `timestamp` None is the current time."""
        moment = int(wall_time() * 1000) if timestamp is None else timestamp
        record = self._encode(offset, moment, key, value, headers)
        if self._count and self.size() + len(record) > self._batch_size:
            return None
        if self._first_timestamp is None:
            self._first_timestamp = moment
        self._max_timestamp = max(self._max_timestamp, moment)
        self._last_offset = offset
        self._count += 1
        self._body += record
        return DefaultRecordMetadata(offset, len(record), moment)

    def size(self) -> int:
        """Return the current size of the batch in bytes, before compression."""
        return HEADER_SIZE + len(self._body)

    def size_in_bytes(
        self,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> int:
        """Return the size in bytes that this record would have if it were added now."""
        return len(self._encode(offset, timestamp, key, value, headers))

    @staticmethod
    def estimate_size_in_bytes(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """Return the maximum size in bytes of a batch with only this record."""
        size = HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        return size + sum(10 + len(name.encode()) + len(each or b"") for name, each in headers)

    def build(self) -> bytearray:
        """Return the encoded batch. Its records are compressed if the builder has a codec, and if
        the compression makes them smaller."""
        body, codec = bytes(self._body), NONE
        if self._codec:
            packed = compress(self._codec, body)
            if len(packed) < len(body):
                body, codec = packed, self._codec
        first = -1 if self._first_timestamp is None else self._first_timestamp
        batch = bytearray(
            _HEADER.pack(
                0,
                HEADER_SIZE + len(body) - _LOG_OVERHEAD,
                -1,
                2,
                0,
                codec | (_TRANSACTIONAL if self._is_transactional else 0),
                self._last_offset,
                first,
                self._max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self._count,
            )
        )
        batch += body
        batch[_CRC] = crc32c(memoryview(batch)[_CRC.stop :]).to_bytes(4, "big")
        return batch

    def _encode(
        self,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> bytes:
        first = timestamp if self._first_timestamp is None else self._first_timestamp
        body = bytearray(1)  # the attributes of the record: always 0
        body += _varint(timestamp - first) + _varint(offset)
        body += _field("key", key) + _field("value", value) + _varint(len(headers))
        for name, each in headers:
            body += _field("header", name.encode()) + _field("header", each)
        return _varint(len(body)) + body


class DefaultRecordBatchBuilder(_DefaultRecordBatchBuilderPy):
    """Builds one batch of magic 2. It is a subclass of `_DefaultRecordBatchBuilderPy`, not an
    alias, because the tests of aiokafka 0.14 compare the two classes."""


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _field(what: str, data: Buffer | None) -> bytes:
    if data is None:
        return _varint(-1)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} must be bytes-like or None, not {type(data).__name__}")
    return _varint(len(data)) + bytes(data)


# -- Message sets of magic 0 and 1, built and read


# The overhead of a message in bytes, by magic: checksum, magic, attributes, timestamp (magic 1
# only), and the lengths of key and value. It does not include the offset and the message size,
# which precede the checksum.
_OVERHEAD = {0: 14, 1: 22}
_LEGACY_CRC = slice(12, 16)


class LegacyRecordMetadata(NamedTuple):
    """The result of the builder's `append`: offset, checksum, size in bytes, and timestamp in
    milliseconds (-1 in magic 0)."""

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
    """Reads one message of magic 0 or 1. Iteration returns the message, or the messages inside a
    compressed message."""

    is_control_batch = False
    is_transactional = False
    producer_id = None

    def __init__(self, buffer: Buffer, magic: int) -> None:
        self._batch = batch = RecordBatch(buffer)
        if batch.magic != magic:
            raise ValueError(f"magic={magic}: the message has magic {batch.magic}")
        self.next_offset = batch.base_offset + 1

    def validate_crc(self) -> bool:
        """Return whether the checksum matches the bytes."""
        try:
            self._batch.check_crc()
        except CorruptRecordError:
            return False
        return True

    def __iter__(self) -> Iterator[LegacyRecord]:
        """Yield the messages. Raises CorruptRecordError if a message is damaged."""
        yield from read_entry(self._batch, False, DEFAULT_MAX_DECOMPRESSED_BYTES)


class LegacyRecordBatchBuilder(_Codecs):
    """Builds a message set of magic 0 or 1, of at most `batch_size` bytes before compression."""

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
        """Add a message; return None if the message does not fit. The first message always fits.
        `timestamp` None is the current time."""
        if self._magic == 0:
            moment = -1
        else:
            moment = int(wall_time() * 1000) if timestamp is None else timestamp
        # `index` raises TypeError for a value that is not an integer.
        offset, moment = index(offset), index(moment)
        packed = build_message(
            self._magic, offset, moment, 0, _content("key", key), _content("value", value)
        )
        if self._plain and self.size() + len(packed) > self._batch_size:
            return None
        self._plain += packed
        self._last_offset = offset
        self._newest = max(self._newest, moment)
        crc = int.from_bytes(packed[_LEGACY_CRC], "big")
        return LegacyRecordMetadata(offset, crc, len(packed), moment)

    def size(self) -> int:
        """Return the current size of the message set in bytes, before compression."""
        return len(self._plain)

    def size_in_bytes(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None
    ) -> int:
        """Return the encoded size of this message in bytes."""
        overhead = _LOG_OVERHEAD + self.record_overhead(self._magic)
        return overhead + len(key or b"") + len(value or b"")

    @staticmethod
    def record_overhead(magic: int) -> int:
        """Return the number of bytes of a message without its offset, size field, key and value."""
        return _OVERHEAD[magic]

    def build(self) -> bytearray:
        """Return the encoded message set; with a codec, as one compressed wrapper message."""
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


# -- The batches of a record set, one by one


class MemoryRecords:
    """Iterates over the batches of a record set, such as of a Fetch response."""

    def __init__(self, bytes_data: bytes | bytearray | memoryview) -> None:
        self._view = flat_view(bytes_data)
        self._at = 0

    def size_in_bytes(self) -> int:
        """Return the size of the record set in bytes."""
        return len(self._view)

    def has_next(self) -> bool:
        """Return whether another complete batch follows.

        Raises CorruptRecordError if the header of that batch is invalid.
        """
        return parse_batch(self._view, self._at) is not None

    def next_batch(self) -> DefaultRecordBatch | LegacyRecordBatch | None:
        """Return the next batch, None at the end. The iteration of a batch includes transaction
        markers.

        Raises CorruptRecordError for an invalid header. Other damage raises it when the records of
        the batch are read.
        """
        batch = parse_batch(self._view, self._at)
        if batch is None:
            return None
        self._at += batch.size_in_bytes
        if batch.magic == 2:
            return DefaultRecordBatch(batch.view)
        return LegacyRecordBatch(batch.view, batch.magic)
