"""Records that wait or are being processed, and the offset to commit of each partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from aiokafka._typing import KT, VT
from aiokafka.errors import IllegalStateError
from aiokafka.parallel.retry import WaitingRoom, size_of
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.parallel.dispatcher import Dispatcher

__all__ = ["OffsetTracker", "PartitionWork", "Work", "WorkQueue", "WorkState"]


# -- The offset to commit for a partition while records finish in any order. Pure


_NOTHING = -1


class OffsetTracker:
    """Offsets taken from one partition, and those of them that are finished.

    Offsets grow and may have gaps, where the log has no records to read.
    """

    __slots__ = ("_finished", "_next", "_window")

    def __init__(self) -> None:
        self._window: deque[int] = deque()  # from the lowest unfinished on
        self._finished: set[int] = set()  # those of the window
        self._next = _NOTHING

    @property
    def position(self) -> int:
        """Offset after the last one taken; -1 before the first."""
        return self._next

    @property
    def committable(self) -> int:
        """The lowest unfinished offset, or `position` if there is none."""
        return self._window[0] if self._window else self._next

    @property
    def span(self) -> int:
        """How many were taken from the lowest unfinished one on: what a crash repeats at most."""
        return len(self._window)

    def take(self, offset: int) -> None:
        """Begin with `offset`. Raises ValueError if it or a later one was taken before."""
        if offset < self._next:
            raise ValueError(f"offset {offset} comes after {self._next - 1}")
        self._window.append(offset)
        self._next = offset + 1

    def cut(self, offset: int) -> None:
        """Forget what was taken from `offset` on."""
        window = self._window
        while window and window[-1] >= offset:
            self._finished.discard(window.pop())
        self._next = min(self._next, offset)

    def finish(self, offset: int) -> None:
        """Mark `offset`, taken before, as done. Raises ValueError if it is not open."""
        window, finished = self._window, self._finished
        if not window or not window[0] <= offset < self._next or offset in finished:
            raise ValueError(f"offset {offset} is not open")
        # Kept until all before it are finished: a commit says that everything below it is.
        if offset != window[0]:
            finished.add(offset)
            return
        window.popleft()
        while window and window[0] in finished:
            finished.discard(window.popleft())


_UNKNOWN = -1

LaneOf = Callable[["ConsumerRecord[Any, Any]"], Hashable]


class WorkState(Enum):
    """The states of a record here."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class PartitionWork:
    """What was taken from one partition since it was assigned. Only the WorkQueue changes it."""

    __slots__ = (
        "committed",
        "cuts",
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
        "unfinished",
    )

    def __init__(self, tp: TopicPartition, first: int) -> None:
        self.tp = tp
        self.tracker = OffsetTracker()
        # Of each lane the work that is ready or running, and those behind it.
        self.lanes: dict[Hashable, Work | deque[Work]] = {}
        self.unfinished = 0
        self.nbytes = 0
        self.running = 0
        self.opened = 0  # of those that run, the works that were begun
        self.committed = first
        self.cuts: list[int] = []  # offsets at which the log was cut meanwhile
        self.is_closed = False  # nothing more is started
        self.is_current = True  # False: it is another's now, or was taken again
        self.is_lost = False  # it is another's, and is about to be dropped
        self.idle: asyncio.Event | None = None  # set when nothing is running

    @property
    def is_ours(self) -> bool:
        """Whether what becomes of its works counts."""
        return self.is_current and not self.is_lost

    def note_opened(self) -> None:
        """Count a work that is begun."""
        self.opened += 1

    def next_idle(self) -> asyncio.Event:
        """Return what is set as soon as nothing is running."""
        if self.idle is None or self.idle.is_set():
            self.idle = asyncio.Event()
        return self.idle


class Work(Generic[KT, VT]):
    """One record to be processed, from `async for work in parallel`.

    `async with work:` around the processing finishes it. If the block raises an exception, the
    record is sent to the retry topics, and the exception is not raised, or it ends the processing:
    the same as for a handler. If the block is cancelled, or left in any other way, the record is
    returned again. A work that is never entered stays unfinished, and nothing after it is
    committed, until its partition is given up.
    """

    __slots__ = (
        "_cuts",
        "_dispatcher",
        "_lane",
        "_partition",
        "_size",
        "_state",
        "failure",
        "is_open",
        "record",
    )

    #: The record.
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
        self._cuts = len(partition.cuts)
        self._lane = lane
        self._size = size
        self._state = WorkState.QUEUED
        self._dispatcher = dispatcher
        self.failure: Exception | None = None  # why it has no lane
        # Its block was entered, or its handler called, while the partition was still ours.
        self.is_open = False

    @property
    def is_current(self) -> bool:
        """False once the partition is another member's, or the record was cut from the log:
        finishing has no effect any more."""
        return self._partition.is_ours and not self._is_cut

    @property
    def _is_cut(self) -> bool:
        return any(cut <= self.record.offset for cut in self._partition.cuts[self._cuts :])

    @property
    def partition(self) -> PartitionWork:
        """The partition's work."""
        return self._partition

    @property
    def state(self) -> WorkState:
        """The state of the record."""
        return self._state

    def __repr__(self) -> str:
        tp = self._partition.tp
        return f"<Work {tp.topic}-{tp.partition}@{self.record.offset} {self._state.value}>"

    def open(self) -> None:
        """Note that its block is entered, or its handler called."""
        # Else it was given up before: it does not count any more, and holds no lane.
        if self._partition.is_current and not self.is_open:
            self.is_open = True
            self._partition.note_opened()

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
        return await self._dispatcher.leave(self, exc)


class WorkQueue:
    """Records taken and not finished yet.

    A lane is what must stay in order: the records of a key, or of a partition. Of each lane one
    record is ready or running, the others wait behind it. A lane of None is no lane.

    What still runs when its partition is given up keeps its lane: if the partition comes back,
    records of the lane wait for its end, so that no two of a key run side by side here.

    Owns: everything here and in its PartitionWorks. No I/O, no waiting.
    """

    def __init__(self, lane_of: LaneOf) -> None:
        #: Runs the records; set by the dispatcher itself.
        self.dispatcher: Dispatcher | None = None
        self.records = 0
        self.nbytes = 0
        self.running = 0
        self.is_closed = False
        #: Whether records are taken from the consumer and not here yet, which no other task sees
        #: unless that has failed.
        self.in_transit = False
        self.waiting = WaitingRoom()
        self._lane_of = lane_of
        self._ready: deque[Work] = deque()
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._lingering: dict[TopicPartition, dict[Hashable, Work]] = {}

    # -- asking ------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterable[PartitionWork]:
        """The partitions with records taken that are still ours."""
        return self._partitions.values()

    @property
    def ready(self) -> int:
        """How many records could be started at once, or a few less."""
        return 0 if self.is_closed else len(self._ready)

    # -- filling -----------------------------------------------------------------------------------

    def begin_transit(self) -> None:
        """Note that records were taken from the consumer that are not here yet."""
        self.in_transit = True

    def finish_transit(self) -> None:
        """Note that all records that were taken have arrived."""
        self.in_transit = False

    def add(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], max_bytes: float
    ) -> PartitionWork:
        """Queue records of one partition, in order, until `max_bytes` are unfinished.

        The position of the tracker says how far it came. At least one record is queued.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            partition = self._begin(tp, records[0].offset)
        elif records[0].offset < partition.tracker.position:
            self._cut(partition, records[0].offset)
        count = 0
        total = 0
        room = max_bytes - self.nbytes
        for record in records:
            total += self._enqueue(record, partition)
            count += 1
            if total >= room:
                break
        partition.unfinished += count
        partition.nbytes += total
        self.records += count
        self.nbytes += total
        return partition

    def _begin(self, tp: TopicPartition, first: int) -> PartitionWork:
        partition = self._partitions[tp] = PartitionWork(tp, first)
        partition.lanes.update(self._lingering.get(tp, {}))
        return partition

    def _cut(self, partition: PartitionWork, offset: int) -> None:
        """Handle a log that was cut here, and has other records from here on.

        Records before the cut stay to be done. Those after it are void, and wait no more.
        """
        partition.tracker.cut(offset)
        partition.cuts.append(offset)
        if partition.committed > offset:
            partition.committed = _UNKNOWN
        gone = {work for work in self._ready if work._partition is partition and work._is_cut}
        for lane, queued in list(partition.lanes.items()):
            works = [queued] if isinstance(queued, Work) else list(queued)
            # A running one stays, so that those that come can wait for its end.
            kept = [w for w in works if w._state is WorkState.RUNNING or not w._is_cut]
            gone.update(works[len(kept) :])
            if not kept:
                del partition.lanes[lane]
            else:
                partition.lanes[lane] = kept[0] if len(kept) == 1 else deque(kept)
        self._ready = deque(work for work in self._ready if work not in gone)
        for work in gone:
            self._discount(work)

    def _discount(self, work: Work) -> None:
        """Subtract a work that is done, or need not be done."""
        partition = work._partition
        partition.unfinished -= 1
        partition.nbytes -= work._size
        self.records -= 1
        self.nbytes -= work._size

    def _enqueue(self, record: ConsumerRecord[Any, Any], partition: PartitionWork) -> int:
        """Put a record at the end of its lane; return its size."""
        lanes = partition.lanes
        failure: Exception | None = None
        try:
            lane = self._lane_of(record)
            ahead = None if lane is None else lanes.get(lane)
        except Exception as error:
            # The application's key function, or its result, failed: a failure of this record alone.
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

    # -- working -----------------------------------------------------------------------------------

    def start_next(self) -> Work | None:
        """Start the record that has been ready for longest; return None if there is none."""
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
        """Finish a running record, and make the next one of its lane ready."""
        partition = work._partition
        self._end_run(work)
        work._state = WorkState.FINISHED
        # The position of the next owner counts. Only the lane is still of interest: its next record
        # may be waiting here, if the partition came back.
        if not partition.is_current:
            self._end_lingering(work)
            return
        # A record that was cut from the log has an offset that another one has now.
        if not (partition.cuts and work._is_cut):
            partition.tracker.finish(work.record.offset)
        self._end_work(work)

    def _end_work(self, work: Work) -> None:
        self._discount(work)
        if work._lane is not None:
            self._advance(work._partition, work._lane)

    def _advance(self, partition: PartitionWork, lane: Hashable) -> None:
        """Make the next record of a lane ready: its first is done."""
        queued = partition.lanes[lane]
        if isinstance(queued, Work) or len(queued) == 1:
            del partition.lanes[lane]
        else:
            queued.popleft()
            self._ready.append(queued[0])

    def release(self, work: Work) -> None:
        """Put a running record back: it is the next to be started, if still ours."""
        partition = work._partition
        self._end_run(work)
        work._state = WorkState.QUEUED
        work.is_open = False
        if not partition.is_current:
            self._end_lingering(work)
        elif work._is_cut:
            self._end_work(work)
        # First of all: it was begun before what is ready, and its lane waits for it.
        elif not partition.is_closed:
            self._ready.appendleft(work)

    def _end_lingering(self, work: Work) -> None:
        """Free the lane of a work that outlived its partition."""
        tp = work._partition.tp
        lanes = self._lingering.get(tp, {})
        if lanes.get(work._lane) is not work:
            return
        del lanes[work._lane]
        if not lanes:
            del self._lingering[tp]
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

    def note_commit(self, partition: PartitionWork, offset: int, cuts: int) -> None:
        """Keep up to where a partition is committed; its log had been cut `cuts` times before."""
        # Cut while the commit was on its way, the log may end before that offset.
        partition.committed = offset if len(partition.cuts) == cuts else _UNKNOWN

    # -- giving up ---------------------------------------------------------------------------------

    def close_all(self) -> None:
        """Start nothing more, of any partition."""
        self.is_closed = True

    def close(self, tps: Iterable[TopicPartition]) -> list[PartitionWork]:
        """Start nothing more of these partitions; what runs may finish."""
        tps = list(tps)
        self.waiting.close(tps)
        found = [self._partitions[tp] for tp in tps if tp in self._partitions]
        for partition in found:
            partition.is_closed = True
        return found

    def lose(self, tps: Iterable[TopicPartition]) -> None:
        """Let nothing count that becomes of these partitions: other members have them already."""
        for tp in tps:
            if tp in self._partitions:
                self._partitions[tp].is_lost = True

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget these partitions; what runs of them finishes without effect."""
        tps = list(tps)
        self.waiting.drop(tps)
        self._forget(tps)

    def _forget(self, tps: Iterable[TopicPartition]) -> None:
        dropped = [self._partitions.pop(tp) for tp in tps if tp in self._partitions]
        for partition in dropped:
            partition.is_closed = True
            partition.is_current = False
            # Nothing says that works which were given and not begun ever will be.
            self._discount_runs(partition, partition.running - partition.opened)
            self._linger(partition)
            partition.lanes.clear()
            self.records -= partition.unfinished
            self.nbytes -= partition.nbytes
        if dropped:
            self._ready = deque(work for work in self._ready if work._partition.is_current)

    def _linger(self, partition: PartitionWork) -> None:
        """Remember the lanes of works that are still being processed."""
        for lane, queued in partition.lanes.items():
            work = queued if isinstance(queued, Work) else queued[0]
            # One that was given and not begun holds no lane.
            if work.is_open and work._state is WorkState.RUNNING:
                self._lingering.setdefault(partition.tp, {})[lane] = work
