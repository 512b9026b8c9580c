"""A deterministic event loop with virtual time: a seed determines every order that asyncio leaves
open."""

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
    "BusyLoopDetector",
    "BusyLoopError",
    "Executors",
    "NotSimulatedError",
    "SimulatedLoop",
    "SimulationError",
    "StuckError",
    "UnsupportedFeatures",
    "VirtualTimeError",
    "VirtualTimeLoop",
    "name_of",
]


# -- Errors that end a simulated run


class SimulationError(Exception):
    """A simulated run cannot continue."""


class StuckError(SimulationError):
    """The program waits, but no timer is pending and no bytes are in transit, so it would wait
    forever."""


class VirtualTimeError(SimulationError):
    """The program did not end within its limit of virtual time."""


class BusyLoopError(SimulationError):
    """A callback runs in every turn (iteration) of the loop, so virtual time does not advance."""


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
    """The program uses a feature of the operating system that a simulated loop does not have.

    Args:
        what: The feature, in the plural.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"a simulated loop has no {what}: {_ADVICE.get(what, _USUAL_ADVICE)}")


# -- Busy loops: callbacks in every turn (iteration) of the loop, so that time does not advance


# A callback that runs in at least this fraction of the counted turns is a busy loop.
_BUSY_FRACTION = 0.4

_Called = Callable[..., object]


class BusyLoopDetector:
    """Counts which callbacks are scheduled while a busy loop is suspected.

    Owns: the flag `is_on`, and the number of calls of each callback.
    """

    def __init__(self, loop: asyncio.BaseEventLoop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self.is_on = False

    def begin(self) -> None:
        """Count callbacks until :meth:`end`."""
        self.is_on = True
        self._counts.clear()
        # Override `call_soon` only while callbacks are counted, to keep its usual calls fast.
        setattr(self._loop, "call_soon", self._call_soon)  # noqa: B010

    def end(self, turns: int) -> None:
        """Stop counting. Raise :class:`BusyLoopError`, with the names of callbacks, if a callback
        ran in at least the fraction `_BUSY_FRACTION` of the `turns`.
        """
        self.is_on = False
        self._loop.__dict__.pop("call_soon", None)
        most = self._counts.most_common(3)
        if most and most[0][1] >= turns * _BUSY_FRACTION:
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
    """Return the name of a callback; for the step of a task, the task's name and coroutine."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return f"task {owner.get_name()} of {getattr(coroutine, '__qualname__', coroutine)}"
    return getattr(callback, "__qualname__", None) or repr(type(callback))


# -- Virtual time, and the order of callbacks


# Virtual seconds that one turn takes: a task that polls the time with sleep(0) must see it advance.
_TURN = 10e-6
# Maximum random delay of a timer, in virtual seconds, so that the seed determines the order of
# timers for the same moment.
_TIMER_JITTER = 1e-6
# Timers that are due within this many seconds fire now, as in asyncio.
_CLOCK_RESOLUTION = 1e-9
# A busy loop is suspected if the loop runs more than _MANY_TURNS turns without waiting within
# _WINDOW virtual seconds.
_WINDOW = 0.5
_MANY_TURNS = 25_000
# For about this number of turns, the BusyLoopDetector counts callbacks when a busy loop is
# suspected.
_SAMPLE = 2_000
# Cancelled timers are removed from the heap as soon as there are more of them than this number, and
# more than half of all timers are cancelled.
_MOST_CANCELLED = 50
_NEVER = float("inf")

_copy_context = contextvars.copy_context


class _Handle(asyncio.Handle):
    """A callback for the next turn, without the debug information of asyncio's Handle, which would
    slow down every callback.
    """

    __slots__ = ()
    # asyncio's Handle sets these attributes on each instance.
    _source_traceback = None
    _repr = None

    def __init__(
        self,
        callback: _Called,
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._callback: Any = callback
        self._args: Any = args
        self._loop = loop  # needed by repr() since Python 3.13
        self._cancelled = False
        self._context = _copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class _TimerHandle(asyncio.TimerHandle):
    """A timer without the debug information of asyncio's TimerHandle."""

    __slots__ = ()
    _source_traceback = None
    _repr = None

    def __init__(
        self,
        when: float,
        callback: _Called,
        args: tuple[Any, ...],
        loop: VirtualTimeLoop,
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


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """A loop with virtual time: if no callback is ready, time jumps to the next timer or external
    event.

    A turn is one iteration of the loop. As in asyncio, it runs the ready callbacks, then the due
    events, then the due timers. Where asyncio promises no order, the seed determines the order.

    Owns: the virtual time, the timers, and the future events.
    """

    # Attributes of asyncio's BaseEventLoop, which its stop() and close() use.
    _ready: deque[asyncio.Handle]
    _scheduled: list[tuple[float, int, _TimerHandle]]
    _stopping: bool
    _closed: bool

    def __init__(self, random_source: random.Random) -> None:
        super().__init__()
        #: Virtual seconds since the creation of the loop.
        self.now = 0.0
        #: Number of turns that the loop has run.
        self.turns = 0
        #: Number of cancelled timers in the heap.
        self.cancelled_timers = 0
        self._chance = random_source.random
        self._events: list[tuple[float, float, int, _Called, tuple[Any, ...]]] = []
        self._count = 0
        self._stall_probability = 0.0
        self._longest_stall = 0.0
        self._limit = _NEVER
        self._window_end = _WINDOW
        self._next_check_at = _WINDOW
        self._turns_in_window = 0
        self._detector = BusyLoopDetector(self)
        # asyncio calls get_debug() for every future and task. The built-in bool(), which returns
        # False, is faster than a method.
        self.get_debug = bool  # type: ignore[method-assign]

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(enabled)
        self.get_debug = partial(bool, enabled)  # type: ignore[method-assign]

    # -- scheduling

    def time(self) -> float:
        """Return the virtual seconds since the creation of the loop."""
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
        """Call `callback` at the virtual time `when`. The seed determines the order of timers for
        the same moment."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        when += self._chance() * _TIMER_JITTER
        handle = _TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._scheduled, (when, self._count, handle))
        return handle

    def happen_at(self, when: float, callback: _Called, *args: Any) -> None:
        """Call `callback` at a virtual time as an external event, such as the arrival of bytes. The
        seed determines the order of events for the same moment.
        """
        self._count += 1
        heapq.heappush(self._events, (when, self._chance(), self._count, callback, args))

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the pending timers, the next timer first."""
        return [handle for _, _, handle in sorted(self._scheduled) if not handle.cancelled()]

    # -- turns

    def limit(self, seconds: float) -> None:
        """End the run with :class:`VirtualTimeError` after `seconds` more of virtual time."""
        self._limit = self.now + seconds
        self._next_check_at = min(self._limit, self._window_end)

    def stall(self, probability: float, longest: float) -> None:
        """Prolong each wait of the loop with this probability, by up to `longest` seconds, as on a
        busy machine. Callbacks that become due during a wait run in one turn. Probability 0 ends
        the stalls.
        """
        self._stall_probability = probability
        self._longest_stall = longest

    def _run_once(self) -> None:
        """Run turns until :meth:`stop`. asyncio calls this method once for each turn; a loop inside
        the method is faster.
        """
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
            if now >= self._next_check_at:
                self._check_progress()
            while events and events[0][0] <= now:
                event = heapq.heappop(events)
                self.call_soon(event[3], *event[4])
            until = now + _CLOCK_RESOLUTION
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
        """Run the callbacks that are ready now. Callbacks that are scheduled meanwhile run in the
        next turn."""
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
        """Advance the time to the next event or timer, or beyond it if the wait stalls. Raise
        StuckError if there is no event or timer."""
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

    def _check_progress(self) -> None:
        """Raise VirtualTimeError after the time limit, BusyLoopError if the loop does not wait."""
        now = self.now
        if now >= self._window_end:
            self._forget_cancelled()
            turns, self._turns_in_window = self._turns_in_window, 0
            self._window_end = now + _WINDOW
            if self._detector.is_on:
                self._detector.end(turns)
            elif turns > _MANY_TURNS:
                self._window_end = now + _SAMPLE * _TURN
                self._detector.begin()
        if now > self._limit:
            raise VirtualTimeError(f"not at its end after {self._limit:.1f} s of virtual time")
        self._next_check_at = min(self._limit, self._window_end)

    def _forget_cancelled(self) -> None:
        timers = self._scheduled
        if self.cancelled_timers > max(_MOST_CANCELLED, len(timers) // 2):
            timers[:] = [timer for timer in timers if not timer[2]._cancelled]
            heapq.heapify(timers)
            self.cancelled_timers = 0


# -- Executors: the loop itself runs the functions that asyncio would run in threads


# Maximum virtual seconds until a function begins, and then until its result arrives.
_LONGEST_STEP = 0.001


class Executors:
    """Runs the functions of `run_in_executor`, one at a time, at moments that the seed determines.

    Owns: the time at which the last submitted function begins, and for each executor the time at
    which its last function ends.
    """

    def __init__(self, loop: VirtualTimeLoop, chance: random.Random) -> None:
        self._loop = loop
        self._random = chance
        self._last_begin = 0.0
        self._ends: dict[int, float] = {}

    def submit(
        self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Any]:
        """Schedule the call of a function; return a future of the result. As with threads,
        cancelling the future has no effect on a function that has begun.
        """
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        # Functions begin in the order of the calls. An executor of the program may have one thread
        # only, so its next function begins after the end of its previous function.
        earliest = max(loop.now, self._last_begin, self._ends.get(id(executor), 0.0))
        begin = self._last_begin = earliest + self._random.random() * _LONGEST_STEP
        end = begin + self._random.random() * _LONGEST_STEP
        if executor is not None:
            self._ends[id(executor)] = end
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


# -- Unsupported features of asyncio


class UnsupportedFeatures(asyncio.BaseEventLoop):
    """The methods of asyncio's loop that a simulated loop lacks: they raise NotSimulatedError."""

    def _refuse(self, what: str) -> Any:
        raise NotSimulatedError(what)

    def add_reader(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def add_writer(self, *args: Any) -> Any:  # type: ignore[override]
        self._refuse("files and sockets of the system")

    def remove_reader(self, *args: Any) -> bool:
        return False

    def remove_writer(self, *args: Any) -> bool:
        return False


# The missing `async` methods, by feature. They raise when they are awaited.
_REFUSED = {
    "datagrams": ("create_datagram_endpoint",),
    "Unix sockets": ("create_unix_connection", "create_unix_server"),
    "pipes": ("connect_read_pipe", "connect_write_pipe"),
    "subprocesses": ("subprocess_exec", "subprocess_shell"),
    "change to TLS on an open connection": ("start_tls",),
    "sendfile": ("sendfile",),
    "sockets of the system": (
        *("connect_accepted_socket", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into"),
        *("sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto"),
    ),
}


def _refusing(what: str) -> Callable[..., Any]:
    async def refuse(self: UnsupportedFeatures, *args: Any, **options: Any) -> Any:
        self._refuse(what)

    return refuse


for _what, _names in _REFUSED.items():
    for _name in _names:
        setattr(UnsupportedFeatures, _name, _refusing(_what))


# -- The loop

_NUMBER = "number_in_simulated_loop"

_ANY_EVENT = Callable[..., object]


class SimulatedLoop(UnsupportedFeatures, VirtualTimeLoop):
    """An asyncio loop with virtual time and an in-memory network.

    Ready callbacks run in asyncio's order. Where asyncio promises no order (timers for the same
    moment, external events, results of threads), the seed determines the order. Functions for an
    executor run in the loop itself, at a moment that the seed determines.

    Args:
        seed: Seed of all random decisions of the loop and its network.
    """

    def __init__(self, seed: int = 0) -> None:
        #: Source of all random decisions of the loop and its network.
        self.random = random.Random(seed)
        super().__init__(self.random)
        #: The network of `create_server` and `create_connection`.
        self.network = Network(self, self.random)
        #: Seconds since 1970 at virtual time 0.
        self.epoch = 1_700_000_000.0
        self._executors = Executors(self, self.random)
        self._task_count = 0
        self._thread = threading.get_ident()
        self._foreign_threads: list[str] = []
        self._signals: dict[int, tuple[_ANY_EVENT, tuple[Any, ...]]] = {}

    # -- time

    def wall_time(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return self.epoch + self.now

    # -- tasks

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, **options: Any
    ) -> Any:
        """Create a task as asyncio does. Default names count the tasks of this loop, not of the
        process, so that runs are equal.
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
        # The number of the task, for `tasks()`. An attribute is faster than a WeakKeyDictionary.
        setattr(task, _NUMBER, number)
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks, the oldest task first."""
        return sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, _NUMBER, 0))

    # -- threads and signals

    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        try:
            super().run_forever()
        except StuckError as error:
            if self._foreign_threads:
                raise StuckError(
                    f"{error}; other threads wanted to wake it: {self._foreign_threads}"
                ) from None
            raise

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: _ANY_EVENT,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call ``call_soon``. Raise NotSimulatedError in another thread, because the seed
        cannot determine when a thread calls.
        """
        if threading.get_ident() != self._thread:
            self._foreign_threads.append(threading.current_thread().name)
            raise NotSimulatedError("threads")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run `func` in the loop after a random delay; its result arrives after another delay.
        Functions for the program's own executor run one after the other.
        """
        return self._executors.submit(executor, func, args)

    def set_default_executor(self, executor: Any) -> None:
        """Do nothing: functions run in the loop, not in an executor."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Any, *args: Any
    ) -> None:
        """Store the handler, which only :meth:`send_signal` calls: real signals are ignored."""
        self._signals[sig] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def send_signal(self, sig: int) -> None:
        """Schedule the program's handler of a signal.

        Raises:
            LookupError: there is no handler.
        """
        if sig not in self._signals:
            raise LookupError(f"the program has no handler of signal {sig}")
        callback, args = self._signals[sig]
        self.call_soon(callback, *args)

    # -- the network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return the addresses of a host name in the simulated network."""
        return await self.network.resolve(host, port)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return the address and port as strings, without a reverse look-up."""
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
        """Connect to a server of the simulated network, without real TLS. `ssl` enables the
        network's TLS faults for the connection, and must be set at both ends or at neither end.
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
        """Listen in the simulated network. Port 0 means a free port."""
        if sock is not None:
            self._refuse("sockets of the system")
        server = self.network.listen(protocol_factory, first_host(host), port or 0, tls=ssl)
        if start_serving:
            await server.start_serving()
        return server
