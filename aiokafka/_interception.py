"""Call the application's interceptors, one after the other, whatever they do."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka._compat import timeout, timeout_at
from aiokafka._guard import Guard
from aiokafka._log import SubjectLog
from aiokafka.errors import KafkaTimeoutError

__all__ = ["Interception"]

T = TypeVar("T")

_LONGEST = 30.0
"""Seconds that one coroutine may take that nothing else waits for."""

_MOST = 1000
"""Coroutines that may wait for their turn."""

_FINISH = 10.0
"""Seconds that a client which stops waits for them."""


class Interception:
    """Calls interceptors in the order of their list; what one raises is logged.

    Owns the coroutines of notifications that wait for their turn: one task runs them, so that no
    record needs a task of its own.
    """

    def __init__(self, interceptors: Sequence[Any], log: SubjectLog) -> None:
        self._interceptors = tuple(interceptors)
        self._guard = Guard(log, "an interceptor")
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Awaitable[Any]] = deque()
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_busy = False
        self._is_closed = False

    async def pass_on(self, method: str, item: T, is_valid: Callable[[Any], bool]) -> T:
        """Return what the interceptors make of `item`, each of what the one before returned."""
        for interceptor in self._interceptors:
            try:
                result = getattr(interceptor, method)(item)
                if inspect.isawaitable(result):
                    result = await result
                if result is not None and not is_valid(result):
                    raise TypeError(f"{method} of {interceptor!r} returned {result!r}")
            except Exception as error:
                self._guard.complain(error)
                continue
            if result is not None:
                item = result
        return item

    def tell(self, method: str, *args: Any) -> None:
        """Notify the interceptors; their coroutines get their turn later."""
        for interceptor in self._interceptors:
            result = self._guard.call(getattr(interceptor, method), *args)
            if inspect.isawaitable(result):
                self._waiting.append(result)
                self._wake.set()
        if self._is_closed:
            self.close()

    async def wait_for_room(self, deadline: float) -> None:
        """Wait until few enough coroutines wait. Raises KafkaTimeoutError at `deadline`."""
        while len(self._waiting) >= _MOST and not self._is_closed:
            self._moved.clear()
            try:
                async with timeout_at(deadline):
                    await self._moved.wait()
            except asyncio.TimeoutError:
                raise KafkaTimeoutError(
                    f"{_MOST} coroutines of interceptors wait for their turn: they take longer "
                    "than the records come"
                ) from None

    async def run(self) -> None:
        """Run the coroutines of notifications in their order, until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            awaitable = self._waiting.popleft()
            self._is_busy = True
            try:
                async with timeout(_LONGEST):
                    await awaitable
            except Exception as error:
                self._guard.complain(error)
            finally:
                self._is_busy = False
                self._moved.set()

    async def finish(self, deadline: float | None) -> None:
        """Wait until all coroutines have run, at the latest until `deadline` (loop time)."""
        # What has ended just now tells of it in the next turn of the loop.
        await asyncio.sleep(0)
        latest = self._loop.time() + _FINISH
        try:
            async with timeout_at(latest if deadline is None else min(latest, deadline)):
                while self._waiting or self._is_busy:
                    self._moved.clear()
                    await self._moved.wait()
        except asyncio.TimeoutError:
            pass

    def close(self) -> None:
        """Drop the coroutines that have not begun, and those to come."""
        self._is_closed = True
        while self._waiting:
            awaitable = self._waiting.popleft()
            if inspect.iscoroutine(awaitable):
                awaitable.close()
        self._moved.set()
