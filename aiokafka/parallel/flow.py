"""Back-pressure: how much to take, and which partitions to pause meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.work import PartitionWork, WorkQueue
    from aiokafka.structs import TopicPartition

__all__ = ["Flow", "Limits"]

# Assumed size of a record before one was seen, as a part of `max_bytes`.
_FIRST_GUESS = 16
# Room for so few records, as a part of `max_records`, is not worth a call.
_CRUMBS = 8
# Most that one call takes, as a part of a partition's share.
_CALL = 0.25


@dataclass(frozen=True)
class Limits:
    """Limits of what is unfinished."""

    concurrency: int
    max_records: int
    max_bytes: int
    max_uncommitted: int


class Flow:
    """Takes records up to the limits, and no more until half of them is done.

    A partition is paused when the limits are reached, when it has more than its share (its keys are
    slow, and others should not wait for them), or when its next record is not due yet. The consumer
    is asked for records all the same: that keeps it in its group, and lets rebalances proceed.

    Owns: which partitions are paused by us, and why.
    """

    def __init__(self, consumer: AIOKafkaConsumer, queue: WorkQueue, limits: Limits) -> None:
        self._consumer = consumer
        self._queue = queue
        self._limits = limits
        self._weight = limits.max_bytes / _FIRST_GUESS
        self._count = 1  # partitions that share the limits
        self._is_full = False
        self._is_closed = False
        # With them, the next call may take more than their share.
        self._crowded: dict[TopicPartition, PartitionWork] = {}
        self._ahead: set[TopicPartition] = set()  # far beyond their lowest unfinished offset
        self._held: set[TopicPartition] = set()  # something of them is not due yet
        self._set_aside: set[TopicPartition] = set()  # not to be read at all
        self._paused: set[TopicPartition] = set()

    @property
    def is_tight(self) -> bool:
        """Whether a partition is paused that a finished record may free."""
        return self._is_full or bool(self._crowded) or bool(self._ahead)

    @property
    def paused(self) -> int:
        """How many partitions are paused by us."""
        return len(self._paused)

    # -- taking ------------------------------------------------------------------------------------

    def most(self) -> int:
        """Return how many records to ask for now."""
        queue, limits = self._queue, self._limits
        few, few_bytes = self._few()
        # When it is full the call returns records again when so few are left.
        records = few if self._is_full else queue.records
        nbytes = few_bytes if self._is_full else queue.nbytes
        by_bytes = (limits.max_bytes - nbytes) / self._weight
        # All of them may be of one partition. With many partitions a part of the share is little:
        # more of it does no harm while there is room.
        a_call, call_bytes = self._shares(_CALL)
        a_call = max(a_call, (limits.max_records - few) // _CRUMBS)
        call_bytes = max(call_bytes, (limits.max_bytes - few_bytes) // _CRUMBS)
        a_call = max(limits.concurrency, min(a_call, int(call_bytes / self._weight)))
        return max(1, min(limits.max_records - records, int(by_bytes), a_call))

    @property
    def max_bytes(self) -> int:
        """The limit of unfinished bytes, at which no more records are taken."""
        return self._limits.max_bytes

    def put_back(self, tp: TopicPartition, offset: int) -> None:
        """Read a partition again from this offset, because it was too much at once.

        That happens when records are far larger than those before them.
        """
        self._consumer.seek(tp, offset)
        self.release(tp)

    def taken(self, partition: PartitionWork) -> None:
        """Take note that records of this partition were added to the queue."""
        mean = partition.nbytes / max(1, partition.unfinished)
        # Rises at once and falls slowly: to take too much costs memory, to take too little a call.
        self._weight = max(1.0, mean, self._weight * 0.75)
        tp = partition.tp
        limits = self._limits
        self._count = max(1, len(self._consumer.assignment()))
        if self._has_more(partition, 1 - _CALL):
            self._crowded[tp] = partition
        if partition.tracker.span > limits.max_uncommitted:
            self._ahead.add(tp)
        if tp in self._crowded or tp in self._ahead:
            self._apply([tp])

    def note_fill(self) -> None:
        """Take note that all records of a call were added."""
        limits = self._limits
        crumbs = max(1, limits.max_records // _CRUMBS)
        is_full = (
            self._queue.records > limits.max_records - crumbs
            or self._queue.nbytes >= limits.max_bytes
        )
        if is_full and not self._is_full:
            self._is_full = True
            self._apply(self._consumer.assignment())

    def finished(self, partition: PartitionWork) -> None:
        """Take note that a record of this partition was finished."""
        if self._is_full:
            records, nbytes = self._few()
            if self._queue.records <= records and self._queue.nbytes <= nbytes:
                self._is_full = False
                self._apply(self._consumer.assignment())
        tp = partition.tp
        if tp in self._crowded and not self._has_more(self._crowded[tp], 0.5):
            del self._crowded[tp]
            self._apply([tp])
        if tp in self._ahead and partition.tracker.span * 2 <= self._limits.max_uncommitted:
            self._ahead.discard(tp)
            self._apply([tp])

    def _shares(self, part: float) -> tuple[int, int]:
        """Return this part of the records, and of the bytes, that one partition may have
        unfinished."""
        limits, count = self._limits, self._count
        return int(limits.max_records * part / count), int(limits.max_bytes * part / count)

    def _has_more(self, partition: PartitionWork, part: float) -> bool:
        """Return whether more than this part of its share is unfinished, and enough to be worked
        on."""
        records, nbytes = self._shares(part)
        return partition.unfinished > self._limits.concurrency and (
            partition.unfinished > records or partition.nbytes > nbytes
        )

    def _few(self) -> tuple[int, int]:
        """Return with how many records and bytes it is not full any more: half of the limits.

        What crowded partitions have may never be done, so half of the rest has to be enough.
        """
        limits = self._limits
        records = sum(partition.unfinished for partition in self._crowded.values())
        nbytes = sum(partition.nbytes for partition in self._crowded.values())
        return (limits.max_records + records) // 2, (limits.max_bytes + nbytes) // 2

    # -- holding back ------------------------------------------------------------------------------

    def hold(self, tp: TopicPartition) -> None:
        """Pause this partition until `release()`."""
        self._held.add(tp)
        self._apply([tp])

    def release(self, tp: TopicPartition) -> None:
        """Resume a partition that `hold` paused."""
        self._held.discard(tp)
        self._apply([tp])

    def set_aside(self, tps: Iterable[TopicPartition]) -> None:
        """Pause these partitions for as long as they are ours."""
        self._set_aside.update(tps)

    def close(self) -> None:
        """Pause everything."""
        self._is_closed = True
        self._apply(self._consumer.assignment())

    # -- the assignment ----------------------------------------------------------------------------

    def assigned(self, tps: Collection[TopicPartition]) -> None:
        """Resume these partitions if nothing holds them: they are newly assigned."""
        # A handler that ended while they were given up may have paused them once more.
        self._paused.difference_update(set(tps) - self._consumer.paused())
        self._apply(tps)

    def gone(self, tps: Collection[TopicPartition]) -> None:
        """Forget these partitions: they are not ours any more, and their pauses went with them."""
        for tp in tps:
            self._paused.discard(tp)
            self._crowded.pop(tp, None)
            self._ahead.discard(tp)
            self._held.discard(tp)
            self._set_aside.discard(tp)
        # The queue may be empty now.
        records, nbytes = self._few()
        if self._is_full and self._queue.records <= records:
            self._is_full = self._queue.nbytes > nbytes
            # The consumer has them until its listener returns: paused now, they would pass for
            # paused when they come back.
            self._apply(self._consumer.assignment().difference(tps))

    def _apply(self, tps: Iterable[TopicPartition]) -> None:
        assigned = self._consumer.assignment()
        for tp in tps:
            # A handler may end after its partition was revoked.
            if tp not in assigned:
                continue
            is_paused = self._is_full or self._is_closed
            reasons = (self._crowded, self._ahead, self._held, self._set_aside)
            is_paused = is_paused or any(tp in reason for reason in reasons)
            if is_paused and tp not in self._paused:
                self._paused.add(tp)
                self._consumer.pause(tp)
            elif not is_paused and tp in self._paused:
                self._paused.discard(tp)
                self._consumer.resume(tp)
