"""Virtual time: what a simulated loop waits for takes none of the real."""

from __future__ import annotations

import heapq
import random
import selectors
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.testing.simulation.errors import (
    NotSimulatedError,
    StuckError,
    VirtualTimeError,
)

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import SimulatedLoop

__all__ = ["VirtualSelector"]

# One turn of the loop takes so long, in virtual seconds: a task that only gives others a turn until
# some time has come gets there.
_TURN = 10e-6
# So many virtual seconds are looked at together; in so many turns without a jump of time something
# may spin.
_WINDOW = 0.5
_MANY_TURNS = 25_000
# How many turns are then looked at, one by one.
_SAMPLE = 2_000
_NEVER = float("inf")


class VirtualSelector(selectors.BaseSelector):
    """Tells a loop which events are due; waiting for them takes no time.

    Owns: the virtual time, and the events from outside that are still to come.
    """

    def __init__(self, random_source: random.Random) -> None:
        self.now = 0.0
        self.limit = _NEVER
        self.turns = 0
        self.stall_probability = 0.0
        self.longest_stall = 0.0
        self.loop: SimulatedLoop
        self._random = random_source.random
        self._events: list[tuple[float, float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._window_end = _WINDOW
        self._turns_in_window = 0
        self._is_watched = False

    # -- what a loop asks of a selector

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take the loop's own pipe, by which threads would wake it, and nothing else."""
        if self._keys:
            raise NotSimulatedError("files and sockets of the system")
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[Any]:
        """Let time go by until something is due, and put it behind the callbacks that are ready,
        where asyncio puts what sockets have. The timers come after it.
        """
        self.turns += 1
        events = self._events
        if timeout is None:
            self._jump(events[0][0] if events else _NEVER)
        elif timeout > 0:
            until = self.now + timeout
            self._jump(events[0][0] if events and events[0][0] < until else until)
        else:
            self.now += _TURN
            self._turns_in_window += 1
        now = self.now
        if now >= self._window_end:
            self._look_at_window()
        if now > self.limit:
            raise VirtualTimeError(f"not at its end after {self.limit:.1f} s of virtual time")
        if events and events[0][0] <= now:
            call_soon = self.loop.call_soon
            while events and events[0][0] <= now:
                _, _, _, callback, args = heapq.heappop(events)
                call_soon(callback, *args)
        return []

    # -- time

    def at(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call `callback` at a moment of virtual time; the order of one moment is chance."""
        self._count += 1
        heapq.heappush(self._events, (when, self._random(), self._count, callback, args))

    def _jump(self, until: float) -> None:
        if until == _NEVER:
            raise StuckError("nothing is left that could happen, and the program still waits")
        if self.stall_probability and self._random() < self.stall_probability:
            until += self._random() * self.longest_stall
        self.now = max(self.now + _TURN, until)

    def _look_at_window(self) -> None:
        """Now and then: has something kept the loop from waiting for most of it?"""
        turns, self._turns_in_window = self._turns_in_window, 0
        self._window_end = self.now + _WINDOW
        if self._is_watched:
            self._is_watched = False
            self.loop.blame(turns)
        elif turns > _MANY_TURNS:
            self._is_watched = True
            self._window_end = self.now + _SAMPLE * _TURN
            self.loop.watch()
