"""The queue between fetches and readers (tasks in `getone()`, `getmany()` or `async for`): fetched
records, errors to raise, and waiting readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka._serialization import SuspendedRecord
from aiokafka._tasks import Signal, finish
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.fetch.buffer import FetchBuffer, FetchedPartition, Wanted
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["RecordQueue"]

# Keep at most this many pending errors, the latest ones: an application may not read for a long
# time.
_MOST_ERRORS = 10

# A reader that waits for more partitions than this number is woken by records of any partition.
_MOST_KEYS = 8


class _Readers(Signal):
    """The waiting readers, each with the partitions that it reads (None = all).

    An application may have one reader for each of many partitions. Then records of one partition
    should not wake all readers.
    """

    __slots__ = ("_by_partition", "_wanted")

    def __init__(self) -> None:
        super().__init__()
        self._by_partition: dict[TopicPartition, dict[asyncio.Future[bool], None]] = {}
        self._wanted: dict[asyncio.Future[bool], Collection[TopicPartition]] = {}

    @property
    def futures(self) -> Collection[asyncio.Future[bool]]:
        return {*self.waiters, *self._wanted}

    def __bool__(self) -> bool:
        return bool(self.waiters or self._wanted)

    def notify(self) -> None:
        super().notify()
        for waiter in self._wanted:
            finish(waiter, True)

    def notify_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the readers of these partitions, and the readers of all partitions."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(True)
        if self._by_partition:
            for tp in partitions:
                for waiter in self._by_partition.get(tp, ()):
                    finish(waiter, True)

    def unserved(self) -> Collection[TopicPartition] | None:
        """Return the partitions of the first reader that was not woken; None if all readers were
        woken. (A reader of all partitions is woken by each notification.)"""
        for waiter, wanted in self._wanted.items():
            if not waiter.done():
                return wanted
        return None

    async def wait_for(
        self, wanted: Collection[TopicPartition] | None, deadline: float | None
    ) -> bool:
        """Wait until a notification of one of these partitions (None = of any), and return True.
        Return False at `deadline` (loop time; None = no limit)."""
        # With many partitions, needless wake-ups cost less than an entry for each partition.
        if wanted is not None and len(wanted) > _MOST_KEYS:
            wanted = None
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, finish, waiter, False)
        if wanted is None:
            self.waiters[waiter] = None
        else:
            self._wanted[waiter] = wanted
            for tp in wanted:
                self._by_partition.setdefault(tp, {})[waiter] = None
        try:
            return await waiter
        finally:
            if wanted is None:
                del self.waiters[waiter]
            else:
                self._forget(waiter)
            if timer is not None:
                timer.cancel()

    def _forget(self, waiter: asyncio.Future[bool]) -> None:
        for tp in self._wanted.pop(waiter):
            waiters = self._by_partition[tp]
            waiters.pop(waiter, None)
            if not waiters:
                del self._by_partition[tp]


class RecordQueue:
    """Returns fetched records to readers, or raises the errors that are due.

    Owns: the FetchBuffer; the errors that the next calls raise; the waiting readers; whether
    records are withheld from readers: during a rebalance, after the end of a membership, or while
    interceptors process records. Does not call the fetchers or the group: fetchers call
    `announce()`, and the group calls `hold()` and `release()`.

    `next` (`FetchBuffer.next`) is the fast path of `getone()`, `take_now` the fast path of
    `getmany()`. Both return None while records are withheld, after a failure of background work,
    and while there is an error to raise.
    """

    def __init__(self) -> None:
        self.buffer = FetchBuffer()
        self.next = self.buffer.next
        self.take_now = self.buffer.take_now
        self.positions = Signal()
        """Notified when a position became known, or its look-up failed."""
        self.polls = Signal()
        """Wakes the tasks of a group that wait for the application: notified if a call has to wait
        for records, a commit has succeeded, or the subscription or the membership changes."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """The latest error that a call of the application raises, and its loop time."""
        self._readers = _Readers()
        self.wait = self._readers.wait_for
        """Wait until records of these partitions (None = all) may have arrived; return False at the
        deadline."""
        self._errors: list[BaseException] = []
        self._yielding = 0  # readers in `yield_turn()`
        self._is_held = False
        self._is_over = False
        self._is_closed = False

    # -- for readers -------------------------------------------------------------------------------

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of these partitions (None = all). Return None if no record is
        buffered, during a rebalance (`hold()`), or while interceptors process records. Raises an
        error that was given to `fail_next_call()`, or the fetch or deserializer error of a
        partition."""
        if self._errors:
            self._raise_error()
        return None if self._is_held or self.buffer.is_intercepting else self.buffer.next_of(wanted)

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to `limit` records (-1 = all) of these partitions (None = all). Return {} if no
        record is buffered, during a rebalance (`hold()`), or while interceptors process records.
        Raises like `next_of()`."""
        if self._errors:
            self._raise_error()
        return (
            {} if self._is_held or self.buffer.is_intercepting else self.buffer.take(wanted, limit)
        )

    def take_more(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Continue `take()` for a caller inside its `intercepting()` block. Return {} during a
        rebalance."""
        return {} if self._is_held else self.buffer.take_more(wanted, limit)

    def take_again(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Take more records for a caller inside its `intercepting()` block, which has waited since
        its last `take()`. Return {} during a rebalance. Raises the error of an unreadable
        record."""
        return {} if self._is_held else self.buffer.take_again(wanted, limit)

    def has_error(self, wanted: Wanted) -> bool:
        """Return whether the next call for these partitions (None = all) raises an error other than
        that of an unreadable record."""
        return bool(self._errors) or self.buffer.has_failure(wanted)

    @property
    def is_over(self) -> bool:
        """Whether the consumer, its membership or a background task has ended (`wake_all()`)."""
        return self._is_over

    def accept(
        self, chunk: FetchedPartition, epoch: int, suspended: SuspendedRecord
    ) -> ConsumerRecord[Any, Any] | None:
        """Return the record whose deserializer has returned (`FetchBuffer.accept()`). Return None
        during a rebalance, too. Raises the error of the deserializer."""
        return None if self._is_held else self.buffer.accept(chunk, epoch, suspended)

    async def yield_turn(self) -> None:
        """Let other tasks run for one iteration of the event loop. The caller counts as a waiting
        reader in this time."""
        self._yielding += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding -= 1

    async def wait_for_release(self, deadline: float | None) -> bool:
        """Wait for the end of `hold()`, and return True. Return False at `deadline` (loop time;
        None = no limit), or if the consumer stops or fails before."""
        while self._is_held and not self._is_over:
            if not await self._readers.wait(deadline):
                break
        return not self._is_held

    @property
    def has_readers(self) -> bool:
        """Whether a reader waits for records, or is in `yield_turn()` before it reads."""
        return bool(self._readers) or self._yielding > 0

    @property
    def waiters(self) -> Collection[asyncio.Future[bool]]:
        """The futures of waiting readers."""
        return self._readers.futures

    def _raise_error(self) -> None:
        error = self._errors.pop(0)
        self._update_fast_path()
        raise error

    # -- for the group -----------------------------------------------------------------------------

    def hold(self) -> None:
        """Return no records until `release()`."""
        self._is_held = True
        self._update_fast_path()

    def release(self) -> None:
        """Return records again, and wake the readers: the end of `hold()`. Also cancel the effect
        of `wake_all()`, unless the consumer is closed."""
        if not self._is_held and self._is_over is self._is_closed:
            return
        self._is_held = False
        self._is_over = self._is_closed
        self._update_fast_path()
        self.wake_readers()

    def fail_next_call(self, error: BaseException) -> None:
        """Make the next `getone()` or `getmany()` raise `error`, whatever partitions it reads. Only
        the last ten such errors are kept."""
        self.note_error(asyncio.get_running_loop().time(), error)
        self._errors.append(error)
        del self._errors[:-_MOST_ERRORS]
        self._update_fast_path()
        self.wake_readers()

    def withdraw_errors(self, errors: Collection[BaseException]) -> None:
        """Drop these pending errors, because their cause has ended. Ignore errors that a call has
        already raised."""
        if self._errors:
            self._errors = [each for each in self._errors if not any(each is e for e in errors)]
            self._update_fast_path()

    # -- for interceptors and deserializers --------------------------------------------------------

    @contextmanager
    def intercepting(self) -> Iterator[None]:
        """Return no records to other readers during the `with` block, while interceptors or a
        deserializer are awaited. If the block fails, the position moves back. Later records, if
        another reader had got them during the block, would then be returned a second time."""
        self.buffer.set_intercepting(True)
        try:
            yield
        finally:
            self.buffer.set_intercepting(False)
            self.wake_readers()

    def _update_fast_path(self) -> None:
        self.buffer.set_fast_path(not (self._is_held or self._is_over or self._errors))

    # -- for fetchers ------------------------------------------------------------------------------

    def announce(self, partitions: Iterable[TopicPartition]) -> Wanted:
        """Wake the readers of partitions with new records. Return the partitions of the first
        reader that was not woken; None if all readers were woken."""
        self._readers.notify_of(partitions)
        return self._readers.unserved()

    def wake_readers_of(self, state: PartitionState) -> None:
        """Make the readers of this partition check for records and errors again."""
        if self._readers:
            self._readers.notify_of((state.tp,))

    def touch(self, state: PartitionState) -> None:
        """Drop the partition's data if a change of the partition has made it outdated. Wake its
        readers, and the tasks that wait for positions if the partition needs no look-up."""
        # Notify only if a task waits, because this runs for each partition of an assignment.
        if self.positions.waiters and not state.needs_offset:
            self.positions.notify()
        self.wake_readers_of(state)
        self.buffer.discard_stale(state)

    def report(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Make the next call for this partition raise the exception that `failure` returns. Do
        nothing for a revoked partition: its new owner gets the error."""
        if state.phase is not Phase.RETIRED:
            self.note_error(asyncio.get_running_loop().time(), failure())
            self.buffer.add_failure(state, failure)
            self._readers.notify_of((state.tp,))
            self.positions.notify()

    def report_all(
        self, states: Iterable[PartitionState], failure: Callable[[], KafkaError]
    ) -> None:
        """Report one failure of many partitions. Only the next call for one of these partitions
        raises it."""
        for state in states:
            self.report(state, failure)

    def note_error(self, at: float, error: BaseException | None) -> None:
        """Store the latest error, and its loop time, for `health()`."""
        self.last_error = (at, error)

    # -- for the end of the consumer or of its membership ------------------------------------------

    def wake_readers(self) -> None:
        """Make every waiting reader check for records and errors again."""
        self._readers.notify()

    def wake_all(self) -> None:
        """Wake all tasks that wait for records or positions, because a background task has failed,
        the membership has failed, or the consumer stops. The tasks then check for the failure."""
        self._is_over = True
        self._update_fast_path()
        self.wake_readers()
        self.positions.notify()

    def close(self) -> None:
        """Drop the buffered records and wake all waiters: the consumer stops."""
        self._is_closed = True
        self.buffer.clear()
        self.wake_all()
