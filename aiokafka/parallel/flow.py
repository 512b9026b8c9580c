"""Back-pressure: how many records to request, and which partitions to pause."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.work import PartitionWork, WorkQueue
    from aiokafka.structs import TopicPartition

__all__ = ["Flow", "Limits"]

# Until records were read, each record is assumed to have 1/16 of `max_bytes`.
_FIRST_GUESS = 16
# A `getmany()` should request at least 1/8 of `max_records`.
_LEAST_PART = 8
# A `getmany()` requests about this part of a partition's share of the limits.
_CALL = 0.25


@dataclass(frozen=True)
class Limits:
    """The arguments of ParallelConsumer that limit unfinished records."""

    concurrency: int
    max_records: int
    max_bytes: int
    max_uncommitted: int


class Flow:
    """Pauses partitions at the limits of unfinished records, and resumes them at half of the
    limits.

    A partition is paused when the limits are reached, when the partition has more than its share of
    the limits (so that its slow keys do not block other partitions), or when its next record is not
    due yet. The consumer is polled nevertheless, which keeps the consumer in its group and lets
    rebalances proceed.

    Owns: the partitions paused here, and the reasons.
    """

    def __init__(self, consumer: AIOKafkaConsumer, queue: WorkQueue, limits: Limits) -> None:
        self._consumer = consumer
        self._queue = queue
        self._limits = limits
        self._record_size = limits.max_bytes / _FIRST_GUESS
        self._partition_count = 1  # partitions that share the limits
        self._is_full = False
        self._is_closed = False
        # Partitions that the next `getmany()` could bring above their share.
        self._over_share: dict[TopicPartition, PartitionWork] = {}
        # Partitions with more than `max_uncommitted` records from the lowest unfinished offset on.
        self._over_uncommitted: set[TopicPartition] = set()
        self._not_due: set[TopicPartition] = set()  # partitions with records that are not due
        self._never_read: set[TopicPartition] = set()  # dead-letter topics, matched by the pattern
        self._paused: set[TopicPartition] = set()

    @property
    def may_resume(self) -> bool:
        """Whether finishing a record may resume a partition."""
        return self._is_full or bool(self._over_share) or bool(self._over_uncommitted)

    @property
    def paused(self) -> int:
        """Number of partitions paused here."""
        return len(self._paused)

    # -- limits ------------------------------------------------------------------------------------

    def most(self) -> int:
        """Return the `max_records` for the next `getmany()`."""
        queue, limits = self._queue, self._limits
        few, few_bytes = self._resume_level()
        # While the limits are reached, all partitions are paused. `getmany()` returns records only
        # after the unfinished records have fallen to the resume level.
        records = few if self._is_full else queue.records
        nbytes = few_bytes if self._is_full else queue.nbytes
        by_bytes = (limits.max_bytes - nbytes) / self._record_size
        # All records may be of one partition, so request only a part of a partition's share. With
        # many partitions that part is small: request at least 1/8 of the space that is free at the
        # resume level.
        a_call, call_bytes = self._shares(_CALL)
        a_call = max(a_call, (limits.max_records - few) // _LEAST_PART)
        call_bytes = max(call_bytes, (limits.max_bytes - few_bytes) // _LEAST_PART)
        a_call = max(limits.concurrency, min(a_call, int(call_bytes / self._record_size)))
        return max(1, min(limits.max_records - records, int(by_bytes), a_call))

    @property
    def max_bytes(self) -> int:
        """The limit of unfinished bytes."""
        return self._limits.max_bytes

    def read_again(self, tp: TopicPartition, offset: int) -> None:
        """Seek a partition back to this offset. The records from there on exceeded `max_bytes`,
        because they were larger than expected.
        """
        self._consumer.seek(tp, offset)
        self.release(tp)

    def on_queued(self, partition: PartitionWork) -> None:
        """Update the mean record size after records of this partition were queued, and pause the
        partition at its limits.
        """
        mean = partition.nbytes / max(1, partition.unfinished)
        # The estimated size rises at once and falls slowly: a low estimate costs memory, a high
        # estimate costs only another `getmany()`.
        self._record_size = max(1.0, mean, self._record_size * 0.75)
        tp = partition.tp
        limits = self._limits
        self._partition_count = max(1, len(self._consumer.assignment()))
        if self._has_more(partition, 1 - _CALL):
            self._over_share[tp] = partition
        if partition.tracker.span > limits.max_uncommitted:
            self._over_uncommitted.add(tp)
        if tp in self._over_share or tp in self._over_uncommitted:
            self._apply([tp])

    def check_full(self) -> None:
        """Pause all partitions if the limits are reached, after all records of a `getmany()` were
        queued.
        """
        limits = self._limits
        least = max(1, limits.max_records // _LEAST_PART)
        is_full = (
            self._queue.records > limits.max_records - least
            or self._queue.nbytes >= limits.max_bytes
        )
        if is_full and not self._is_full:
            self._is_full = True
            self._apply(self._consumer.assignment())

    def on_finished(self, partition: PartitionWork) -> None:
        """After a record of `partition` has finished, resume partitions within their limits."""
        if self._is_full:
            records, nbytes = self._resume_level()
            if self._queue.records <= records and self._queue.nbytes <= nbytes:
                self._is_full = False
                self._apply(self._consumer.assignment())
        tp = partition.tp
        if tp in self._over_share and not self._has_more(self._over_share[tp], 0.5):
            del self._over_share[tp]
            self._apply([tp])
        if (
            tp in self._over_uncommitted
            and partition.tracker.span * 2 <= self._limits.max_uncommitted
        ):
            self._over_uncommitted.discard(tp)
            self._apply([tp])

    def _shares(self, part: float) -> tuple[int, int]:
        """Return this part of a partition's share of unfinished records and bytes."""
        limits, count = self._limits, self._partition_count
        return int(limits.max_records * part / count), int(limits.max_bytes * part / count)

    def _has_more(self, partition: PartitionWork, part: float) -> bool:
        """Return whether a partition has more than this part of its share unfinished, and enough
        records for all workers.
        """
        records, nbytes = self._shares(part)
        return partition.unfinished > self._limits.concurrency and (
            partition.unfinished > records or partition.nbytes > nbytes
        )

    def _resume_level(self) -> tuple[int, int]:
        """Return the numbers of unfinished records and bytes at which paused partitions are
        resumed.

        Partitions above their share may never finish their records, so the level is halfway between
        these records and the limits.
        """
        limits = self._limits
        records = sum(partition.unfinished for partition in self._over_share.values())
        nbytes = sum(partition.nbytes for partition in self._over_share.values())
        return (limits.max_records + records) // 2, (limits.max_bytes + nbytes) // 2

    # -- delayed records -------------------------------------------------------------------------

    def hold(self, tp: TopicPartition) -> None:
        """Pause a partition until `release()`."""
        self._not_due.add(tp)
        self._apply([tp])

    def release(self, tp: TopicPartition) -> None:
        """Resume a partition that `hold` paused, unless there are other reasons to pause it."""
        self._not_due.discard(tp)
        self._apply([tp])

    def keep_paused(self, tps: Iterable[TopicPartition]) -> None:
        """Keep these partitions paused while they are assigned; `on_assigned()` pauses them."""
        self._never_read.update(tps)

    def close(self) -> None:
        """Pause all partitions."""
        self._is_closed = True
        self._apply(self._consumer.assignment())

    # -- the assignment ----------------------------------------------------------------------------

    def on_assigned(self, tps: Collection[TopicPartition]) -> None:
        """Resume newly assigned partitions, unless there is a reason to pause them."""
        # Newly assigned partitions are not paused in the consumer, but `_paused` may have them: a
        # handler that ended during the revocation may have added them after `on_revoked()`.
        self._paused.difference_update(set(tps) - self._consumer.paused())
        self._apply(tps)

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        """Remove revoked or lost partitions, which the consumer does not keep paused."""
        for tp in tps:
            self._paused.discard(tp)
            self._over_share.pop(tp, None)
            self._over_uncommitted.discard(tp)
            self._not_due.discard(tp)
            self._never_read.discard(tp)
        # Without the records of these partitions, the resume level may be reached.
        records, nbytes = self._resume_level()
        if self._is_full and self._queue.records <= records:
            self._is_full = self._queue.nbytes > nbytes
            # Exclude `tps`, which are assigned until the listener returns: a pause now would still
            # be in `_paused` when they are assigned again.
            self._apply(self._consumer.assignment().difference(tps))

    def _apply(self, tps: Iterable[TopicPartition]) -> None:
        assigned = self._consumer.assignment()
        for tp in tps:
            # A handler may end after the revocation of its partition.
            if tp not in assigned:
                continue
            is_paused = self._is_full or self._is_closed
            reasons = (self._over_share, self._over_uncommitted, self._not_due, self._never_read)
            is_paused = is_paused or any(tp in reason for reason in reasons)
            if is_paused and tp not in self._paused:
                self._paused.add(tp)
                self._consumer.pause(tp)
            elif not is_paused and tp in self._paused:
                self._paused.discard(tp)
                self._consumer.resume(tp)
