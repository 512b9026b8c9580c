"""One event loop and its shared clients in each process of Spark; connecting, and errors.

All tasks of a process share one client for each cluster and configuration.

Spark calls from a thread of its own, and forks the processes of its tasks. So the loop runs in a
thread that is started when a process first needs it, and a forked process forgets what its parent
had.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from aiokafka._loading import is_compiled
from aiokafka._retry import Backoff
from aiokafka._tasks import TaskOwner
from aiokafka.errors import KafkaConnectionError
from aiokafka.ranges import DataLossError

__all__ = [
    "LoopThread",
    "SharedClients",
    "brief",
    "connected",
    "loop_thread",
    "shortened",
    "unwind",
]

log = logging.getLogger("aiokafka.spark")

T = TypeVar("T")

# Below the 32 MiB at which glibc stops to adapt.
_KEEP_BUFFERS_TO = 31 * 1024 * 1024
_LONGEST_END = 5.0  # seconds for cancelled tasks when the loop stops


class LoopThread:
    """An event loop in a daemon thread, and the clients that live in it.

    It lives as long as its process: Spark does not announce the last task.
    """

    def __init__(self) -> None:
        _keep_memory()
        _check_form()
        self.pid = os.getpid()
        self.is_stopped = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="aiokafka-spark", daemon=True)
        self._thread.start()
        self.clients: SharedClients = self.run(_make_clients())

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run `coro` in the loop while the calling thread waits; return its result.

        An interruption of the wait, such as the end of a killed task, cancels `coro`.
        """
        future = asyncio.run_coroutine_threadsafe(coro, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the event loop of this process was stopped") from None
        finally:
            # No effect once it is done. Otherwise the calling thread was interrupted, and nothing
            # wants the result any more.
            future.cancel()

    def stop(self) -> None:
        """Close every client and end the thread. Processes of Spark need not call it: they just
        exit."""
        self.is_stopped = True
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end(self) -> None:
        """Close every client, and fail the calls that still wait in `run`."""
        await self.clients.close()
        # Threads wait in `run` for tasks of theirs: the loop must not stop before these have ended.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_LONGEST_END)


_current: LoopThread | None = None
_lock = threading.Lock()


def loop_thread() -> LoopThread:
    """Return the event loop thread of this process."""
    global _current
    with _lock:
        # A forked process has the object, but neither the thread nor a right to its parent's
        # sockets.
        if _current is None or _current.is_stopped or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def _keep_memory() -> None:
    """Make the allocator keep large buffers for reuse.

    glibc returns a large buffer to the system at once, unless it has seen one as large being freed.
    The next buffer then costs a page fault for every 4 KiB, which takes longer than to fill it. The
    bytes allocated here are never touched.
    """
    bytes(_KEEP_BUFFERS_TO)


def _check_form() -> None:
    """Warn of plain sources: they take many times the CPU, and nothing else tells a job of them."""
    if not is_compiled():
        place = Path(__file__).parents[1]
        log.warning("this process runs aiokafka as pure Python, which is slow, from %s", place)


async def _make_clients() -> SharedClients:
    return SharedClients()


class _Shared(Generic[T]):
    """A client that tasks share, and the number of its current users."""

    def __init__(self, client: T, close: Callable[[T], Awaitable[None]]) -> None:
        self.client = client
        self.close = close
        self.users = 0
        self.is_broken = False
        self.timer: asyncio.TimerHandle | None = None


class _Making:
    """One caller makes a client; the other callers with the same key wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class SharedClients:
    """Clients by their settings; a client without users is closed after a while.

    Created and used in one event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskOwner("aiokafka-spark")
        self._shared: dict[object, _Shared[Any]] = {}
        self._making: dict[object, _Making] = {}

    def __len__(self) -> int:
        return len(self._shared)

    @contextlib.asynccontextmanager
    async def use(
        self,
        key: object,
        make: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[None]],
        idle_timeout: float,
    ) -> AsyncIterator[T]:
        """Lend the client for `key` to the `with` block; `make` creates it if there is none.

        If the block raises, the client may be in any state, so the next user gets a new one.
        """
        shared = await self._take(key, make, close)
        try:
            yield shared.client
        except BaseException:
            shared.is_broken = True
            # Those that use it already go on with it, and the last of them closes it (`_put_back`).
            if self._shared.get(key) is shared:
                del self._shared[key]
            raise
        finally:
            shared.users -= 1
            await self._put_back(key, shared, idle_timeout)

    async def _take(
        self,
        key: object,
        make: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[None]],
    ) -> _Shared[T]:
        making = self._making.setdefault(key, _Making())
        making.users += 1
        try:
            # One makes it, the others wait: tasks of one process begin together, and each would
            # connect.
            async with making.lock:
                shared = self._shared.get(key)
                if shared is None:
                    shared = self._shared[key] = _Shared(await make(), close)
                shared.users += 1
                if shared.timer is not None:
                    shared.timer.cancel()
                    shared.timer = None
                return shared
        finally:
            making.users -= 1
            if not making.users:
                del self._making[key]

    async def _put_back(self, key: object, shared: _Shared[Any], idle_timeout: float) -> None:
        if shared.users:
            return
        if shared.is_broken:
            await shared.close(shared.client)
            return
        shared.timer = self._loop.call_later(idle_timeout, self._expire, key, shared)

    def _expire(self, key: object, shared: _Shared[Any]) -> None:
        # It may have been taken, or replaced, in the turn in which the timer went off.
        if self._shared.get(key) is shared and not shared.users:
            del self._shared[key]
            self._tasks.start(_close(shared), name="close-idle-client")

    async def close(self) -> None:
        """Close every client."""
        found, self._shared = self._shared, {}
        for shared in found.values():
            if shared.timer is not None:
                shared.timer.cancel()
            await _close(shared)
        await self._tasks.stop()


async def _close(shared: _Shared[Any]) -> None:
    try:
        await shared.close(shared.client)
    except Exception as error:
        log.warning("A client was not closed cleanly: %s", error)


async def unwind(stack: contextlib.AsyncExitStack, error: BaseException | None) -> None:
    """Leave what a stack has entered, as if `error` went through it; raise only another one."""
    traceback = None if error is None else error.__traceback__
    try:
        await stack.__aexit__(None if error is None else type(error), error, traceback)
    except Exception as raised:
        if raised is not error:
            raise


# -- Connecting while no broker is available, as in a restart
#
# A connected client waits by itself, but tasks create new clients all the time.


async def connected(make: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Return the result of `make`, retried for `timeout` seconds while no broker is available.

    Raises the last KafkaConnectionError at the end; any other error at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    backoff = Backoff(0.1, 2.0)
    while True:
        try:
            return await make()
        except KafkaConnectionError as error:
            delay = backoff.next()
            if loop.time() + delay > deadline:
                raise
            if backoff.failures == 1:
                log.warning("waiting up to %.0f s for a broker: %s", timeout, error)
        await asyncio.sleep(delay)


# -- Errors, short, because Spark prints every frame and every cause

P = ParamSpec("P")


def shortened(error: Exception) -> Exception:
    """Return `error` without its traceback, which is logged at DEBUG; to be raised `from None`.

    Names the option that would avoid the error, if there is one.
    """
    log.debug("an error that is raised to Spark", exc_info=error)
    if isinstance(error, DataLossError):
        error.args = (f"{error.loss}; with failOnDataLoss=false a query skips what is gone",)
    return error.with_traceback(None)


def brief(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that Spark calls: its errors are shown without our stack frames."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise shortened(error) from None

    return call
