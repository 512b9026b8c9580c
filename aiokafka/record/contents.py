"""Read all records of a batch, and convert a batch to an older format."""

from __future__ import annotations

from typing import Any

from aiokafka.errors import IllegalArgumentError
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka.record.header import RecordBatch, flat_view, iter_batches
from aiokafka.record.reader import RecordReader
from aiokafka.structs import ConsumerRecord

__all__ = ["down_convert", "read_records"]

_ALL = 0x7FFFFFFF


def read_records(
    batch: RecordBatch, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[ConsumerRecord[Any, Any]]:
    """Return all records of a batch, including control records, without topic and partition.

    Raises CorruptRecordError if a record cannot be read.
    """
    reader = RecordReader(
        batch.view,
        "",
        -1,
        position=0,
        check_crcs=False,
        include_control=True,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    records: list[ConsumerRecord[Any, Any]] = reader.take(_ALL)
    if not reader.exhausted:
        # The reader stopped before a corrupt record, and raises its error in this call.
        reader.take(_ALL)
    return records


def down_convert(
    batch: bytes | bytearray | memoryview, magic: int, codec: int = 0, level: int | None = None
) -> bytes:
    """Convert a built magic 2 batch to a message set of magic 0 or 1, for brokers before Kafka
    0.11.

    Raises IllegalArgumentError for records with headers, which magic 0 and 1 do not support.
    """
    from aiokafka.record.legacy import build_message_set  # for brokers before Kafka 0.11

    items = []
    for part in iter_batches(flat_view(batch)):
        for record in read_records(part):
            if record.headers:
                raise IllegalArgumentError("headers need a broker of Kafka 0.11 or later")
            items.append((record.timestamp, record.key, record.value))
    return build_message_set(magic, items, codec, level)
