"""Record batches as a broker handles them: it reads and changes headers, not the records."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.errors import CorruptRecordError
from aiokafka.record.crc32c import crc32c
from aiokafka.testing.actions import ErrorCode, RefusedError

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    Item = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
_LOG_OVERHEAD = 12  # size of base offset and length, which the length field does not include
_MAGIC_OFFSET = 16
_CRC_OFFSET = 17
_ATTRIBUTES_OFFSET = 21
_MAX_TIMESTAMP_OFFSET = 35
_PRODUCER_OFFSET = 43
_MARKER_TYPE = HEADER_SIZE + 8  # position of the low byte of a marker's type: 0 abort, 1 commit

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, first timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


class BatchRefusedError(RefusedError):
    """The broker rejects a record batch."""

    def __init__(
        self,
        error: ErrorCode,
        message: str,
        *,
        in_log: bool = False,
        blamed: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(error, message)
        self.in_log = in_log
        """Whether the log rejected the batch: the response then has the log start offset."""
        self.blamed = dict(blamed or {})
        """The reason for each rejected record, by its index in the batch (KIP-467)."""


@dataclass(slots=True)
class Batch:
    """One record batch of magic 2; `data` has all its bytes, including the header."""

    data: Buffer
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; wraps to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """Compression type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a commit or abort marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_commit(self) -> bool:
        """Whether a control batch is a commit marker."""
        return bool(self.data[_MARKER_TYPE])


def magic_of(buffer: Buffer) -> int:
    """Return the magic (format version) of the first batch or message; -1 for a short buffer."""
    return buffer[_MAGIC_OFFSET] if len(buffer) > _MAGIC_OFFSET else -1


def parse(buffer: Buffer) -> list[Batch]:
    """Return the complete batches of a record set, after a check of lengths, magic and checksums.
    An incomplete batch at the end is ignored.

    Raises:
        BatchRefusedError: a check failed; `errno` is the error code that a broker returns.
    """
    view = memoryview(buffer)
    batches: list[Batch] = []
    position = 0
    while len(view) - position > _MAGIC_OFFSET:
        size = int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        size += _LOG_OVERHEAD
        if size > len(view) - position:
            break
        batch = _parse_one(view[position : position + size], size)
        batches.append(batch)
        position += size
    return batches


def _parse_one(data: memoryview, size: int) -> Batch:
    magic = magic_of(data)
    if magic != 2:
        errno = (
            errors.InvalidRecord.errno if 0 <= magic < 2 else errors.CorruptRecordException.errno
        )
        raise BatchRefusedError(errno, f"record batch has magic {magic}, 2 is required")
    if size < HEADER_SIZE:
        raise BatchRefusedError(
            errors.CorruptRecordException, f"record batch of {size} bytes is impossible"
        )
    base_offset, _length, leader_epoch, _magic, crc, *fields = _HEADER.unpack_from(data)
    if crc32c(data[_ATTRIBUTES_OFFSET:]) != crc:
        raise BatchRefusedError(
            errors.CorruptRecordException, "record batch checksum does not match"
        )
    # From the attributes on, the fields of `Batch` are in the order of the header.
    return Batch(data, base_offset, leader_epoch, *fields)


def check_from_client(batch: Batch) -> None:
    """Verify a batch that arrives in a Produce request (Kafka's LogValidator).

    Raises:
        BatchRefusedError: the batch is invalid.
    """
    if batch.is_control:
        raise BatchRefusedError(errors.InvalidRecord, "clients may not write control batches")
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1:
        raise BatchRefusedError(errors.InvalidRecord, "record count and last offset delta disagree")
    if batch.is_transactional and batch.producer_id < 0:
        raise BatchRefusedError(errors.InvalidRecord, "transactional batch without a producer id")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise BatchRefusedError(errors.InvalidRecord, "idempotent batch without a sequence number")


def place(batch: Batch, base_offset: int, leader_epoch: int, append_time: int | None) -> Batch:
    """Return a copy of `batch` with another base offset and leader epoch.

    Args:
        append_time: The timestamp of all records (ms) if ``message.timestamp.type=LogAppendTime``;
            None keeps their timestamps.
    """
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, leader_epoch)
    attributes, max_timestamp = batch.attributes, batch.max_timestamp
    if append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = append_time
        struct.pack_into(">h", data, _ATTRIBUTES_OFFSET, attributes)
        struct.pack_into(">q", data, _MAX_TIMESTAMP_OFFSET, max_timestamp)
        struct.pack_into(">I", data, _CRC_OFFSET, crc32c(data[_ATTRIBUTES_OFFSET:]))
    return Batch(
        data,
        base_offset,
        leader_epoch,
        attributes,
        batch.last_offset_delta,
        batch.first_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )


def with_producer(batch: Batch, like: Batch, sequence: int) -> Batch:
    """Return a copy of `batch` with base sequence `sequence`, and with the producer id and epoch,
    the transactional bit and the timestamp type of `like`.
    """
    data = bytearray(batch.data)
    attributes = batch.attributes | (like.attributes & (TRANSACTIONAL | LOG_APPEND_TIME))
    struct.pack_into(">h", data, _ATTRIBUTES_OFFSET, attributes)
    fields = (like.producer_id, like.producer_epoch, sequence)
    struct.pack_into(">qhi", data, _PRODUCER_OFFSET, *fields)
    struct.pack_into(">I", data, _CRC_OFFSET, crc32c(data[_ATTRIBUTES_OFFSET:]))
    return parse(data)[0]


def control_batch(producer_id: int, producer_epoch: int, *, commit: bool, timestamp: int) -> Batch:
    """Build a transaction marker (Kafka's EndTransactionMarker, coordinator epoch 0)."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, 0)
    # attributes, timestamp delta, offset delta, key, value, no headers. Every varint fits one byte:
    # the zigzag encoding of a length is the doubled length.
    body = b"\x00\x00\x00" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\x00"
    record = bytes([len(body) * 2]) + body
    data = bytearray(HEADER_SIZE) + record
    attributes = TRANSACTIONAL | CONTROL
    fields = (attributes, 0, timestamp, timestamp, producer_id, producer_epoch, -1, 1)
    _HEADER.pack_into(data, 0, 0, len(data) - _LOG_OVERHEAD, 0, 2, 0, *fields)
    struct.pack_into(">I", data, _CRC_OFFSET, crc32c(data[_ATTRIBUTES_OFFSET:]))
    return Batch(data, 0, 0, *fields)


# -- Conversion between records, batches and the old message formats


_NO_LIMIT = 2**31 - 1
_ALL = 2**31 - 1


def build_batch(items: Iterable[Item], *, codec: int = 0) -> bytes:
    """Build one batch of (timestamp, key, value, headers) records, with base offset 0."""
    from aiokafka.record.batch import RecordBatchBuilder

    builder = RecordBatchBuilder(compression=codec, level=None, size_limit=_NO_LIMIT)
    for timestamp, key, value, headers in items:
        builder.append(timestamp, key, value, headers)
    return bytes(builder.build())


def decode_records(
    data: Buffer, topic: str, partition: int, position: int
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Decode the records in `data` from offset `position` on, without control records."""
    from aiokafka.record.batch import RecordReader

    if not data:
        return []
    reader = RecordReader(data, topic, partition, position=position)
    return reader.take(_ALL)


def from_message_set(data: Buffer) -> bytes:
    """Convert messages of magic 0 or 1 to one batch of magic 2, with the same compression.

    Raises:
        BatchRefusedError: the bytes are not valid messages of these formats.
    """
    magic = magic_of(data)
    if magic not in (0, 1):
        raise BatchRefusedError(
            errors.CorruptRecordException, "only messages of magic 0 and 1 are taken"
        )
    try:
        found = decode_records(data, "", 0, 0)
    except CorruptRecordError as exc:
        raise BatchRefusedError(errors.CorruptRecordException, str(exc)) from exc
    attributes = data[17]
    items: list[Item] = [(r.timestamp if magic else -1, r.key, r.value, ()) for r in found]
    return build_batch(items, codec=attributes & CODEC_MASK)


def to_message_set(data: Buffer, magic: int) -> bytes:
    """Convert batches of magic 2 to uncompressed messages of magic 0 or 1; drop record headers."""
    from aiokafka.record.legacy import build_message_set

    messages = []
    for record in decode_records(data, "", 0, 0):
        item = (record.timestamp, record.key, record.value)
        message = bytearray(build_message_set(magic, [item], 0, None))
        message[:8] = record.offset.to_bytes(8, "big")  # the checksum does not cover the offset
        messages.append(message)
    return b"".join(messages)
