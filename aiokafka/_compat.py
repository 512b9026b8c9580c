"""The timeouts of asyncio, also for Python 3.10, and a timeout that asyncio lacks. Also asyncio's
CancelledError, for modules without I/O, which do not import asyncio."""

from __future__ import annotations

import asyncio
import sys
from asyncio import CancelledError as CancelledError
from typing import Any

if sys.version_info >= (3, 11):
    from asyncio import timeout, timeout_at

    class timeout_after_reading(asyncio.Timeout):
        """A `timeout_at` that cancels its block two loop iterations after the iteration in which it
        is due: a response that arrived before `when`, while the loop was blocked, is then read and
        processed first. See `_retry.within`."""

        def __init__(self, when: float) -> None:
            super().__init__(None)
            self._due_at = when
            self._timer: asyncio.Handle | None = None

        async def __aenter__(self) -> asyncio.Timeout:
            entered = await super().__aenter__()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._due_at, self._end_after_this_iteration, loop)
            return entered

        async def __aexit__(self, *exc_info: Any) -> bool | None:
            if self._timer is not None:
                self._timer.cancel()
            return await super().__aexit__(*exc_info)

        def _end_after_this_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
            self._timer = loop.call_soon(self.reschedule, self._due_at)

else:
    from async_timeout import timeout, timeout_at

    timeout_after_reading = timeout_at

__all__ = ["timeout", "timeout_after_reading", "timeout_at"]
