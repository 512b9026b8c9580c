"""Import path of aiokafka, kept as a shim: batches of magic 2, built and read record by record.

Programs that were copied from aiokafka use it, and its own tests begin with it. The producer and
the consumer do not: they work with `batch` and `reader`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka._seams import wall_time
from aiokafka.errors import CorruptRecordError
from aiokafka.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from aiokafka.record.crc32c import crc32c
from aiokafka.record.header import HEADER_SIZE, RecordBatch
from aiokafka.record.reader import RecordReader

__all__ = [
    "DefaultRecord",
    "DefaultRecordBatch",
    "DefaultRecordBatchBuilder",
    "DefaultRecordMetadata",
]

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_ALL = 0x7FFFFFFF
_HEADER = struct.Struct(">qiibIhiqqqhii")  # as in `batch`
_CRC = slice(17, 21)
_LOG_OVERHEAD = 12
_TRANSACTIONAL = 0x10
# Length, attributes, two deltas, and the sizes of key, value and header list, at their longest.
_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5


class DefaultRecordMetadata(NamedTuple):
    """What `append` did: the offset, the bytes it took, and the time in milliseconds."""

    offset: int
    size: int
    timestamp: int

    @property
    def crc(self) -> None:
        """Nothing: records of this format have no checksum of their own."""


class DefaultRecord(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def checksum(self) -> None:
        """Nothing: records of this format have no checksum of their own."""


class DefaultRecordBatch:
    """Reads one batch. Iterating over it gives its records, markers of transactions too."""

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
        """Say whether the checksum is that of the bytes."""
        try:
            self._batch.check_crc()
        except CorruptRecordError:
            return False
        return True

    def __iter__(self) -> Iterator[DefaultRecord]:
        """Yield the records. Raises CorruptRecordError for damaged ones."""
        reader = RecordReader(self._batch.view, "", -1, position=0, include_control=True)
        for one in reader.take(_ALL):
            headers = list(one.headers)
            kind = one.timestamp_type
            yield DefaultRecord(one.offset, one.timestamp, kind, one.key, one.value, headers)

    def __next__(self) -> DefaultRecord:
        """Return the record after the one that was returned last."""
        if self._left is None:
            self._left = iter(self)
        return next(self._left)


class _DefaultRecordBatchBuilderPy:
    """Builds one batch, of at most `batch_size` bytes before it is compressed."""

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
        """Say who sends the batch, and the sequence number of its first record."""
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
        """Add a record; None if it does not fit, which the first one always does. Without a
        timestamp it gets the time of now."""
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
        """Return the bytes of the batch so far, before it is compressed."""
        return HEADER_SIZE + len(self._body)

    def size_in_bytes(
        self,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> int:
        """Return the bytes that this record would take."""
        return len(self._encode(offset, timestamp, key, value, headers))

    @staticmethod
    def estimate_size_in_bytes(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """Return the most bytes that a batch of only this record can take."""
        size = HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        return size + sum(10 + len(name.encode()) + len(each or b"") for name, each in headers)

    def build(self) -> bytearray:
        """Return the batch, compressed if that makes it smaller."""
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
        body = bytearray(1)  # attributes of a record: none are defined
        body += _varint(timestamp - first) + _varint(offset)
        body += _field("key", key) + _field("value", value) + _varint(len(headers))
        for name, each in headers:
            body += _field("header", name.encode()) + _field("header", each)
        return _varint(len(body)) + body


class DefaultRecordBatchBuilder(_DefaultRecordBatchBuilderPy):
    """Builds one batch. Two names, of which aiokafka's tests want that they are not one class."""


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
