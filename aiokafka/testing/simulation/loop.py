"""An event loop in which nothing happens by chance: time jumps, and a seed decides the rest."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import selectors
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.testing.simulation.network import Network

__all__ = ["BusyLoopError", "SimulatedLoop", "SimulationError", "StuckError", "VirtualTimeError"]

# One turn of the loop takes so long, in virtual seconds: a task that only gives others a turn until
# some time has come gets there.
_TURN = 10e-6
# Timers for the same moment go off in an order that the seed decides, within so many seconds.
_BLUR = 1e-6
# Turns in which time did not jump, within one virtual second, from which on something spins.
_MANY_TURNS = 50_000
_SAMPLE = 2_000
# A thread of the executor takes up to so many seconds.
_THREAD_TIME = 0.002


class SimulationError(Exception):
    """A simulated run cannot go on."""


class StuckError(SimulationError):
    """Nothing is left that could happen: no timer, no bytes under way, and the program waits."""


class VirtualTimeError(SimulationError):
    """The program did not end within its virtual time."""


class BusyLoopError(SimulationError):
    """Callbacks follow each other without any time going by."""


class _Selector(selectors.BaseSelector):
    """Tells a loop which events are due; waiting for them takes no time."""

    def __init__(self, random_source: random.Random) -> None:
        self.now = 0.0
        self.limit = float("inf")
        self.turns = 0
        self.stall_probability = 0.0
        self.longest_stall = 0.0
        self.loop: SimulatedLoop
        self._random = random_source
        self._events: list[tuple[float, float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._window_end = 1.0
        self._idle_turns = 0
        self._is_watched = False

    # -- what a loop asks of a selector

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:
            raise SimulationError("a simulated loop has no files and no sockets of the system")
        # The loop's own pipe, by which threads wake it. There are none.
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[Any]:
        """Let time go by until something is due, and run what is due in the order of its time."""
        self.turns += 1
        events = self._events
        if timeout is None or timeout > 0:
            until = self.now + timeout if timeout is not None else float("inf")
            if events and events[0][0] < until:
                until = events[0][0]
            self._jump(until)
        else:
            self._tick()
        now = self.now
        while events and events[0][0] <= now:
            _, _, _, callback, args = heapq.heappop(events)
            callback(*args)
        return []

    # -- time

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` at a moment of virtual time, before the timers of that turn: an event
        from outside, such as the arrival of bytes.
        """
        self._count += 1
        heapq.heappush(self._events, (when, self._random.random(), self._count, callback, args))

    def _jump(self, until: float) -> None:
        if until == float("inf"):
            raise StuckError("nothing is left that could happen, and the program still waits")
        if self.stall_probability and self._random.random() < self.stall_probability:
            until += self._random.random() * self.longest_stall
        self.now = max(self.now + _TURN, until)
        self._look_at_window()

    def _tick(self) -> None:
        self.now += _TURN
        self._idle_turns += 1
        self._look_at_window()

    def _look_at_window(self) -> None:
        if self.now > self.limit:
            raise VirtualTimeError(f"not at its end after {self.limit:.1f} s of virtual time")
        if self.now >= self._window_end:
            spins, self._idle_turns = self._idle_turns > _MANY_TURNS, 0
            self._window_end = self.now + 1.0
            if self._is_watched:
                self.loop.blame()
            elif spins:
                self._is_watched = True
                self._window_end = self.now + _SAMPLE * _TURN
                self.loop.watch()


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with virtual time and an in-memory network.

    Callbacks that are ready run in asyncio's order. Where asyncio promises none (timers for the
    same moment, events from outside, the end of a thread's work) the seed decides. Work for an
    executor runs in the loop itself, at a moment that the seed chooses.

    Args:
        seed: Decides everything that asyncio and the network leave open.
    """

    def __init__(self, seed: int = 0) -> None:
        #: The source of every decision of the loop and of its network.
        self.random = random.Random(seed)
        self._simulated = selector = _Selector(self.random)
        selector.loop = self
        super().__init__(selector)
        #: The network in which `create_server` listens and `create_connection` connects.
        self.network: Network
        #: Seconds since 1970 at virtual time 0.
        self.epoch = 1_700_000_000.0
        self._counts: Counter[str] = Counter()

    # -- time

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._simulated.now

    def wall_time(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.epoch + self._simulated.now

    @property
    def turns(self) -> int:
        """How many turns the loop has made."""
        return self._simulated.turns

    def limit(self, seconds: float) -> None:
        """Raise :class:`VirtualTimeError` out of the run so many virtual seconds from now."""
        self._simulated.limit = self.time() + seconds

    def stall(self, probability: float, longest: float) -> None:
        """Let each wait of the loop last up to `longest` seconds more with this probability, as on
        a machine that is busy; 0 ends it. What was due meanwhile runs in one turn.
        """
        self._simulated.stall_probability = probability
        self._simulated.longest_stall = longest

    def happen_at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` at a virtual time as an event from outside, such as arriving bytes.
        The order of events for the same moment is the seed's.
        """
        self._simulated.at(when, callback, *args)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's; timers for the same moment go off in the seed's order."""
        return super().call_at(
            when + self.random.random() * _BLUR, callback, *args, context=context
        )

    def timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are still to go off, the next one first."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled", [])
        return sorted(handle for handle in scheduled if not handle.cancelled())

    # -- what would leave the process

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """The addresses that the simulated network knows for a name."""
        return await self.network.resolve(host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """The address itself: names lead one way only."""
        return str(sockaddr[0]), str(sockaddr[1])

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, Any]:
        """Connect to a server of the simulated network. TLS is not spoken: `ssl` only decides
        whether the network's TLS faults concern this connection.
        """
        return await self.network.connect(protocol_factory, host, port, is_tls=bool(ssl))

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> asyncio.AbstractServer:
        """Listen in the simulated network; port 0 chooses one."""
        return self.network.listen(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run `func` in the loop, a moment later."""
        future = self.create_future()
        delay = self.random.random() * _THREAD_TIME
        self.happen_at(self.time() + delay, _run_for, future, func, args)
        return future

    # -- what spins

    def watch(self) -> None:
        """Count from now on what is called, for :meth:`blame`."""
        if not self._counts:
            self._counts["nothing"] = 0
            # On the object, so that it costs nothing as long as nothing spins.
            setattr(self, "call_soon", self._counting_call_soon)  # noqa: B010

    def blame(self) -> None:
        """Raise :class:`BusyLoopError`, naming what was called most often since :meth:`watch`."""
        most = ", ".join(f"{name} ({count})" for name, count in self._counts.most_common(3))
        raise BusyLoopError(f"callbacks run without any time going by, most of all: {most}")

    def _counting_call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self._counts[_name_of(callback)] += 1
        return super().call_soon(callback, *args, context=context)


def _run_for(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        future.set_exception(error)


def _name_of(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return getattr(callback, "__qualname__", repr(callback))


def tasks_of(loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Task[Any]]:
    """The tasks of a loop that have not ended, by name: their own order is chance."""
    yield from sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
