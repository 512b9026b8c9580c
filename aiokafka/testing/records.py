"""Records to batches and back, for tests and for brokers that convert old formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.errors import CorruptRecordError
from aiokafka.testing.batches import (
    CODEC_MASK,
    BatchRefusedError,
    Buffer,
    magic_of,
)

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

    Item = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]

_NO_LIMIT = 2**31 - 1
_ALL = 2**31 - 1


def build(items: Iterable[Item], *, codec: int = 0) -> bytes:
    """Build one batch of (timestamp, key, value, headers) records, at base offset 0."""
    from aiokafka.record.batch import RecordBatchBuilder

    builder = RecordBatchBuilder(compression=codec, level=None, size_limit=_NO_LIMIT)
    for timestamp, key, value, headers in items:
        builder.append(timestamp, key, value, headers)
    return bytes(builder.build())


def decode(
    data: Buffer, topic: str, partition: int, position: int
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Return the records of batches from offset `position` on; control records are left out."""
    from aiokafka.record.batch import RecordReader

    if not data:
        return []
    reader = RecordReader(data, topic, partition, position=position)
    return reader.take(_ALL)


def from_message_set(data: Buffer) -> bytes:
    """Convert messages of magic 0 or 1 to one batch of magic 2, compressed in the same way.

    Raises:
        BatchRefusedError: these are no sound messages of the old formats.
    """
    magic = magic_of(data)
    if magic not in (0, 1):
        raise BatchRefusedError(
            errors.CorruptRecordException.errno, "only messages of magic 0 and 1 are taken"
        )
    try:
        found = decode(data, "", 0, 0)
    except CorruptRecordError as exc:
        raise BatchRefusedError(errors.CorruptRecordException.errno, str(exc)) from exc
    attributes = data[17]
    items: list[Item] = [(r.timestamp if magic else -1, r.key, r.value, ()) for r in found]
    return build(items, codec=attributes & CODEC_MASK)


def to_message_set(data: Buffer, magic: int) -> bytes:
    """Convert a batch of magic 2 to messages of magic 0 or 1, uncompressed; headers are lost."""
    from aiokafka.record.legacy import build_message_set

    messages = []
    for record in decode(data, "", 0, 0):
        item = (record.timestamp, record.key, record.value)
        message = bytearray(build_message_set(magic, [item], 0, None))
        message[:8] = record.offset.to_bytes(8, "big")  # which the checksum leaves out
        messages.append(message)
    return b"".join(messages)
