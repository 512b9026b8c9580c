"""The turns of a simulated loop: virtual time, and what is called in which order."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokafka.testing.simulation.errors import StuckError, VirtualTimeError
from aiokafka.testing.simulation.spinning import SpinWatch

__all__ = ["TurningLoop"]

# One turn of the loop takes so long, in virtual seconds: a task that only gives others a turn until
# some time has come gets there.
_TURN = 10e-6
# Timers for the same moment go off in an order that the seed decides, within so many seconds.
_BLUR = 1e-6
# A timer goes off this much early, as in asyncio, for which it is the resolution of the clock.
_EARLY = 1e-9
# So many virtual seconds are looked at together; in so many turns without a jump of time something
# may spin.
_WINDOW = 0.5
_MANY_TURNS = 25_000
# How many turns are then looked at, one by one.
_SAMPLE = 2_000
# Timers that were cancelled stay in the heap while there are fewer, or less than half are.
_MOST_CANCELLED = 50
_NEVER = float("inf")

_Called = Callable[..., object]
_copy_context = contextvars.copy_context


class _Handle(asyncio.Handle):
    """A callback for the next turn. Nothing is kept for debugging, since each callback of a run
    makes one of these.
    """

    __slots__ = ()
    # In the place of the slots that asyncio's own have.
    _source_traceback = None
    _repr = None

    def __init__(
        self,
        callback: _Called,
        args: tuple[Any, ...],
        loop: TurningLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop  # which repr() asks since Python 3.13
        self._cancelled = False
        self._context = _copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class _TimerHandle(asyncio.TimerHandle):
    """A timer; as light."""

    __slots__ = ()
    _source_traceback = None
    _repr = None

    def __init__(
        self,
        when: float,
        callback: _Called,
        args: tuple[Any, ...],
        loop: TurningLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop
        self._cancelled = False
        self._scheduled = True
        self._context = _copy_context() if context is None else context

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._scheduled:
                self._loop.cancelled_timers += 1


class TurningLoop(asyncio.BaseEventLoop):
    """A loop for which waiting takes no time: when nothing is ready, it jumps to the next timer or
    event from outside.

    In a turn come the callbacks that are ready, then the events that are due, then the timers, as
    asyncio has it. Where asyncio promises no order the seed decides.

    Owns: the virtual time, and what is still to come.
    """

    # What asyncio's own class has, and uses in stop() and close().
    _ready: deque[asyncio.Handle]
    _scheduled: list[tuple[float, int, _TimerHandle]]
    _stopping: bool
    _closed: bool

    def __init__(self, random_source: random.Random) -> None:
        super().__init__()
        #: Virtual seconds since the loop was made.
        self.now = 0.0
        #: How many turns it has made.
        self.turns = 0
        #: How many of the timers that it holds were cancelled.
        self.cancelled_timers = 0
        self._chance = random_source.random
        self._events: list[tuple[float, float, int, _Called, tuple[Any, ...]]] = []
        self._count = 0
        self._stall_probability = 0.0
        self._longest_stall = 0.0
        self._limit = _NEVER
        self._window_end = _WINDOW
        self._look_at = _WINDOW
        self._turns_in_window = 0
        self._spin = SpinWatch(self)
        # Every future and every task asks for it: bool() is False, and no call of Python code.
        self.get_debug = bool  # type: ignore[method-assign]

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(enabled)
        self.get_debug = partial(bool, enabled)  # type: ignore[method-assign]

    # -- what is to come

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: _Called, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: _Called,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: _Called,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time, as asyncio does; timers for the same moment go off in the seed's
        order.
        """
        if self._closed:
            raise RuntimeError("Event loop is closed")
        when += self._chance() * _BLUR
        handle = _TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._scheduled, (when, self._count, handle))
        return handle

    def happen_at(self, when: float, callback: _Called, *args: Any) -> None:
        """Call `callback` at a virtual time as an event from outside, such as arriving bytes.
        The order of events for the same moment is the seed's.
        """
        self._count += 1
        heapq.heappush(self._events, (when, self._chance(), self._count, callback, args))

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that are still to go off, the next one first."""
        return [handle for _, _, handle in sorted(self._scheduled) if not handle.cancelled()]

    # -- turns

    def limit(self, seconds: float) -> None:
        """Raise :class:`VirtualTimeError` out of the run so many virtual seconds from now."""
        self._limit = self.now + seconds
        self._look_at = min(self._limit, self._window_end)

    def stall(self, probability: float, longest: float) -> None:
        """Let each wait of the loop last up to `longest` seconds more with this probability, as on
        a machine that is busy; 0 ends it. What was due meanwhile runs in one turn.
        """
        self._stall_probability = probability
        self._longest_stall = longest

    def _run_once(self) -> None:
        """Make turns until :meth:`stop`. asyncio calls it for each single one, which is slower."""
        ready, events, timers = self._ready, self._events, self._scheduled
        while True:
            self.turns += 1
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
                self.cancelled_timers -= 1
            if ready or self._stopping or (timers and timers[0][0] <= self.now):
                self.now += _TURN
                self._turns_in_window += 1
            else:
                self._jump()
            now = self.now
            if now >= self._look_at:
                self._look_around()
            while events and events[0][0] <= now:
                event = heapq.heappop(events)
                self.call_soon(event[3], *event[4])
            until = now + _EARLY
            while timers and timers[0][0] < until:
                timer = heapq.heappop(timers)[2]
                timer._scheduled = False
                if timer._cancelled:
                    self.cancelled_timers -= 1
                else:
                    ready.append(timer)
            self._call(ready)
            if self._stopping:
                return

    def _call(self, ready: deque[Any]) -> None:
        """Call what is ready now, and nothing that becomes ready meanwhile."""
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler(
                        {
                            "message": f"Exception in callback {handle!r}",
                            "exception": error,
                            "handle": handle,
                        }
                    )

    def _jump(self) -> None:
        """Let time go by until the next event or timer."""
        events, timers = self._events, self._scheduled
        if timers:
            until = timers[0][0]
            if events and events[0][0] < until:
                until = events[0][0]
        elif events:
            until = events[0][0]
        else:
            raise StuckError("nothing is left that could happen, and the program still waits")
        if self._stall_probability and self._chance() < self._stall_probability:
            until += self._chance() * self._longest_stall
        least = self.now + _TURN
        self.now = until if until > least else least

    def _look_around(self) -> None:
        """Check whether there is time left, and whether something has kept the loop from waiting
        for most of a window.
        """
        now = self.now
        if now >= self._window_end:
            self._forget_cancelled()
            turns, self._turns_in_window = self._turns_in_window, 0
            self._window_end = now + _WINDOW
            if self._spin.is_on:
                self._spin.end(turns)
            elif turns > _MANY_TURNS:
                self._window_end = now + _SAMPLE * _TURN
                self._spin.begin()
        if now > self._limit:
            raise VirtualTimeError(f"not at its end after {self._limit:.1f} s of virtual time")
        self._look_at = min(self._limit, self._window_end)

    def _forget_cancelled(self) -> None:
        timers = self._scheduled
        if self.cancelled_timers > max(_MOST_CANCELLED, len(timers) // 2):
            timers[:] = [timer for timer in timers if not timer[2]._cancelled]
            heapq.heapify(timers)
            self.cancelled_timers = 0
