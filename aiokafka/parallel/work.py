"""What waits and what is being worked on: one record of a lane at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError
from aiokafka.parallel.tracker import OffsetTracker

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["PartitionWork", "Work", "WorkQueue", "WorkState"]

LaneOf = Callable[["ConsumerRecord[Any, Any]"], Hashable]


class WorkState(Enum):
    """Life of a record here."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class PartitionWork:
    """What was taken from one partition since it was assigned. Changed by the WorkQueue only."""

    __slots__ = (
        "committed",
        "idle",
        "is_closed",
        "is_current",
        "lanes",
        "nbytes",
        "running",
        "tp",
        "tracker",
        "unfinished",
    )

    def __init__(self, tp: TopicPartition, first: int) -> None:
        self.tp = tp
        self.tracker = OffsetTracker()
        self.lanes: dict[Hashable, deque[Work] | None] = {}
        self.unfinished = 0
        self.nbytes = 0
        self.running = 0
        self.committed = first
        self.is_closed = False  # nothing more is started
        self.is_current = True  # False: it is another's now, or was taken anew
        self.idle: asyncio.Event | None = None  # somebody waits until nothing is running


class Work:
    """One record to be processed, from `async for work in parallel`.

    `async with work:` around the processing finishes it. If the block raises an exception, that
    goes the way a handler's goes: to the retry topics, and is then not raised, or it ends the
    processing. Cancelled, or left in any other way, the record is handed out again. A work that is
    never entered stays unfinished, and nothing after it is committed.
    """

    __slots__ = ("_end", "_lane", "_partition", "_size", "_state", "record")

    #: The record.
    record: ConsumerRecord[Any, Any]

    def __init__(
        self,
        record: ConsumerRecord[Any, Any],
        partition: PartitionWork,
        lane: Hashable,
        size: int,
        end: Callable[[Work, BaseException | None], Any] | None = None,
    ) -> None:
        self.record = record
        self._partition = partition
        self._lane = lane
        self._size = size
        self._state = WorkState.QUEUED
        self._end = end

    @property
    def is_current(self) -> bool:
        """False once the partition is another member's: finishing has no effect any more."""
        return self._partition.is_current

    @property
    def partition(self) -> PartitionWork:
        return self._partition

    @property
    def state(self) -> WorkState:
        return self._state

    def __repr__(self) -> str:
        tp = self._partition.tp
        return f"<Work {tp.topic}-{tp.partition}@{self.record.offset} {self._state.value}>"

    async def __aenter__(self) -> ConsumerRecord[Any, Any]:
        if self._state is not WorkState.RUNNING:
            raise IllegalStateError(f"{self!r} cannot be entered")
        return self.record

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> bool:
        assert self._end is not None
        return bool(await self._end(self, exc))


class WorkQueue:
    """Records taken and not finished yet.

    A lane is what must stay in order: the records of a key, or of a partition. Of each lane one
    record is ready or running, the others wait behind it. A lane of None is no lane.

    Owns: everything here and in its PartitionWorks. No I/O, no waiting.
    """

    def __init__(
        self,
        lane_of: LaneOf,
        end: Callable[[Work, BaseException | None], Any] | None = None,
    ) -> None:
        self.records = 0
        self.nbytes = 0
        self.running = 0
        self.is_closed = False
        self._lane_of = lane_of
        self._end = end
        self._ready: deque[Work] = deque()
        self._partitions: dict[TopicPartition, PartitionWork] = {}

    # -- asking ------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterable[PartitionWork]:
        """Those that records were taken of and that are still ours."""
        return self._partitions.values()

    def get(self, tp: TopicPartition) -> PartitionWork | None:
        return self._partitions.get(tp)

    @property
    def ready(self) -> int:
        """How many records could be started at once, or a few less."""
        return 0 if self.is_closed else len(self._ready)

    # -- filling -----------------------------------------------------------------------------------

    def add(self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]]) -> PartitionWork:
        """Queue records of one partition, in their order. Raises what finding the lane raises."""
        partition = self._partitions.get(tp)
        if partition is None or records[0].offset < partition.tracker.position:
            # Gone back, to the start of a log that was cut: as if it was assigned anew.
            self.drop([tp])
            partition = PartitionWork(tp, records[0].offset)
            self._partitions[tp] = partition
        total = 0
        for record in records:
            total += self._enqueue(record, partition)
        partition.unfinished += len(records)
        partition.nbytes += total
        self.records += len(records)
        self.nbytes += total
        return partition

    def _enqueue(self, record: ConsumerRecord[Any, Any], partition: PartitionWork) -> int:
        """Put a record at the end of its lane; its size."""
        lane = self._lane_of(record)
        size = _size_of(record)
        work = Work(record, partition, lane, size, self._end)
        if lane is None:
            self._ready.append(work)
        elif lane not in partition.lanes:
            partition.lanes[lane] = None
            self._ready.append(work)
        else:
            waiting = partition.lanes[lane]
            if waiting is None:
                waiting = partition.lanes[lane] = deque()
            waiting.append(work)
        partition.tracker.take(record.offset)
        return size

    # -- working -----------------------------------------------------------------------------------

    def start_next(self) -> Work | None:
        """The record that is ready for longest, which then is running; None if there is none."""
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
        """A running record is done, and the next one of its lane ready."""
        partition = work._partition
        self._end_run(work)
        work._state = WorkState.FINISHED
        if not partition.is_current:
            return
        partition.tracker.finish(work.record.offset)
        partition.unfinished -= 1
        partition.nbytes -= work._size
        self.records -= 1
        self.nbytes -= work._size
        lane = work._lane
        if lane is not None:
            waiting = partition.lanes[lane]
            if waiting:
                self._ready.append(waiting.popleft())
            else:
                del partition.lanes[lane]

    def release(self, work: Work) -> None:
        """A running record is not done: it is the next to be started, if still ours."""
        self._end_run(work)
        work._state = WorkState.QUEUED
        self._ready.appendleft(work)  # dropped by `start_next()` if its partition is closed

    def _end_run(self, work: Work) -> None:
        if work._state is not WorkState.RUNNING:
            raise IllegalStateError(f"{work!r} is not running")
        partition = work._partition
        partition.running -= 1
        self.running -= 1
        if partition.idle is not None and not partition.running:
            partition.idle.set()

    # -- giving up ---------------------------------------------------------------------------------

    def close(self, tps: Iterable[TopicPartition]) -> list[PartitionWork]:
        """Start nothing more of these partitions; what runs may finish."""
        found = [self._partitions[tp] for tp in tps if tp in self._partitions]
        for partition in found:
            partition.is_closed = True
        return found

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget these partitions; what runs of them finishes without effect."""
        for partition in self.close(tps):
            partition.is_current = False
            partition.lanes.clear()
            self.records -= partition.unfinished
            self.nbytes -= partition.nbytes
            del self._partitions[partition.tp]
        if not self._partitions:
            self._ready.clear()


def _size_of(record: ConsumerRecord[Any, Any]) -> int:
    """Bytes of key, value and headers as they were in the log."""
    size = max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
