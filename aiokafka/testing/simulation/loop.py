"""An event loop in which nothing happens by chance: time jumps, and a seed decides the rest."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from typing import Any

from aiokafka.testing.simulation.errors import NotSimulatedError, StuckError
from aiokafka.testing.simulation.executor import Executors
from aiokafka.testing.simulation.network import Network, first_host
from aiokafka.testing.simulation.refusals import Refusals
from aiokafka.testing.simulation.turns import TurningLoop

__all__ = ["SimulatedLoop"]

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
