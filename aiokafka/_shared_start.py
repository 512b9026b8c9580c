"""Let calls of one `start()` that are made at the same time do its work once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka.errors import renewed

__all__ = ["SharedStart"]


class SharedStart:
    """Runs the work of a `start()` for all calls that wait for it at the same time.

    Programs that start a shared client with its first use make such calls. One of them works, and
    the others wait:

    1. It succeeds. The others find the work done, one after the other.
    2. It fails. The others fail with copies of its error. A later call may try again.
    3. It is cancelled. The next one works in its place, and what was begun stays for it.
    4. The last one is cancelled, at work or while it waits for its turn: what was begun is undone.

    Owns: whose turn it is, how many calls there are, and the failure that they share.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._calls = 0
        self._failures = 0
        self._failure: Exception | None = None
        self._is_half_done = False

    async def run(
        self, work: Callable[[], Awaitable[None]], undo: Callable[[], Awaitable[None]]
    ) -> None:
        """Return when `work()` has been done. It does nothing if it was done before; what a
        cancelled one has begun it goes on with. `undo()` ends what was begun.

        Raises what `work()` raises.
        """
        failures = self._failures
        self._calls += 1
        try:
            async with self._turn:
                if self._failure is not None and self._failures != failures:
                    raise renewed(self._failure) from self._failure
                await self._work(work, undo)
        except asyncio.CancelledError:
            if self._is_half_done and self._calls == 1:
                self._is_half_done = False
                # A call that comes meanwhile works on what is not being undone any more.
                async with self._turn:
                    await undo()
            raise
        finally:
            self._calls -= 1
            if not self._calls:
                # Its traceback refers to whatever the work refers to.
                self._failure = None

    async def _work(
        self, work: Callable[[], Awaitable[None]], undo: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await work()
        except BaseException as error:
            self._is_half_done = isinstance(error, asyncio.CancelledError) and self._calls > 1
            if not self._is_half_done:
                if isinstance(error, Exception):
                    self._failures += 1
                    self._failure = error
                await undo()
            raise
        self._is_half_done = False
