"""What stands in the logs of the cluster, as the checks need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.testing import PartitionLog
    from aiokafka.testing.batches import Batch
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Entry:
    """A record in a log."""

    offset: int
    number: int
    is_aborted: bool
    is_open: bool
    """Part of a transaction that has not ended."""


def log_of(world: World, tp: TopicPartition) -> PartitionLog | None:
    """The log of a partition; None if there is none now."""
    try:
        return world.cluster.log(tp.topic, tp.partition)
    except KeyError:
        return None


def partitions(world: World, topic: str) -> list[TopicPartition]:
    """The partitions that a topic has now."""
    found = world.cluster.state.topics.get(topic)
    count = 0 if found is None else len(found.partitions)
    return [TopicPartition(topic, number) for number in range(count)]


def first_visible(
    world: World, tp: TopicPartition, start: int, end: int, committed_only: bool
) -> int | None:
    """The first offset from `start` up to but not `end` with a record that consumers see."""
    log = log_of(world, tp)
    if log is None:
        return None
    start = max(start, log.start_offset)
    if start >= end:
        return None  # all of it was deleted, up to the middle of a batch
    for batch in log.batches:
        if batch.last_offset < start or batch.base_offset >= end:
            continue
        if not is_hidden(log, batch, committed_only):
            return max(start, batch.base_offset)
    return None


def is_hidden(log: PartitionLog, batch: Batch, committed_only: bool) -> bool:
    """Whether consumers do not see a batch: control records, aborted transactions."""
    if batch.is_control:
        return True
    if not committed_only or not batch.is_transactional:
        return False
    return log.producers.is_aborted(batch.producer_id, batch.base_offset)


def visible_end(world: World, tp: TopicPartition, committed_only: bool) -> int:
    """Where consumers that have read everything stand."""
    log = log_of(world, tp)
    if log is None:
        return 0
    return log.last_stable_offset if committed_only else log.high_watermark


def numbers(world: World, tp: TopicPartition) -> Iterator[tuple[int, int]]:
    """Offset and number of every record in a log."""
    from tests.simulation.history import number_of

    log = log_of(world, tp)
    if log is not None:
        for record in log.records():
            yield record.offset, number_of(record.value)


def has_open_transaction(world: World, tp: TopicPartition) -> bool:
    """Return whether a log has records of a transaction that has not ended; decodes nothing."""
    log = log_of(world, tp)
    if log is None or not log.producers.open:
        return False
    open_ = log.producers.open
    return any(
        batch.last_offset >= open_.get(batch.producer_id, batch.last_offset + 1)
        for batch in log.batches
        if batch.is_transactional and not batch.is_control
    )


def entries(world: World, tp: TopicPartition) -> list[Entry]:
    """Every record in a log, with the fate of its transaction."""
    from tests.simulation.history import number_of

    log = log_of(world, tp)
    if log is None:
        return []
    batches = [batch for batch in log.batches if not batch.is_control]
    found = []
    index = 0
    for record in log.records():
        offset, number = record.offset, number_of(record.value)
        if 0 <= number < len(world.history.sent):
            world.history.check_contents("the log", tp, record)
        while batches[index].last_offset < offset:
            index += 1
        batch = batches[index]
        aborted = is_hidden(log, batch, True)
        is_open = False
        if batch.is_transactional and not aborted:
            first = log.producers.open.get(batch.producer_id)
            is_open = first is not None and offset >= first
        found.append(Entry(offset, number, aborted, is_open))
    return found
