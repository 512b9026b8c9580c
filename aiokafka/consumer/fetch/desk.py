"""Where readers get records, or learn what there is to raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer._shared import Arrivals, Signal
from aiokafka.consumer.fetch.buffer import FetchBuffer, Wanted
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["ReaderDesk"]

# Errors kept for an application that does not ask.
_MOST_ERRORS = 10


class ReaderDesk:
    """Gives readers what is buffered, unless records are held back or there is an error to raise.

    Owns: the FetchBuffer; the errors that the next call raises; whether records are held back, by
    what, and whether for good; the readers that wait. Knows no broker and no group: fetchers
    announce what they have buffered, the group holds and releases.

    `next` is the short way of `getone()`, that of the buffer. It is closed while records are held
    back and while there is an error to raise.
    """

    def __init__(self) -> None:
        self.buffer = FetchBuffer()
        self.next = self.buffer.next
        self.positions = Signal()
        """Notified when a position became known, or cannot be."""
        self.polls = Signal()
        """Notified when the application asks for records, or has committed some."""
        self.fetched_at: float | None = None
        """When a broker last answered a fetch (loop time)."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """The error that the application was, or will be, told last (loop time, error)."""
        self._arrivals = Arrivals()
        self._errors: list[BaseException] = []
        self._passing = 0
        self._is_held = False
        self._is_intercepted = False
        self._is_showing = False
        self._is_over = False
        self._is_closed = False

    # -- for readers -------------------------------------------------------------------------------

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """Return the next record of these partitions, as the buffer's method; None while records
        are held back. Raises the errors that are due."""
        self._raise_error()
        return None if self._is_held or self._is_showing else self.buffer.next_of(wanted)

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return records of these partitions, as the buffer's method; none while records are held
        back. Raises the errors that are due."""
        self._raise_error()
        return {} if self._is_held or self._is_showing else self.buffer.take(wanted, limit)

    async def wait(self, wanted: Wanted, deadline: float | None) -> bool:
        """Wait until there may be something for a reader of these partitions; False at
        `deadline`."""
        return await self._arrivals.wait_for(wanted, deadline)

    async def pass_turn(self) -> None:
        """Let other tasks run for one turn, as a reader that is about to look for records."""
        self._passing += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._passing -= 1

    async def wait_for_release(self, deadline: float | None) -> bool:
        """Wait while records are held back, as a reader; return whether they are not any more:
        False at `deadline`, and when the consumer stops or fails."""
        while self._is_held and not self._is_over:
            if not await self._arrivals.wait(deadline):
                break
        return not self._is_held

    @property
    def has_readers(self) -> bool:
        """Whether a reader waits for records, or lets other tasks run before it looks."""
        return self._arrivals.has_waiters or self._passing > 0

    @property
    def waiters(self) -> Collection[asyncio.Future[bool]]:
        """The futures of the readers that wait."""
        return self._arrivals.waiters

    def _raise_error(self) -> None:
        if self._errors:
            # Taken out before it is raised: each is raised once, and the short way may be free
            # again.
            error = self._errors.pop(0)
            self._choose_way()
            raise error

    # -- for the group -----------------------------------------------------------------------------

    def hold(self) -> None:
        """Give readers no records until `release()`."""
        self._is_held = True
        self._choose_way()

    def release(self) -> None:
        """Give readers records again."""
        self._is_held = False
        self._is_over = self._is_closed
        self._choose_way()
        self.wake_readers()

    def fail_next_call(self, error: BaseException) -> None:
        """Let the next call of a reader raise this, whatever partitions it asks for."""
        self.note_error(asyncio.get_running_loop().time(), error)
        self._errors.append(error)
        del self._errors[:-_MOST_ERRORS]
        self._choose_way()
        self.wake_readers()

    def withdraw_errors(self, errors: Collection[BaseException]) -> None:
        """Drop those of these errors that no reader has seen yet: their cause is over."""
        if self._errors:
            self._errors = [each for each in self._errors if not any(each is e for e in errors)]
            self._choose_way()

    def intercept(self) -> None:
        """Give `getone()` no short way: records pass through interceptors first."""
        self._is_intercepted = True
        self._choose_way()

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Give no records to other readers while the block shows some to interceptors: if it fails,
        the position goes back, and what had come after it would be returned twice."""
        self._is_showing = True
        try:
            yield
        finally:
            self._is_showing = False
            self.wake_readers()

    def _choose_way(self) -> None:
        self.buffer.open_short_way(not (self._is_held or self._errors or self._is_intercepted))

    # -- for fetchers ------------------------------------------------------------------------------

    def announce(self, partitions: Iterable[TopicPartition]) -> Wanted:
        """Wake the readers of partitions whose records were buffered. Returns the partitions that
        another reader waits for, which gets nothing of it and sleeps on; None if there is none."""
        self._arrivals.notify_of(partitions)
        return self._arrivals.unserved()

    def touch(self, state: PartitionState) -> None:
        """Drop what a change of the partition made void, and have its readers look again."""
        self.buffer.discard_stale(state)
        # This runs for each partition of a response, so nothing is woken in vain.
        if not state.needs_offset and self.positions.has_waiters:
            self.positions.notify()
        if self._arrivals.has_waiters:
            self._arrivals.notify_of((state.tp,))

    def report(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Let the next reader of this partition see what `failure` makes."""
        # The partition may be another member's by now, and so are its troubles.
        if state.phase is not Phase.RETIRED:
            self.note_error(asyncio.get_running_loop().time(), failure())
            self.buffer.add_failure(state, failure)
            self._arrivals.notify_of((state.tp,))
            self.positions.notify()

    def report_all(
        self, states: Iterable[PartitionState], failure: Callable[[], KafkaError]
    ) -> None:
        """Report one failure of many partitions. It is raised once."""
        for state in states:
            self.report(state, failure)

    def note_error(self, at: float, error: BaseException | None) -> None:
        """Remember the latest error for `health()` (loop time, error)."""
        self.last_error = (at, error)

    def note_fetch(self, at: float | None) -> None:
        """Remember when a broker answered a fetch (loop time)."""
        self.fetched_at = at

    # -- for whatever ends or changes it all -------------------------------------------------------

    def wake_readers(self) -> None:
        """Make every waiting reader look again."""
        self._arrivals.notify()

    def wake_all(self) -> None:
        """Make whatever waits for records or positions look again, and see what has failed."""
        self._is_over = True
        self.wake_readers()
        self.positions.notify()

    def close(self) -> None:
        """Drop what is buffered and wake whatever waits: the consumer stops."""
        self._is_closed = True
        self.buffer.clear()
        self.wake_all()
