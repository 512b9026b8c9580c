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

# Before the first records are read, the record size is assumed to be 1/16 of `max_bytes`.
_FIRST_GUESS = 16
# All partitions are paused if less than 1/8 of `max_records` is free. A `getmany()` requests at
# least 1/8 of the space that is free when paused partitions are resumed (`_resume_level`).
# Otherwise, many calls would return a few records each.
_LEAST_PART = 8
# A `getmany()` requests about this part of a partition's share (the limits divided by the number
# of assigned partitions).
_CALL = 0.25


@dataclass(frozen=True)
class Limits:
    """The arguments of ParallelConsumer that limit unfinished records."""

    concurrency: int
    max_records: int
    max_bytes: int
    max_uncommitted: int


class Flow:
    """Pauses partitions at the limits of unfinished records, and resumes them at lower levels: half
    of a limit, or `_resume_level()`.

    A partition is paused for any of these reasons:

    - The limits for all partitions are reached, or the ParallelConsumer stops.
    - The partition has more than its share of the limits; without this rule, its slow keys would
      block the other partitions.
    - More than `max_uncommitted` of its records were taken from the consumer, counted from the
      lowest unfinished offset.
    - It belongs to a retry topic, and its next record is not due yet.
    - It belongs to a dead-letter topic.

    The consumer is polled nevertheless, because otherwise the group would remove the member.

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
        # Partitions that the next `getmany()` could bring above their share (see `_shares`).
        self._over_share: dict[TopicPartition, PartitionWork] = {}
        # Partitions with more than `max_uncommitted` records from the lowest unfinished offset on.
        self._over_uncommitted: set[TopicPartition] = set()
        # Partitions of retry topics whose next record is not due.
        self._not_due: set[TopicPartition] = set()
        # Partitions of dead-letter topics that the subscribed pattern matches.
        self._never_read: set[TopicPartition] = set()
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
        """Return the `max_records` for the next `getmany()`, at least 1: as many records as the
        limits probably allow.
        """
        queue, limits = self._queue, self._limits
        few, few_bytes = self._resume_level()
        # While the limits are reached, all partitions are paused, and `getmany()` returns no
        # records until the unfinished records have fallen to the resume level. So compute the
        # number for that level.
        records = few if self._is_full else queue.records
        nbytes = few_bytes if self._is_full else queue.nbytes
        by_bytes = (limits.max_bytes - nbytes) / self._record_size
        # The next call may return records of one partition only, so request a part (`_CALL`) of
        # what one partition may have (see `_shares`). With many partitions that is little, so
        # request at least 1/8 of the space that is free at the resume level.
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
        """Seek a partition back to `offset`, because the records from there on did not fit into
        `max_bytes`: they were larger than expected. A pause by `hold()` ends.
        """
        self._consumer.seek(tp, offset)
        self.release(tp)

    def on_queued(self, partition: PartitionWork) -> None:
        """Update the estimated record size after records of this partition were queued. Pause the
        partition in two cases: the next `getmany()` could bring it above its share (see `_shares`);
        or it has more than `max_uncommitted` records from the lowest unfinished offset on.
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
        """Pause all partitions if `max_bytes` is reached, or less than 1/8 of `max_records` is
        free. Called after all records of a `getmany()` were queued.
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
        """Called after a record of `partition` has finished. If the limits were reached, resume all
        partitions as soon as the unfinished records have fallen to the resume level. If `partition`
        was above its share (see `_shares`) or `max_uncommitted`, resume it as soon as it has fallen
        to half of this limit.
        """
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
        """Return `part` of a partition's share of unfinished records and bytes (the limits divided
        by the number of assigned partitions).
        """
        limits, count = self._limits, self._partition_count
        return int(limits.max_records * part / count), int(limits.max_bytes * part / count)

    def _has_more(self, partition: PartitionWork, part: float) -> bool:
        """Return whether a partition has more unfinished records or bytes than `part` of its share
        (see `_shares`), and more unfinished records than there are workers.
        """
        records, nbytes = self._shares(part)
        return partition.unfinished > self._limits.concurrency and (
            partition.unfinished > records or partition.nbytes > nbytes
        )

    def _resume_level(self) -> tuple[int, int]:
        """Return the numbers of unfinished records and bytes at which paused partitions are
        resumed.

        Partitions above their share may never finish their records, so the level is halfway between
        the records of these partitions and the limits.
        """
        limits = self._limits
        records = sum(partition.unfinished for partition in self._over_share.values())
        nbytes = sum(partition.nbytes for partition in self._over_share.values())
        return (limits.max_records + records) // 2, (limits.max_bytes + nbytes) // 2

    # -- delayed records -------------------------------------------------------------------------

    def hold(self, tp: TopicPartition) -> None:
        """Pause a partition whose next record is not due, until `release()`."""
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
        """Pause all partitions, also those that are assigned later."""
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
        """Remove the state of revoked or lost partitions. If the limits were reached, and the
        unfinished records of the other partitions have fallen to the resume level, resume these
        partitions.
        """
        for tp in tps:
            self._paused.discard(tp)
            self._over_share.pop(tp, None)
            self._over_uncommitted.discard(tp)
            self._not_due.discard(tp)
            self._never_read.discard(tp)
        # The records of these partitions no longer count.
        records, nbytes = self._resume_level()
        if self._is_full and self._queue.records <= records:
            self._is_full = self._queue.nbytes > nbytes
            # Exclude `tps`, which are assigned until the listener returns: a pause now would still
            # be in `_paused` when they are assigned again.
            self._apply(self._consumer.assignment().difference(tps))

    def _apply(self, tps: Iterable[TopicPartition]) -> None:
        assigned = self._consumer.assignment()
        for tp in tps:
            # A handler may end after its partition was revoked, and `pause()` would raise for a
            # revoked partition.
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
