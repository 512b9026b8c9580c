"""Make several batches of one that a broker finds too large (KIP-126)."""

from __future__ import annotations

from typing import Any

from aiokafka.producer.batches.batch import BatchState, ProducerBatch
from aiokafka.producer.batches.sizing import BatchSizing
from aiokafka.producer.sending.partition_sequence import advance
from aiokafka.record.batch import RecordReader

__all__ = ["split_batch"]


def split_batch(batch: ProducerBatch, sizing: BatchSizing) -> list[ProducerBatch]:
    """Split `batch` into batches of at most half its size; return them, [] if that is impossible.

    The parts take over the futures of the records, and keep the sequence numbers of the whole, so
    nothing is missing between them. A batch that the user made stays whole, as its future promises
    one base offset: it is the first part, and records of `send` that came behind it are in others.

    The parts of a batch are doubtful if it may be written (`ProducerBatch.is_unanswered`):

    1. The batch is written, and the response is lost.
    2. The topic's limit becomes smaller.
    3. The batch is sent again. Leaders look at the size first, so it is refused, and split.
    4. The first part is refused for its sequence number: the leader has that already, but as part
       of a batch that ends elsewhere.

    This is not the gap that a new epoch mends: under one the records would be written again. So the
    doubtful part fails, and its error says that it may have been written.
    """
    timestamps = batch.outcome.timestamps
    if batch.record_count < 2 or not timestamps:
        return []
    limit = max(1, min(sizing.limit, batch.builder.size // 2))
    sequence = batch.base_sequence
    # The records are kept in the batch alone, so they are read back from its bytes.
    records = RecordReader(batch.builder.build(), *batch.partition, position=0, check_crcs=False)
    own: list[ProducerBatch] = []
    if batch.whole is not None:
        part = batch.part(sizing.builder(batch.builder.size))
        part.serve_whole(batch.whole, batch.whole_timestamp)
        for _ in range(batch.record_count - len(timestamps)):
            part.builder.append(*_fields_of_next(records))
        own.append(part)
    parts: list[ProducerBatch] = []
    firsts: list[int] = []
    for number, timestamp in enumerate(timestamps):
        fields = _fields_of_next(records)
        if not parts or parts[-1].builder.append(*fields) < 0:
            part = batch.part(sizing.builder(limit))
            part.builder.append(*fields)
            parts.append(part)
            firsts.append(number)
        parts[-1].outcome.adopt(timestamp)
    batch.outcome.divide(firsts, [part.outcome for part in parts])
    parts = own + parts
    for part in parts:
        part.transition(BatchState.SEALED)
        if batch.has_identity:
            part.set_number(batch.producer_id, batch.producer_epoch, sequence)
            sequence = advance(sequence, part.record_count)
    return parts


def _fields_of_next(records: RecordReader) -> tuple[Any, ...]:
    record = records.next()
    if record is None:
        raise RuntimeError("a batch lacks records")
    return record.timestamp, record.key, record.value, record.headers
