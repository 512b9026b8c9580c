"""The event loop of each Spark process, shared clients, connection retries, and errors without the
stack frames of this package.

All tasks of a process share one client for each cluster and configuration.

Spark calls from its own thread, and forks the processes of its tasks. So the loop runs in a thread
that is started on first use, and a forked process starts a new thread.
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
    "loop_thread",
    "short_error",
    "unwind",
    "with_retries",
    "with_short_errors",
]

log = logging.getLogger("aiokafka.spark")

T = TypeVar("T")

# In bytes, below 32 MiB: glibc always returns larger buffers to the system (`_keep_memory`).
_KEEP_BUFFERS_TO = 31 * 1024 * 1024
_END_TIMEOUT = 5.0  # seconds for cancelled tasks to end when the loop stops


class LoopThread:
    """An event loop in a daemon thread, and the clients that run in it.

    The loop runs until the process ends, because Spark does not announce the last task.
    """

    def __init__(self) -> None:
        _keep_memory()
        _warn_if_uncompiled()
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

        If the wait is interrupted, as when a task is killed, `coro` is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coro, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the event loop of this process was stopped") from None
        finally:
            # If the future is not done, the calling thread was interrupted, and the result is not
            # needed. `cancel()` has no effect on a future that is done.
            future.cancel()

    def stop(self) -> None:
        """Close every client and end the thread. Spark processes exit without this call."""
        self.is_stopped = True
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end(self) -> None:
        """Close every client, and cancel the calls that wait in `run`."""
        await self.clients.close()
        # Threads wait in `run` for their tasks, so these tasks must end before the loop stops.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_END_TIMEOUT)


_current: LoopThread | None = None
_lock = threading.Lock()


def loop_thread() -> LoopThread:
    """Return the LoopThread of this process, which starts on first use."""
    global _current
    with _lock:
        # A forked process inherits `_current` without its thread, and must not use the sockets of
        # the parent process.
        if _current is None or _current.is_stopped or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def _keep_memory() -> None:
    """Make the allocator keep large buffers for reuse.

    glibc returns a freed buffer to the system, unless a buffer of at least this size was freed
    before. After such a return, the next buffer costs a page fault for every 4 KiB, which takes
    longer than filling the buffer. The buffer that is allocated and freed here is never written, so
    it takes no physical memory.
    """
    bytes(_KEEP_BUFFERS_TO)


def _warn_if_uncompiled() -> None:
    """Warn if the package is not compiled, because pure Python takes many times the CPU."""
    if not is_compiled():
        place = Path(__file__).parents[1]
        log.warning("this process runs aiokafka as pure Python, which is slow, from %s", place)


async def _make_clients() -> SharedClients:
    return SharedClients()


class _Shared(Generic[T]):
    """A shared client, and the number of its current users."""

    def __init__(self, client: T, close: Callable[[T], Awaitable[None]]) -> None:
        self.client = client
        self.close = close
        self.users = 0
        self.is_broken = False
        self.timer: asyncio.TimerHandle | None = None


class _CreationLock:
    """Lock for creating the client of a key, and the number of callers that use the lock."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class SharedClients:
    """Shared clients by their settings. A client without users is closed after an idle timeout.

    Created and used in one event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskOwner("aiokafka-spark")
        self._shared: dict[object, _Shared[Any]] = {}
        self._creation_locks: dict[object, _CreationLock] = {}

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
        """Provide the client for `key` in a `with` block; `make` creates a missing client.

        If the block raises, the client may be broken, so the next user gets a new client.
        """
        shared = await self._acquire(key, make, close)
        try:
            yield shared.client
        except BaseException:
            shared.is_broken = True
            # The current users keep the broken client, and the last one closes it (`_release`).
            if self._shared.get(key) is shared:
                del self._shared[key]
            raise
        finally:
            shared.users -= 1
            await self._release(key, shared, idle_timeout)

    async def _acquire(
        self,
        key: object,
        make: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[None]],
    ) -> _Shared[T]:
        making = self._creation_locks.setdefault(key, _CreationLock())
        making.users += 1
        try:
            # The tasks of a process start together: one creates the client, the others wait.
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
                del self._creation_locks[key]

    async def _release(self, key: object, shared: _Shared[Any], idle_timeout: float) -> None:
        if shared.users:
            return
        if shared.is_broken:
            await shared.close(shared.client)
            return
        shared.timer = self._loop.call_later(idle_timeout, self._expire, key, shared)

    def _expire(self, key: object, shared: _Shared[Any]) -> None:
        # The client may have been acquired or replaced in the same loop iteration.
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
    """Exit the contexts of `stack` with `error`, if any; raise only errors other than `error`."""
    traceback = None if error is None else error.__traceback__
    try:
        await stack.__aexit__(None if error is None else type(error), error, traceback)
    except Exception as raised:
        if raised is not error:
            raise


# -- Connecting, with retries while no broker is available
#
# A connected client waits for unavailable brokers, but a new client fails to start, and tasks
# create new clients all the time.


async def with_retries(make: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Return the result of `make`, with retries for `timeout` seconds while no broker is available.

    Raises the last KafkaConnectionError after the timeout, and other errors at once.
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


# -- Errors without stack frames and causes, because Spark prints every frame and every cause

P = ParamSpec("P")


def short_error(error: Exception) -> Exception:
    """Return `error` without its traceback, which is logged at DEBUG.

    The caller raises `error` with `from None`. A DataLossError also gets advice in its text: the
    option that tolerates data loss.
    """
    log.debug("an error that is raised to Spark", exc_info=error)
    if isinstance(error, DataLossError):
        error.args = (f"{error.loss}; with failOnDataLoss=false a query skips what is gone",)
    return error.with_traceback(None)


def with_short_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that Spark calls: its errors have no stack frames of this package."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise short_error(error) from None

    return call
