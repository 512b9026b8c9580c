"""The event loop of each Spark process, its clients, retries of connections, and errors without the
stack frames of this package.

All tasks of a process use the same client for the same cluster and configuration.

Spark calls this package in its own thread, and forks the processes of its tasks. Therefore the
loop runs in another thread, which is started on first use. A forked process starts a new thread.
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

# The allocator keeps freed buffers of up to this number of bytes, to use them again (see
# `_keep_memory`). It is less than 32 MiB, because glibc returns every larger buffer to the system.
_KEEP_BUFFERS_TO = 31 * 1024 * 1024
_END_TIMEOUT = 5.0  # seconds that cancelled tasks have to end when the loop is stopped


class LoopThread:
    """An event loop in a daemon thread, and the clients that use this loop.

    The loop runs until the process ends, because Spark does not say which task is the last.
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
        """Run `coro` in the loop, wait for it in the calling thread, and return its result.

        If the wait is interrupted, for example because the task is killed, `coro` is cancelled.
        Raises RuntimeError if the loop is stopped.
        """
        future = asyncio.run_coroutine_threadsafe(coro, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the event loop of this process was stopped") from None
        finally:
            # If the future is not done here, the wait was interrupted, and the result is not needed
            # any more. For a future that is done, `cancel()` has no effect.
            future.cancel()

    def stop(self) -> None:
        """Close every client, and end the thread. Processes of Spark exit without calling this."""
        self.is_stopped = True
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end(self) -> None:
        """Close every client, and cancel the calls that wait in `run`."""
        await self.clients.close()
        # Other threads wait in `run` for these tasks, so they must end before the loop is stopped.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_END_TIMEOUT)


_current: LoopThread | None = None
_lock = threading.Lock()


def loop_thread() -> LoopThread:
    """Return the LoopThread of this process. The first call starts it."""
    global _current
    with _lock:
        # A forked process has a copy of `_current`, but not its thread. It must not use the sockets
        # of the parent process.
        if _current is None or _current.is_stopped or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def _keep_memory() -> None:
    """Make the memory allocator keep large buffers, so that they are used again.

    glibc returns a freed large buffer to the system, so each new buffer costs a page fault for
    every 4 KiB, which takes longer than to fill the buffer. But once a buffer was freed, glibc
    keeps further freed buffers of up to its size. Therefore this function allocates and frees a
    large buffer. The buffer is never written, so it needs no physical memory.
    """
    bytes(_KEEP_BUFFERS_TO)


def _warn_if_uncompiled() -> None:
    """Log a warning if the package is not compiled: pure Python needs many times the CPU time."""
    if not is_compiled():
        place = Path(__file__).parents[1]
        log.warning("this process runs aiokafka as pure Python, which is slow, from %s", place)


async def _make_clients() -> SharedClients:
    return SharedClients()


class _Shared(Generic[T]):
    """A client that several tasks use, and the number of its current users."""

    def __init__(self, client: T, close: Callable[[T], Awaitable[None]]) -> None:
        self.client = client
        self.close = close
        self.users = 0
        self.is_broken = False
        self.timer: asyncio.TimerHandle | None = None


class _CreationLock:
    """The lock under which the client for a key is created, and the number of its current users."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class SharedClients:
    """Clients that several tasks use, by a key (their settings). A client without users is closed
    after an idle timeout.

    Create and use the object in one event loop.
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
        """Return a context manager for the client of `key`. `make` creates the client if there is
        none.

        If the body of the `async with` raises, the client may be broken: later calls do not return
        it.
        """
        shared = await self._acquire(key, make, close)
        try:
            yield shared.client
        except BaseException:
            shared.is_broken = True
            # The current users of the broken client keep it; the last user closes it (`_release`).
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
            # Tasks of a process start at the same time: one of them creates the client, others
            # wait.
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
        # A safeguard: `_acquire` cancels this timer when the client gets a user.
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
    """Exit the contexts of `stack`, with `error` if it is not None. Raise errors of the exits, but
    not `error` itself."""
    traceback = None if error is None else error.__traceback__
    try:
        await stack.__aexit__(None if error is None else type(error), error, traceback)
    except Exception as raised:
        if raised is not error:
            raise


# -- Connecting, with retries while no broker is available
#
# A connected client waits for unavailable brokers, but a new client fails to start. Tasks often
# create new clients.


async def with_retries(make: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Return the result of `make`. While no broker is available, retry for `timeout` seconds.

    Raises the last KafkaConnectionError after this time, and other errors at once.
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


# -- Errors without stack frames and causes: Spark would print every frame and every cause

P = ParamSpec("P")


def short_error(error: Exception) -> Exception:
    """Return `error` without its traceback, after logging the traceback at DEBUG.

    The caller must raise `error` with `from None`. The text of a DataLossError also gets the option
    that tolerates data loss.
    """
    log.debug("an error that is raised to Spark", exc_info=error)
    if isinstance(error, DataLossError):
        error.args = (f"{error.loss}; with failOnDataLoss=false a query skips what is gone",)
    return error.with_traceback(None)


def with_short_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that Spark calls, so that its errors have no stack frames of this
    package."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise short_error(error) from None

    return call
