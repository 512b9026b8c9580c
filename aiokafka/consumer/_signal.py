"""Wait for "something changed" without polling and without lost wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from aiokafka.structs import TopicPartition

__all__ = ["Arrivals", "Signal"]

# A waiter for more partitions than this hears of all.
_MOST_KEYS = 8


class Signal:
    """Wakes every task that waits at the moment of `notify()`.

    There is nothing to latch: a waiter looks at the state and calls `wait()` without an await in
    between, so no change can slip through on a single-threaded loop.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # In the order in which they came, not that of a set: runs can be repeated.
        self._waiters: dict[asyncio.Future[bool], None] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all waiters."""
        # Woken waiters leave the dict themselves, when their task runs: it cannot change here.
        for waiter in self._waiters:
            _finish(waiter, True)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait until notified. True then, False at `deadline` (loop time; None = wait without
        limit)."""
        waiter, timer = _make_waiter(deadline)
        self._waiters[waiter] = None
        try:
            return await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _finish(waiter: asyncio.Future[bool], notified: bool) -> None:
    if not waiter.done():
        waiter.set_result(notified)


class Arrivals(Signal):
    """A signal whose waiters may be interested in some partitions only.

    With a reader for each of many partitions, what comes for one must not wake all.
    """

    __slots__ = ("_by_partition", "_wanted")

    def __init__(self) -> None:
        super().__init__()
        self._by_partition: dict[TopicPartition, dict[asyncio.Future[bool], None]] = {}
        self._wanted: dict[asyncio.Future[bool], Collection[TopicPartition]] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters or self._wanted)

    @property
    def waiters(self) -> Collection[asyncio.Future[bool]]:
        return {*self._waiters, *self._wanted}

    def notify(self) -> None:
        """Wake all waiters."""
        super().notify()
        for waiter in self._wanted:
            _finish(waiter, True)

    def notify_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the waiters for one of these, or for any."""
        super().notify()
        if self._by_partition:
            for tp in partitions:
                for waiter in self._by_partition.get(tp, ()):
                    _finish(waiter, True)

    def unserved(self) -> Collection[TopicPartition] | None:
        """Return the partitions of a waiter that was not woken; None if all were, or wait for any
        partition."""
        for waiter, wanted in self._wanted.items():
            if not waiter.done():
                return wanted
        return None

    async def wait_for(
        self, wanted: Collection[TopicPartition] | None, deadline: float | None
    ) -> bool:
        """Wait as `wait()` does, for news of these partitions (None = of any)."""
        # To enter very many keys for each wait costs more than to wake up in vain now and then.
        if wanted is None or len(wanted) > _MOST_KEYS:
            return await self.wait(deadline)
        waiter, timer = _make_waiter(deadline)
        self._wanted[waiter] = wanted
        for tp in wanted:
            self._by_partition.setdefault(tp, {})[waiter] = None
        try:
            return await waiter
        finally:
            del self._wanted[waiter]
            for tp in wanted:
                waiters = self._by_partition[tp]
                waiters.pop(waiter, None)
                if not waiters:
                    del self._by_partition[tp]
            if timer is not None:
                timer.cancel()


def _make_waiter(
    deadline: float | None,
) -> tuple[asyncio.Future[bool], asyncio.TimerHandle | None]:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    timer = None if deadline is None else loop.call_at(deadline, _finish, waiter, False)
    return waiter, timer
