"""What a broker checks before it appends produced records."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka import _seams, errors
from aiokafka.testing import records
from aiokafka.testing.batches import (
    Batch,
    BatchRefusedError,
    Buffer,
    check_from_client,
    parse,
    with_producer,
)
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition, Topic

_ZSTD = 4
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_FIRST_BATCH_V2 = 3  # Produce versions: below come message sets of magic 0 and 1
_FIRST_ZSTD = 7
_AFTER_MAX = "message.timestamp.after.max.ms"
_FIRST_WARY = (4, 0)  # releases in which it is an hour by default; before there was no limit
_FOREVER = 2**63 - 1
_FIRST_FORGIVING = (2, 5)  # releases; KIP-360


@dataclass(frozen=True)
class Appended:
    """Where records went."""

    base_offset: int
    append_time: int
    """Milliseconds with ``LogAppendTime``, else -1; of a repetition the time of its newest record,
    whatever the topic's times are, as Kafka has it."""


def append(
    context: RequestContext,
    topic: Topic,
    partition: Partition,
    data: Buffer,
    transactional_id: str | None,
) -> Appended:
    """Check what a Produce request brought for one partition, and append it.

    A repetition of one of the producer's last five batches is not written again.

    Raises:
        BatchRefusedError: nothing was written.
    """
    batches = _batches(context, data)
    append_time = None
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        append_time = int(_seams.wall_time() * 1000)
    for batch in batches:
        _check(context, topic, batch)
    first = batches[0]
    if first.producer_id >= 0:
        context.services.check_transaction(context, partition, first, transactional_id)
        known = partition.log.producers.duplicate(first)
        if known is not None:
            return Appended(known.base_offset, known.max_timestamp)
        partition.log.producers.check(first, unknown_producer=_unknown_producer(context, first))
    base_offset = partition.log.end_offset
    for batch in (_recompressed(topic, batch) for batch in batches):
        partition.log.add(batch, append_time=append_time)
    return Appended(base_offset, -1 if append_time is None else append_time)


def _unknown_producer(context: RequestContext, batch: Batch) -> int:
    """Return the error code for a producer id without state that does not begin at sequence 0."""
    if context.profile.release < _FIRST_FORGIVING:
        return errors.UnknownProducerId.errno
    if batch.is_transactional and context.services.adds_partitions(context):
        return errors.OutOfOrderSequenceNumber.errno
    return 0


def _batches(context: RequestContext, data: Buffer) -> list[Batch]:
    if context.api_version < _FIRST_BATCH_V2:
        data = records.from_message_set(data)
    batches = parse(data)
    if context.api_version >= _FIRST_BATCH_V2 and len(batches) != 1:
        raise BatchRefusedError(
            errors.InvalidRecord.errno,
            f"{len(batches)} record batches came, exactly one is required",
        )
    return batches


def _check(context: RequestContext, topic: Topic, batch: Batch) -> None:
    check_from_client(batch)
    if batch.size > int(topic.setting("max.message.bytes")):
        raise BatchRefusedError(
            errors.MessageSizeTooLargeError.errno,
            f"The record batch size in the append to {topic.name} is {batch.size} bytes which "
            f"exceeds the maximum configured value of {topic.setting('max.message.bytes')}.",
        )
    allowed = context.profile.compressions
    if allowed is not None and batch.codec not in (0, *allowed):
        raise BatchRefusedError(
            errors.UnsupportedForMessageFormatError.errno, "the compression type is not supported"
        )
    if batch.codec == _ZSTD and _FIRST_BATCH_V2 <= context.api_version < _FIRST_ZSTD:
        raise BatchRefusedError(
            errors.UnsupportedCompressionType.errno, "zstd needs Produce version 7 or higher"
        )
    _check_records(topic, batch, _times_allowed(context.profile.release, topic))


def _recompressed(topic: Topic, batch: Batch) -> Batch:
    """Return the batch in the codec that the topic's ``compression.type`` names."""
    codec = _CODECS.get(topic.setting("compression.type"))
    if codec is None or codec == batch.codec:
        return batch
    found = records.decode(batch.data, topic.name, 0, batch.base_offset)
    items = [(r.timestamp, r.key, r.value, r.headers) for r in found]
    return with_producer(parse(records.build(items, codec=codec))[0], batch, batch.base_sequence)


def _times_allowed(release: tuple[int, ...], topic: Topic) -> tuple[int, int]:
    """Return the earliest and the latest time that a record may have."""
    if topic.setting("message.timestamp.type") != "CreateTime":
        return -_FOREVER, _FOREVER
    now = int(_seams.wall_time() * 1000)
    after = int(topic.setting(_AFTER_MAX))
    if _AFTER_MAX not in topic.config and release < _FIRST_WARY:
        after = _FOREVER
    return now - int(topic.setting("message.timestamp.before.max.ms")), now + after


def _check_records(topic: Topic, batch: Batch, times: tuple[int, int]) -> None:
    """Refuse a batch if a record of it may not be written, and name all that may not."""
    earliest, latest = times
    needs_keys = "compact" in topic.setting("cleanup.policy")
    if not needs_keys and earliest < 0 and batch.max_timestamp <= latest:
        return
    no_key = f"Compacted topic cannot accept message without key in topic {topic.name}."
    errno, blamed = errors.InvalidRecord.errno, {}
    found = records.decode(batch.data, topic.name, 0, batch.base_offset)
    for index, record in enumerate(found):
        time = record.timestamp
        if needs_keys and record.key is None:
            blamed[index] = no_key
        elif time >= 0 and not earliest <= time <= latest:
            errno = errors.InvalidTimestampError.errno
            blamed[index] = f"Timestamp {time} is out of range."
    if blamed:
        raise BatchRefusedError(
            errno,
            f"One or more records have been rejected due to {len(blamed)} record errors, the first "
            f"of which is: {next(iter(blamed.values()))}",
            in_log=True,
            blamed=blamed,
        )
