"""When a connection may send: not with a full write buffer, a throttle, or while it
re-authenticates."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import copy_context

from aiokafka.errors import RequestTimedOutError

__all__ = ["DeadlineTimer", "SendGate"]

# A longer throttle is not believed (the field allows up to 24 days).
_LONGEST_THROTTLE = 60.0


class SendGate:
    """Owns the three reasons not to send, and the futures of the requests that wait for their
    end."""

    __slots__ = (
        "_is_paused",
        "_loop",
        "_paused_at",
        "_waiters",
        "is_held",
        "throttled_until",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_paused = False
        self._paused_at = 0.0
        self.is_held = False
        """Whether the connection re-authenticates: a broker serves nothing else then."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        self.throttled_until = 0.0
        """Loop time until which the broker reads nothing from this connection (KIP-219)."""

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent now."""
        return not (self._is_paused or self.is_held) and (
            not self.throttled_until or self._loop.time() >= self.throttled_until
        )

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits to be sent."""
        return bool(self._waiters)

    @property
    def paused_since(self) -> float:
        """Loop time since when the write buffer is full, though the broker does read; infinity if
        it is not."""
        return max(self._paused_at, self.throttled_until) if self._is_paused else math.inf

    def pause(self) -> float:
        """Close the gate: the write buffer is full. Return the loop time since when it counts."""
        self._is_paused = True
        self._paused_at = self._loop.time()
        return self.paused_since

    def resume(self) -> None:
        """Open the gate: the write buffer has room again."""
        self._is_paused = False
        self._wake()

    def hold(self) -> None:
        """Close the gate: an authentication begins on the open connection."""
        self.is_held = True

    def release(self) -> None:
        """Open the gate: the authentication is over, or failed."""
        self.is_held = False
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def throttle(self, seconds: float) -> float:
        """Close the gate for the `seconds` that the broker asked for; return how many are
        granted."""
        granted = min(seconds, _LONGEST_THROTTLE)
        self.throttled_until = max(self.throttled_until, self._loop.time() + granted)
        return granted

    async def wait(self, limit: float) -> None:
        """Return once a request may be sent.

        Raises RequestTimedOutError after `limit` seconds, to which the time of all throttles is
        added: also of those that begin meanwhile, with responses to requests in flight.
        """
        now = self._loop.time()
        # There are three reasons, and one may begin when another ends.
        while not self.is_open:
            is_shut = self._is_paused or self.is_held
            throttled = max(0.0, self.throttled_until - now)
            if is_shut and limit + throttled <= 0:
                raise RequestTimedOutError(f"request not sent in time: {self._cause}")
            await self._wait_once(throttled + (limit if is_shut else 0.0))
            before, now = now, self._loop.time()
            limit -= max(0.0, now - max(before, self.throttled_until))

    @property
    def _cause(self) -> str:
        return "the connection re-authenticates" if self.is_held else "its write buffer is full"

    def close(self) -> None:
        """Wake the requests that wait: nothing will ever be sent again."""
        self.throttled_until = 0.0
        self._is_paused = False
        self.release()

    async def _wait_once(self, limit: float) -> None:
        """Wait for a reason to end, for so many seconds at most."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=limit)
        finally:
            # Most waits end by timeout: without this each would leave its future here.
            self._waiters.pop(waiter, None)
            waiter.cancel()


class DeadlineTimer:
    """One timer for the earliest of many deadlines. Arming it for a later one costs a comparison.

    `on_due` runs in the context variables of the constructor's call: those of the calls that arm it
    would pass from one deadline to the next.
    """

    __slots__ = ("_context", "_handle", "_loop", "_on_due", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._context = copy_context()
        self._handle: asyncio.TimerHandle | None = None
        self.at = math.inf
        """Loop time of the next call of `on_due`; infinity when none is due."""

    def arm(self, deadline: float) -> None:
        """Call `on_due` at `deadline`, or earlier if that is already planned."""
        if deadline >= self.at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.at = deadline
        self._handle = self._loop.call_at(deadline, self._fire, context=self._context)

    def cancel(self) -> None:
        """Cancel the planned call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.at = math.inf

    def _fire(self) -> None:
        self._handle = None
        self.at = math.inf
        self._on_due()
