"""An event loop in which nothing happens by chance: time jumps, and a seed decides the rest."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from aiokafka.testing.simulation.network import Network, first_host

__all__ = [
    "BusyLoopError",
    "Executors",
    "NotSimulatedError",
    "Refusals",
    "SimulatedLoop",
    "SimulationError",
    "SpinWatch",
    "StuckError",
    "TurningLoop",
    "VirtualTimeError",
    "name_of",
]


# -- Errors: why a simulated run cannot go on


class SimulationError(Exception):
    """A simulated run cannot go on."""


class StuckError(SimulationError):
    """Nothing is left that could happen: no timer, no bytes under way, and the program waits."""


class VirtualTimeError(SimulationError):
    """The program did not end within its virtual time."""


class BusyLoopError(SimulationError):
    """Something runs in every turn of the loop, so that time does not go by."""


_ADVICE = {
    "threads": "use asyncio.to_thread() or loop.run_in_executor(), which run in the loop here",
    "subprocesses": "put a function in their place in this test",
}
_USUAL_ADVICE = (
    "asyncio.open_connection(), start_server(), loop.create_connection(host, port) and "
    "create_server(host, port) work; run the other side in the same test, or put a stand-in in "
    "the place of what opens it"
)


class NotSimulatedError(SimulationError):
    """The program wants something of the system that a simulated loop does not have.

    Args:
        what: What it wants, in the plural.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"a simulated loop has no {what}: {_ADVICE.get(what, _USUAL_ADVICE)}")


# -- Busy loops: what is called in every turn, so that no time goes by


# What spins is called in this part of all turns, at least.
_BLAMED = 0.4

_Called = Callable[..., object]


class SpinWatch:
    """Counts for a while what a loop is told to call.

    Owns: whether it counts, and how often it has seen each callback.
    """

    def __init__(self, loop: asyncio.BaseEventLoop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self.is_on = False

    def begin(self) -> None:
        """Count from now on what is called, until :meth:`end`."""
        self.is_on = True
        self._counts.clear()
        # On the object, so that it costs nothing as long as nothing spins.
        setattr(self._loop, "call_soon", self._call_soon)  # noqa: B010

    def end(self, turns: int) -> None:
        """Count no more; raise :class:`BusyLoopError` if something was called in most of these
        turns, and name it.
        """
        self.is_on = False
        self._loop.__dict__.pop("call_soon", None)
        most = self._counts.most_common(3)
        if most and most[0][1] >= turns * _BLAMED:
            named = ", ".join(f"{name} ({count} times)" for name, count in most)
            raise BusyLoopError(
                f"something runs in every turn of the loop, so that no time goes by; called most "
                f"often in {turns} turns: {named}"
            )

    def _call_soon(
        self,
        callback: _Called,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self._counts[name_of(callback)] += 1
        return type(self._loop).call_soon(self._loop, callback, *args, context=context)


def name_of(callback: _Called) -> str:
    """Return the name of a callback; for the step of a task, the task's name and function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return f"task {owner.get_name()} of {getattr(coroutine, '__qualname__', coroutine)}"
    return getattr(callback, "__qualname__", None) or repr(type(callback))


# -- Virtual time, and the order of callbacks


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


# -- Executors: work for threads, done in the loop


# A thread begins within so many virtual seconds, and its result is there within as many more.
_LONGEST = 0.001


class Executors:
    """Runs functions at moments that the seed chooses, none beside another.

    Owns: when the last function began, and when the last one of each executor is over.
    """

    def __init__(self, loop: TurningLoop, chance: random.Random) -> None:
        self._loop = loop
        self._random = chance
        self._begun = 0.0
        self._over: dict[int, float] = {}

    def submit(
        self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Any]:
        """Run a function a moment later. One that is cancelled before does not begin; one that is
        cancelled later is not noticed, as it is with threads.
        """
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        # In the order of the calls. An executor of the program's own may have one thread only, so
        # what it is given waits for what it was given before.
        earliest = max(loop.now, self._begun, self._over.get(id(executor), 0.0))
        begin = self._begun = earliest + self._random.random() * _LONGEST
        end = begin + self._random.random() * _LONGEST
        if executor is not None:
            self._over[id(executor)] = end
        loop.happen_at(begin, self._run, future, func, args, end)
        return future

    def _run(
        self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any, end: float
    ) -> None:
        if future.done():
            return
        result = None
        error: BaseException | None = None
        try:
            result = func(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except StopIteration as stop:
            error = RuntimeError("a function of an executor raised StopIteration")
            error.__cause__ = stop
        except BaseException as other:
            error = other
        self._loop.happen_at(max(end, self._loop.now), _settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


# -- What a simulated loop refuses


class Refusals(asyncio.BaseEventLoop):
    """What leaves the process and has no simulated form: all of it says so."""

    def _refuse(self, what: str) -> Any:
        raise NotSimulatedError(what)

    # A plain function may raise at once; asyncio's own are async, and raise when awaited.
    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> Any:
        self._refuse("datagrams")

    async def create_unix_connection(self, *args: Any, **options: Any) -> Any:
        self._refuse("Unix sockets")

    async def create_unix_server(self, *args: Any, **options: Any) -> Any:
        self._refuse("Unix sockets")

    async def connect_accepted_socket(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def connect_read_pipe(self, *args: Any, **options: Any) -> Any:
        self._refuse("pipes")

    async def connect_write_pipe(self, *args: Any, **options: Any) -> Any:
        self._refuse("pipes")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        self._refuse("subprocesses")

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        self._refuse("subprocesses")

    async def start_tls(self, *args: Any, **options: Any) -> Any:
        self._refuse("change to TLS on an open connection")

    async def sendfile(self, *args: Any, **options: Any) -> Any:
        self._refuse("sendfile")

    async def sock_connect(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_accept(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recv(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recv_into(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendall(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recvfrom(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_recvfrom_into(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendto(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    async def sock_sendfile(self, *args: Any, **options: Any) -> Any:
        self._refuse("sockets of the system")

    def add_reader(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def add_writer(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def remove_reader(self, *args: Any) -> bool:
        return False

    def remove_writer(self, *args: Any) -> bool:
        return False


# -- The loop

_NUMBER = "number_in_simulated_loop"

_ANY_EVENT = Callable[..., object]


class SimulatedLoop(Refusals, TurningLoop):
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
        super().__init__(self.random)
        #: The network in which `create_server` listens and `create_connection` connects.
        self.network = Network(self, self.random)
        #: Seconds since 1970 at virtual time 0.
        self.epoch = 1_700_000_000.0
        self._executors = Executors(self, self.random)
        self._task_count = 0
        self._thread = threading.get_ident()
        self._strangers: list[str] = []
        self._signals: dict[int, tuple[_ANY_EVENT, tuple[Any, ...]]] = {}

    # -- time

    def wall_time(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return self.epoch + self.now

    # -- tasks

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, **options: Any
    ) -> Any:
        """Create a task as asyncio does; one without a name is counted in this loop, not in the
        process.
        """
        self._task_count += 1
        number = self._task_count
        if name is None:
            name = f"Task-{number}"
        task: asyncio.Task[Any]
        if self._closed or self.get_task_factory() is not None:
            task = super().create_task(coro, name=name, **options)
        else:
            task = asyncio.Task(coro, loop=self, name=name, **options)
        # On the task itself: no map of weak references is as cheap.
        setattr(task, _NUMBER, number)
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, the oldest first."""
        return sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, _NUMBER, 0))

    # -- threads and signals

    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        try:
            super().run_forever()
        except StuckError as error:
            if self._strangers:
                raise StuckError(
                    f"{error}; other threads wanted to wake it: {self._strangers}"
                ) from None
            raise

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: _ANY_EVENT,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call soon, as ``call_soon`` does. Other threads are refused: the seed does not decide
        when they call.
        """
        if threading.get_ident() != self._thread:
            self._strangers.append(threading.current_thread().name)
            raise NotSimulatedError("threads")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run `func` in the loop, a moment later; its result comes a moment after that. Functions
        for an executor of the program's own run one after the other.
        """
        return self._executors.submit(executor, func, args)

    def set_default_executor(self, executor: Any) -> None:
        """Take it, and do without."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Any, *args: Any
    ) -> None:
        """Remember it for :meth:`send_signal`; real signals are not handled."""
        self._signals[sig] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def send_signal(self, sig: int) -> None:
        """Call the program's handler of a signal soon.

        Raises:
            LookupError: it has none.
        """
        if sig not in self._signals:
            raise LookupError(f"the program has no handler of signal {sig}")
        callback, args = self._signals[sig]
        self.call_soon(callback, *args)

    # -- the network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return the addresses that the simulated network knows for a name."""
        return await self.network.resolve(host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return the address itself: names lead one way only."""
        return str(sockaddr[0]), str(sockaddr[1])

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, Any]:
        """Connect to a server of the simulated network. TLS is not spoken: `ssl` decides whether
        the network's TLS faults concern this connection, and must be given at both ends or none.
        """
        if sock is not None or host is None or port is None:
            self._refuse("sockets of the system")
        return await self.network.connect(
            protocol_factory, str(host), int(port or 0), tls=ssl or None
        )

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.AbstractServer:
        """Listen in the simulated network; port 0 chooses one."""
        if sock is not None:
            self._refuse("sockets of the system")
        server = self.network.listen(protocol_factory, first_host(host), port or 0, tls=ssl)
        if start_serving:
            await server.start_serving()
        return server
