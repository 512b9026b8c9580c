"""Wait for "something changed" without polling and without lost wake-ups."""

from __future__ import annotations

import asyncio

__all__ = ["Signal"]


class Signal:
    """Wakes every task that waits at the moment of `notify()`.

    There is nothing to latch: a waiter looks at the state and calls `wait()` without an await in
    between, so no change can slip through on a single-threaded loop.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[bool]] = set()

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all waiters."""
        for waiter in self._waiters:
            _finish(waiter, True)

    async def wait(self, deadline: float | None = None) -> bool:
        """True once notified, False at `deadline` (loop time; None = wait without limit)."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, _finish, waiter, False)
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()


def _finish(waiter: asyncio.Future[bool], notified: bool) -> None:
    if not waiter.done():
        waiter.set_result(notified)
