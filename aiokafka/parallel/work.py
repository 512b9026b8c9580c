"""Queued and running records, and the offset to commit of each partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from aiokafka._typing import KT, VT, later
from aiokafka.errors import IllegalStateError
from aiokafka.parallel.retry import DelayedRecords, size_of
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.parallel.dispatcher import Dispatcher
else:
    Dispatcher = later("aiokafka.parallel.dispatcher.Dispatcher")

__all__ = ["OffsetTracker", "PartitionWork", "Work", "WorkQueue", "WorkState"]


# -- The offset to commit, while records finish in any order


_NOTHING = -1


class OffsetTracker:
    """The taken offsets of one partition, and which of them are finished.

    An offset is taken when the consumer has returned its record. Offsets increase, with gaps where
    the log has no readable records.
    """

    __slots__ = ("_finished", "_next", "_window")

    def __init__(self) -> None:
        self._window: deque[int] = deque()  # taken offsets from the lowest unfinished offset on
        self._finished: set[int] = set()  # finished offsets of the window
        self._next = _NOTHING

    @property
    def position(self) -> int:
        """The offset after the last taken offset; -1 if no offset was taken."""
        return self._next

    @property
    def committable(self) -> int:
        """The lowest unfinished offset; `position` if all taken offsets are finished."""
        return self._window[0] if self._window else self._next

    @property
    def span(self) -> int:
        """Number of taken offsets from `committable` on. After a crash, their records are processed
        again.
        """
        return len(self._window)

    def take(self, offset: int) -> None:
        """Add the offset of a record that was taken from the consumer. Raises ValueError if this or
        a later offset was added before."""
        if offset < self._next:
            raise ValueError(f"offset {offset} comes after {self._next - 1}")
        self._window.append(offset)
        self._next = offset + 1

    def truncate(self, offset: int) -> None:
        """Remove the taken offsets from `offset` on, so that `offset` can be taken next."""
        window = self._window
        while window and window[-1] >= offset:
            self._finished.discard(window.pop())
        self._next = min(self._next, offset)

    def finish(self, offset: int) -> None:
        """Mark a taken offset as finished. Raises ValueError if the offset is below the lowest
        unfinished offset or above the last taken offset, or is already finished.
        """
        window, finished = self._window, self._finished
        if not window or not window[0] <= offset < self._next or offset in finished:
            raise ValueError(f"offset {offset} is not open")
        # Store the offset until all lower offsets are finished, because a commit includes all lower
        # offsets.
        if offset != window[0]:
            finished.add(offset)
            return
        window.popleft()
        while window and window[0] in finished:
            finished.discard(window.popleft())


_UNKNOWN = -1

LaneOf = Callable[["ConsumerRecord[Any, Any]"], Hashable]


class WorkState(Enum):
    """The states of a Work; a RUNNING work that is released is QUEUED again."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class PartitionWork:
    """The records taken from one partition since its assignment. Only WorkQueue and the methods of
    this class change the fields.
    """

    __slots__ = (
        "committed",
        "idle",
        "is_closed",
        "is_current",
        "is_lost",
        "lanes",
        "nbytes",
        "opened",
        "running",
        "tp",
        "tracker",
        "truncations",
        "unfinished",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.tracker = OffsetTracker()
        # The unfinished works of each lane (see WorkQueue): the first work is ready or running, the
        # others wait for it.
        self.lanes: dict[Hashable, Work | deque[Work]] = {}
        self.unfinished = 0
        self.nbytes = 0
        self.running = 0
        self.opened = 0  # number of running works whose `async with` block or handler has begun
        # The first position is committed even if no record is finished. Otherwise, without a
        # committed offset, `auto_offset_reset="latest"` would skip the unfinished records when the
        # next owner or the restarted process begins.
        self.committed = _UNKNOWN
        self.truncations: list[int] = []  # offsets at which the log was truncated
        self.is_closed = False  # no more works are started
        self.is_current = True  # False after `drop`
        self.is_lost = False  # owned by another member, and about to be dropped
        self.idle: asyncio.Event | None = None  # set when no work is running

    @property
    def is_ours(self) -> bool:
        """Whether the partition is still assigned: neither dropped nor lost."""
        return self.is_current and not self.is_lost

    def count_opened(self) -> None:
        """Count a running work whose block was entered, or whose handler is called."""
        self.opened += 1

    def next_idle(self) -> asyncio.Event:
        """Return an event that is set when the last running work ends."""
        if self.idle is None or self.idle.is_set():
            self.idle = asyncio.Event()
        return self.idle


class Work(Generic[KT, VT]):
    """One record to process, from `async for work in parallel`.

    Process the record in `async with work:`; the end of the block finishes the record. An exception
    in the block is handled like an exception of a handler: either the record is sent to a retry or
    dead-letter topic and the exception is suppressed, or the exception ends the processing. If the
    block is cancelled, `async for` returns the record again. A work whose block is never entered
    stays unfinished, so no later offset is committed until its partition is revoked.
    """

    __slots__ = (
        "_dispatcher",
        "_lane",
        "_partition",
        "_size",
        "_state",
        "_truncations_before",
        "failure",
        "is_open",
        "record",
    )

    #: The record to process, as the consumer returned it.
    record: ConsumerRecord[KT, VT]

    def __init__(
        self,
        record: ConsumerRecord[KT, VT],
        partition: PartitionWork,
        lane: Hashable,
        size: int,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.record = record
        self._partition = partition
        self._truncations_before = len(partition.truncations)
        self._lane = lane
        self._size = size
        self._state = WorkState.QUEUED
        self._dispatcher = dispatcher
        self.failure: Exception | None = None  # the error of the key function
        # Whether the work's `async with` block was entered, or its handler called, while the
        # partition was assigned.
        self.is_open = False

    @property
    def is_current(self) -> bool:
        """Whether finishing the record has an effect. False after the partition was revoked or
        lost, or the record was truncated from the log.
        """
        return self._partition.is_ours and not self._is_truncated

    @property
    def _is_truncated(self) -> bool:
        return any(
            cut <= self.record.offset
            for cut in self._partition.truncations[self._truncations_before :]
        )

    @property
    def partition(self) -> PartitionWork:
        """The PartitionWork of the record's partition."""
        return self._partition

    @property
    def state(self) -> WorkState:
        """Whether the record is queued, running or finished."""
        return self._state

    def __repr__(self) -> str:
        tp = self._partition.tp
        return f"<Work {tp.topic}-{tp.partition}@{self.record.offset} {self._state.value}>"

    def open(self) -> None:
        """Mark the block as entered, or the handler as called."""
        # If the partition was dropped before, the work does not count as running and does not delay
        # later records of the same key or partition.
        if self._partition.is_current and not self.is_open:
            self.is_open = True
            self._partition.count_opened()

    async def __aenter__(self) -> ConsumerRecord[KT, VT]:
        if self._state is not WorkState.RUNNING:
            raise IllegalStateError(f"{self!r} cannot be entered")
        self.open()
        return self.record

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> bool:
        assert self._dispatcher is not None
        return await self._dispatcher.end_block(self, exc)


class WorkQueue:
    """The unfinished records, and the order in which they may be processed.

    A lane is a sequence of records that must be processed in order: the records of a key, or of a
    partition. The first record of a lane is ready or running, the rest wait. Records with the lane
    None have no order.

    A record that is still running when its partition is revoked keeps its lane. If the partition is
    assigned again, new records of the lane wait for the end of the running record: two records of a
    key must not run at once.

    Owns: its fields and those of its PartitionWorks. No I/O, no waiting.
    """

    def __init__(self, lane_of: LaneOf) -> None:
        #: Passed to new works; set by the dispatcher itself.
        self.dispatcher: Dispatcher | None = None
        self.records = 0
        self.nbytes = 0
        self.running = 0
        self.is_closed = False
        #: Whether records were taken from the consumer and are not queued yet. Other tasks see True
        #: only if queueing the records has failed.
        self.in_transit = False
        self.delayed = DelayedRecords()
        self._lane_of = lane_of
        self._ready: deque[Work] = deque()
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._running_after_revoke: dict[TopicPartition, dict[Hashable, Work]] = {}

    # -- state ------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterable[PartitionWork]:
        """The assigned partitions, except dead-letter topics, which are not read."""
        return self._partitions.values()

    @property
    def ready(self) -> int:
        """Number of ready records, 0 after `close_all()`. Includes the records of partitions that
        are being revoked, which are not started any more (`PartitionWork.is_closed`)."""
        return 0 if self.is_closed else len(self._ready)

    # -- adding -----------------------------------------------------------------------------------

    def begin(self, tps: Iterable[TopicPartition]) -> None:
        """Add assigned partitions. Their positions are committed even before a record is read."""
        for tp in tps:
            if tp not in self._partitions:
                self._begin(tp)

    def begin_transit(self) -> None:
        """Mark that records were taken from the consumer and are not queued yet."""
        self.in_transit = True

    def finish_transit(self) -> None:
        """Mark that all taken records are queued or delayed."""
        self.in_transit = False

    def add(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], max_bytes: float
    ) -> PartitionWork:
        """Queue records of one partition in order, until `max_bytes` are unfinished.

        Queues at least one record. The tracker's position is then after the last queued record. If
        the first record is below this position, the log was truncated.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._begin(tp)
        elif records[0].offset < partition.tracker.position:
            self._truncate(partition, records[0].offset)
        count = 0
        total = 0
        free = max_bytes - self.nbytes
        for record in records:
            total += self._enqueue(record, partition)
            count += 1
            if total >= free:
                break
        partition.unfinished += count
        partition.nbytes += total
        self.records += count
        self.nbytes += total
        return partition

    def _begin(self, tp: TopicPartition) -> PartitionWork:
        partition = self._partitions[tp] = PartitionWork(tp)
        partition.lanes.update(self._running_after_revoke.get(tp, {}))
        return partition

    def _truncate(self, partition: PartitionWork, offset: int) -> None:
        """Adapt the queue to a truncation: the log has other records from `offset` on.

        Removes the queued records from `offset` on, and keeps earlier and running records. A
        committed offset beyond `offset` becomes unknown.
        """
        partition.tracker.truncate(offset)
        partition.truncations.append(offset)
        if partition.committed > offset:
            partition.committed = _UNKNOWN
        gone = {work for work in self._ready if work._partition is partition and work._is_truncated}
        for lane, queued in list(partition.lanes.items()):
            works = [queued] if isinstance(queued, Work) else list(queued)
            # Keep the running work, truncated or not, so that new records of the same key or
            # partition wait until this work ends.
            kept = [w for w in works if w._state is WorkState.RUNNING or not w._is_truncated]
            gone.update(works[len(kept) :])
            if not kept:
                del partition.lanes[lane]
            else:
                partition.lanes[lane] = kept[0] if len(kept) == 1 else deque(kept)
        self._ready = deque(work for work in self._ready if work not in gone)
        for work in gone:
            self._discount(work)

    def _discount(self, work: Work) -> None:
        """Subtract a finished or removed work from the counts."""
        partition = work._partition
        partition.unfinished -= 1
        partition.nbytes -= work._size
        self.records -= 1
        self.nbytes -= work._size

    def _enqueue(self, record: ConsumerRecord[Any, Any], partition: PartitionWork) -> int:
        """Put a record at the end of its lane (the records that are processed in order, see
        WorkQueue). Return the record's size. A record that is alone in its lane, or has no lane, is
        ready at once.
        """
        lanes = partition.lanes
        failure: Exception | None = None
        try:
            lane = self._lane_of(record)
            ahead = None if lane is None else lanes.get(lane)
        except Exception as error:
            # The application's key function failed, or its result is not hashable.
            lane = ahead = None
            failure = error
        size = size_of(record)
        work = Work(record, partition, lane, size, self.dispatcher)
        if ahead is None:
            if lane is not None:
                lanes[lane] = work
            work.failure = failure
            self._ready.append(work)
        elif isinstance(ahead, Work):
            lanes[lane] = deque((ahead, work))
        else:
            ahead.append(work)
        partition.tracker.take(record.offset)
        return size

    # -- processing ------------------------------------------------------------------------------

    def start_next(self) -> Work | None:
        """Start the record that has been ready for longest, and return it. Drop ready records of
        closed partitions. Return None without a ready record, and after `close_all()`.
        """
        if self.is_closed:
            return None
        ready = self._ready
        while ready:
            work = ready.popleft()
            partition = work._partition
            if not partition.is_closed:
                work._state = WorkState.RUNNING
                partition.running += 1
                self.running += 1
                return work
        return None

    def finish(self, work: Work) -> None:
        """Finish a running record, and make the next record of its lane ready (a lane has the
        records of a key or of a partition, in order). Raises IllegalStateError if the record is not
        running.
        """
        partition = work._partition
        self._end_run(work)
        work._state = WorkState.FINISHED
        # After a revocation only the lane matters: if the partition was assigned again, the next
        # record of the lane may be waiting for the end of this record.
        if not partition.is_current:
            self._free_lane_after_revoke(work)
            return
        # If this record was truncated, another record may have its offset now.
        if not (partition.truncations and work._is_truncated):
            partition.tracker.finish(work.record.offset)
        self._end_work(work)

    def _end_work(self, work: Work) -> None:
        self._discount(work)
        if work._lane is not None:
            self._advance(work._partition, work._lane)

    def _advance(self, partition: PartitionWork, lane: Hashable) -> None:
        """Remove the first record of a lane (records that are processed in order, see WorkQueue),
        and make the next record of the lane ready.
        """
        queued = partition.lanes[lane]
        if isinstance(queued, Work) or len(queued) == 1:
            del partition.lanes[lane]
        else:
            queued.popleft()
            self._ready.append(queued[0])

    def release(self, work: Work) -> None:
        """Put a running record back at the front of the queue.

        The record is removed instead if its partition was dropped or the record was truncated. If
        the partition is closed, the record stays unfinished and is not started again.
        """
        partition = work._partition
        self._end_run(work)
        work._state = WorkState.QUEUED
        work.is_open = False
        if not partition.is_current:
            self._free_lane_after_revoke(work)
        elif work._is_truncated:
            self._end_work(work)
        # Put the record at the front: it was started before the ready records, and the later
        # records of its key or partition wait for it.
        elif not partition.is_closed:
            self._ready.appendleft(work)

    def _free_lane_after_revoke(self, work: Work) -> None:
        """Called after the end of a work that was still running when its partition was dropped. If
        the partition was assigned again, make the next record of the work's lane ready (the records
        that are processed in order, see WorkQueue).
        """
        tp = work._partition.tp
        lanes = self._running_after_revoke.get(tp, {})
        if lanes.get(work._lane) is not work:
            return
        del lanes[work._lane]
        if not lanes:
            del self._running_after_revoke[tp]
        partition = self._partitions.get(tp)
        if partition is not None:
            self._advance(partition, work._lane)

    def _end_run(self, work: Work) -> None:
        if work._state is not WorkState.RUNNING:
            raise IllegalStateError(f"{work!r} is not running")
        partition = work._partition
        if work.is_open:
            partition.opened -= 1
        elif not partition.is_current:
            return
        self._discount_runs(partition, 1)

    def _discount_runs(self, partition: PartitionWork, count: int) -> None:
        partition.running -= count
        self.running -= count
        if partition.idle is not None and not partition.running:
            partition.idle.set()

    def store_commit(self, partition: PartitionWork, offset: int, truncations: int) -> None:
        """Store the offset that was committed for a partition.

        `truncations`: number of truncations of the log before the commit. If there are more now,
        the committed offset is unknown, so that the next commit is sent in any case.
        """
        # If the log was truncated during the commit, the new log may end before `offset`.
        partition.committed = offset if len(partition.truncations) == truncations else _UNKNOWN

    # -- revocation ------------------------------------------------------------------------------

    def close_all(self) -> None:
        """Make `start_next()` return no more records."""
        self.is_closed = True

    def close(self, tps: Iterable[TopicPartition]) -> list[PartitionWork]:
        """Make `start_next()` return no more records of these partitions; running records may
        finish. Return the existing PartitionWorks of these partitions.
        """
        tps = list(tps)
        self.delayed.close(tps)
        found = [self._partitions[tp] for tp in tps if tp in self._partitions]
        for partition in found:
            partition.is_closed = True
        return found

    def lose(self, tps: Iterable[TopicPartition]) -> None:
        """Mark partitions as lost. Errors of their records do not end the processing, because other
        members process the records.
        """
        for tp in tps:
            if tp in self._partitions:
                self._partitions[tp].is_lost = True

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Remove these partitions and their queued records.

        If a partition is assigned again while a handler still processes one of its records, the
        next record of the same lane (see WorkQueue) waits for the end of that handler.
        """
        tps = list(tps)
        self.delayed.drop(tps)
        self._forget(tps)

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        dropped = [self._partitions.pop(tp) for tp in tps if tp in self._partitions]
        for partition in dropped:
            partition.is_closed = True
            partition.is_current = False
            # Do not count works that `async for` has returned, but whose `async with` block was not
            # entered: the application may never enter the block.
            self._discount_runs(partition, partition.running - partition.opened)
            self._keep_running_lanes(partition)
            partition.lanes.clear()
            self.records -= partition.unfinished
            self.nbytes -= partition.nbytes
        if dropped:
            self._ready = deque(work for work in self._ready if work._partition.is_current)

    def _keep_running_lanes(self, partition: PartitionWork) -> None:
        """Store the lanes (see WorkQueue) of records that are still being processed, until the
        processing of these records ends.
        """
        for lane, queued in partition.lanes.items():
            work = queued if isinstance(queued, Work) else queued[0]
            # If the `async with` block of a work was not entered, later records need not wait for
            # the work.
            if work.is_open and work._state is WorkState.RUNNING:
                self._running_after_revoke.setdefault(partition.tp, {})[lane] = work
