"""Calls the interceptors of a client, and awaits the coroutines that notifications return."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka._guard import Guard
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka.errors import KafkaTimeoutError

__all__ = ["Interception"]

T = TypeVar("T")

_running: ContextVar[Awaitable[Any] | None] = ContextVar("running", default=None)
"""The notification coroutine that runs in the current task, or that started the current task."""

_NOTIFICATION_TIMEOUT = 30.0
"""Seconds that the coroutine of one notification may take."""

_MOST_WAITING = 1000
"""Limit of coroutines that wait until the earlier coroutines have run."""

_STOP_TIMEOUT = 10.0
"""Seconds that a stopping client waits for the remaining coroutines."""


class Interception:
    """Calls the interceptors in the order of their list, and logs their exceptions.

    Records pass through the interceptors (`transform`), which may await. Notifications (`notify`)
    do not wait: a task of the client awaits their coroutines one after the other (`run`).

    Owns: the queue of notification coroutines, and the task of the running coroutine.
    """

    def __init__(
        self,
        interceptors: Sequence[Any],
        log: SubjectLog,
        options: Mapping[str, Any],
        *,
        drops: bool = False,
    ) -> None:
        """
        Args:
            interceptors: Called in this order.
            log: The log for exceptions of the interceptors.
            options: Argument of `configure`, which the constructor calls.
            drops: Drop the oldest coroutines while more than `_MOST_WAITING` wait. If False,
                callers of `notify` await `wait_for_capacity` first.
        """
        self._interceptors = tuple(interceptors)
        self._drops = drops
        self._guard = Guard(log, "an interceptor")
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Awaitable[Any]] = deque()
        self._wake = asyncio.Event()
        self._advanced = asyncio.Event()
        self._current: asyncio.Task[BaseException | None] | None = None
        self._running: Awaitable[Any] | None = None
        self._tasks = TaskOwner("interceptors")
        self._is_closed = False
        for interceptor in self._interceptors:
            self._guard.call(interceptor.configure, options)

    async def transform(
        self,
        method: str,
        item: T,
        is_valid: Callable[[Any], bool],
        cancelled: Callable[[T, int], None] | None = None,
    ) -> T:
        """Call `method` of each interceptor with the result of the previous one, beginning with
        `item`; return the last result. Results that are None, invalid or an exception are skipped.

        If the task is cancelled in a method, call `cancelled` with the last result and the number
        of interceptors that were called.
        """
        for number, interceptor in enumerate(self._interceptors, 1):
            try:
                result = getattr(interceptor, method)(item)
                if inspect.isawaitable(result):
                    result = await _result_of(result)
                if result is not None and not is_valid(result):
                    raise TypeError(f"{method} of {interceptor!r} returned {result!r}")
            except Exception as error:
                self._guard.log_exception(error)
                continue
            except asyncio.CancelledError:
                if cancelled is not None:
                    cancelled(item, number)
                raise
            if result is not None:
                item = result
        return item

    def notify(self, method: str, *args: Any, count: int | None = None) -> None:
        """Call `method` of all interceptors, or of the first `count`. If a method returns a
        coroutine, add it to the queue of `run()`."""
        for interceptor in self._interceptors[:count]:
            result = self._guard.call(getattr(interceptor, method), *args)
            if inspect.isawaitable(result):
                self._waiting.append(result)
                self._wake.set()
        if self._is_closed:
            self.close()
        while self._drops and len(self._waiting) > _MOST_WAITING:
            _drop(self._waiting.popleft())
            self._guard.log_exception(KafkaTimeoutError(f"{method} is slower than it is called"))

    async def wait_for_capacity(self, deadline: float) -> None:
        """Wait until fewer than `_MOST_WAITING` coroutines are queued. Raises KafkaTimeoutError at
        `deadline` (loop time).

        Returns at once if a notification coroutine calls: the queue advances only after its end.
        """
        if self._is_inside:
            return
        while len(self._waiting) >= _MOST_WAITING and not self._is_closed:
            self._advanced.clear()
            try:
                async with timeout_at(deadline):
                    await self._advanced.wait()
            except asyncio.TimeoutError:
                raise KafkaTimeoutError(
                    f"{_MOST_WAITING} coroutines of interceptors wait for their turn: they take "
                    "longer than the records come"
                ) from None

    async def run(self) -> None:
        """Run the queued coroutines one after the other, until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._run_one(self._waiting.popleft())
            except Exception as error:
                self._guard.log_exception(error)
            finally:
                self._current = self._running = None
                self._advanced.set()

    async def _run_one(self, awaitable: Awaitable[Any]) -> None:
        """Run one coroutine in a task of its own.

        A cancellation inside the coroutine then does not cancel `run()`, and a coroutine that
        ignores its cancellation does not block the next one. Raises the coroutine's exception, or
        KafkaTimeoutError after `_NOTIFICATION_TIMEOUT`.
        """
        current = self._tasks.start(_outcome_of(awaitable), name="notification")
        self._current, self._running = current, awaitable
        # If the task is cancelled before its first step, nothing else closes the coroutine.
        current.add_done_callback(lambda _: _drop(awaitable))
        await asyncio.wait((current,), timeout=_NOTIFICATION_TIMEOUT)
        if not current.done():
            current.cancel()
            raise KafkaTimeoutError(f"it takes longer than {_NOTIFICATION_TIMEOUT:g} s")
        if current.cancelled():
            return
        error = current.result()
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError("it awaited what was cancelled") from error
        if error is not None:
            raise error

    async def finish(self, deadline: float | None) -> None:
        """Wait until the queued coroutines have run, for `_STOP_TIMEOUT` seconds or until
        `deadline` (loop time).

        If a notification coroutine stops the client, do not wait for that coroutine: its task
        continues on its own.
        """
        if self._is_inside:
            if self._current is not None:
                self._tasks.release(self._current)
            self._current = self._running = None
            return
        # `run()` clears `_current` one loop iteration after the end of a coroutine.
        await asyncio.sleep(0)
        latest = self._loop.time() + _STOP_TIMEOUT
        try:
            async with timeout_at(latest if deadline is None else min(latest, deadline)):
                while self._waiting or self._current is not None:
                    self._advanced.clear()
                    await self._advanced.wait()
        except asyncio.TimeoutError:
            pass

    @property
    def _is_inside(self) -> bool:
        """Whether the caller is the running notification coroutine, or a task that the coroutine
        has started, for example with `asyncio.gather`."""
        return self._running is not None and _running.get() is self._running

    def close(self) -> None:
        """Close the queued coroutines and all later ones, and cancel the running coroutine."""
        self._is_closed = True
        while self._waiting:
            _drop(self._waiting.popleft())
        self._tasks.cancel()
        self._advanced.set()


async def _outcome_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Await `awaitable`; return its exception, or None if there is none."""
    _running.set(awaitable)
    try:
        await awaitable
    except (Exception, asyncio.CancelledError) as error:
        return error
    return None


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    """Await `awaitable` and return its result.

    A CancelledError has one of two causes. If this task is being cancelled, propagate it. If the
    interceptor awaited a cancelled task or future, raise RuntimeError instead. Python 3.10 cannot
    distinguish the causes: propagate it there.
    """
    count = getattr(asyncio.current_task(), "cancelling", lambda: None)
    before = count()
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if before is None or count() > before:
            raise
        raise RuntimeError("it awaited what was cancelled") from error


def _drop(awaitable: Awaitable[Any]) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
