"""Background tasks of a client object, concurrent calls of its `start()`, and its event loop.

`TaskOwner` has the guarantees of a TaskGroup for an object whose `start()` and `stop()` run in
different tasks: a TaskGroup entered in `start()` would cancel the task that called it when a child
fails.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, TypeVar

from aiokafka.errors import IllegalStateError, KafkaError, renewed

__all__ = [
    "OF_CONSUMERS",
    "OF_PRODUCERS",
    "SharedStart",
    "Signal",
    "TaskOwner",
    "both",
    "finish",
    "is_task_cancelled",
    "made_for",
    "origin",
    "refuse_other_loop",
    "together",
    "unless",
    "with_second",
]

log = logging.getLogger("aiokafka")

T = TypeVar("T")
U = TypeVar("U")

# If a task is cancelled, but not by its owner, the owner fails after this many seconds. If
# `asyncio.run()` has cancelled the task, it closes the event loop within this time.
_GRACE = 0.1


class TaskOwner:
    """Starts tasks, and cancels all of its tasks when a task fails.

    Owns the running tasks (oldest first), the context that they run in, and `failure`, the first
    exception of a task. A failed task cancels the others; then `on_failure(exception)` is called
    once, to fail the callers that wait for a result of the tasks. A task that was cancelled from
    outside counts as failed.
    """

    def __init__(
        self, name: str, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context: Context | None = None
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called or a task failed, so that no further task can be started."""
        return self._stopping

    def keep_context(self) -> None:
        """Run all later tasks in the context variables of this call.

        Without this, a task runs in the context of the call that starts it, such as a web request:
        the task would log and trace as that request, and keep the request in memory.
        """
        self._context = copy_context()

    @property
    def context(self) -> Context:
        """A new copy of the context variables that tasks run in."""
        # A context cannot be entered again while it is active, and an eager task may start others.
        return copy_context() if self._context is None else self._context.copy()

    def start(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `coro` as a task named `<owner>:<name>`.

        If an earlier task has failed, closes `coro` and raises the failure. After `stop()`, closes
        `coro` and raises IllegalStateError.
        """
        if self._stopping:
            coro.close()
            self.check()
            raise IllegalStateError(f"{self.name} is stopped: cannot start {name!r}")
        create, context = asyncio.get_running_loop().create_task, self.context
        task = context.run(create, coro, name=f"{self.name}:{name}")
        self._tasks[task] = None
        # Use a done callback instead of a wrapper coroutine: a wrapper that is cancelled before its
        # first step would leave `coro` un-awaited.
        task.add_done_callback(self._on_done, context=context)
        return task

    def fail(self, name: str, error: BaseException) -> None:
        """Fail the owner for an `error` in a callback, as if a task had failed.

        `name` stands for the callback in the log.
        """
        self._report(f"{self.name}:{name}", error)

    def check(self) -> None:
        """Raise a copy of `failure` if a task has failed."""
        if self.failure is not None:
            raise renewed(self.failure) from self.failure

    async def stop(self, deadline: float | None = None) -> None:
        """Cancel every task and wait until all tasks have ended, at most until `deadline` (loop
        time; None: no limit).

        May be called from one of the tasks (which is not cancelled), and repeatedly, also after a
        cancelled call. Tasks that still run at the deadline are logged by name.
        """
        self.cancel()
        await self.wait(deadline)

    async def wait(self, deadline: float | None = None) -> None:
        """Wait until all tasks have ended, as `stop()` does, but do not cancel them: after
        `cancel()`, a second cancellation would interrupt their cleanup."""
        pending = self._others()
        if not pending:
            return
        limit = None
        if deadline is not None:
            limit = max(0.0, deadline - asyncio.get_running_loop().time())
        _, late = await asyncio.wait(pending, timeout=limit)
        if late:
            names = ", ".join(sorted(task.get_name() for task in late))
            log.warning("%s: still running at the deadline of stop(): %s", self.name, names)

    def is_ending_us(self) -> bool:
        """Return whether a caught CancelledError cancels the running task.

        If not, an application's function has raised it, for example by awaiting a cancelled task:
        then it is an error of that function. Python 3.10 cannot distinguish the two, so there the
        result is whether the owner is stopping.
        """
        count = getattr(asyncio.current_task(), "cancelling", None)
        return self._stopping if count is None else count() > 0

    def cancel(self) -> None:
        """Cancel all tasks, except the calling one, without waiting until they have ended."""
        self._stopping = True
        for task in self._others():
            task.cancel()

    def release(self, task: asyncio.Task[Any]) -> None:
        """Remove a task from the owner, so that the owner does not cancel the task."""
        self._tasks.pop(task, None)

    def _others(self) -> list[asyncio.Task[Any]]:
        # A task that stops its owner must not cancel itself: `stop()` would never return.
        caller = asyncio.current_task()
        return [task for task in self._tasks if task is not caller]

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._report(task.get_name(), error)
        elif not self._stopping:
            # Do not fail at once. If `asyncio.run()` has cancelled all tasks, it closes the loop
            # soon after: the application only forgot to stop this object, which warns about that.
            task.get_loop().call_later(_GRACE, self._on_lost, task.get_name())

    def _report(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            log.error("%s failed: %s", name, error, exc_info=error)
            self._fail(error)

    def _on_lost(self, name: str) -> None:
        if not self._stopping:
            error = KafkaError(f"background task {name!r} was cancelled from outside")
            log.warning("%s", error)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        if self._stopping:
            return
        self._stopping = True
        for sibling in self._tasks:
            sibling.cancel()
        if self._on_failure is not None:
            self._on_failure(error)


def is_task_cancelled() -> bool:
    """Return whether a caught CancelledError cancels the running task.

    If not, an application's function has raised it, for example by awaiting a cancelled task: then
    it is an error of that function. Always True on Python 3.10, which cannot distinguish the two.
    """
    count = getattr(asyncio.current_task(), "cancelling", None)
    return count is None or count() > 0


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently, and return their results in the same order. If one fails, cancel
    the others and raise the error."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Run two coroutines concurrently and return both results. If one fails, cancel the other one
    and raise the error."""
    found: list[Any] = await together((first, second))
    return found[0], found[1]


async def unless(over: Coroutine[Any, Any, object], call: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `call`. If `over` ends first, cancel `call` and return None."""
    calling, ending = asyncio.ensure_future(call), asyncio.ensure_future(over)
    try:
        await asyncio.wait((calling, ending), return_when=asyncio.FIRST_COMPLETED)
        return await calling if calling.done() else None
    finally:
        await _end((calling, ending))


async def with_second(
    first: Coroutine[Any, Any, T], after: float, second: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Return the result of `first`. If it has not ended after `after` seconds, run `second()`, too,
    and return the first result of the two.

    Raises the error of `first` if it fails before `second` starts. If both fail, raises the error
    of the call that fails last.
    """
    calls = [asyncio.ensure_future(first)]
    try:
        done, _ = await asyncio.wait(calls, timeout=after)
        if not done:
            calls.append(asyncio.ensure_future(second()))
        pending = set(calls)
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                if call.cancelled() or call.exception() is None or not pending:
                    return call.result()
    finally:
        await _end(calls)


async def _end(calls: Collection[asyncio.Future[Any]]) -> None:
    """Cancel calls and wait until they have ended."""
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    for call in calls:
        # Mark the error as retrieved. Otherwise asyncio logs it if the call has failed in the same
        # loop iteration in which the caller was cancelled.
        if not call.cancelled():
            call.exception()


class Signal:
    """Notifies waiting tasks. `notify()` ends all calls of `wait()` that are waiting at that time;
    a later call of `wait()` waits for the next `notify()`.

    A task checks the state and calls `wait()` without an await in between. So no other task can
    change the state and call `notify()` before the task waits.
    """

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        # A dict keeps the order of arrival, so that simulated runs are reproducible.
        self.waiters: dict[asyncio.Future[bool], None] = {}

    def notify(self) -> None:
        """Wake all waiters."""
        # A waiter is removed when its task runs, so the dict does not change during this loop.
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(True)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait for `notify()`, and return True. Return False at `deadline` (loop time; None = no
        limit)."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, finish, waiter, False)
        self.waiters[waiter] = None
        try:
            return await waiter
        finally:
            del self.waiters[waiter]
            if timer is not None:
                timer.cancel()


def finish(waiter: asyncio.Future[bool], notified: bool) -> None:
    """Set the result of a waiter, unless it is done or cancelled."""
    if not waiter.done():
        waiter.set_result(notified)


# -- Concurrent calls of one `start()`


class SharedStart:
    """Runs the work of a `start()` once for all concurrent calls.

    Programs that start a shared client on first use make concurrent calls. One call does the work,
    the other calls wait:

    1. The work succeeds. The waiting calls return.
    2. The work fails. The waiting calls raise copies of the error. A later call tries again.
    3. The call that does the work is cancelled. The next waiting call continues the work.
    4. The last remaining call is cancelled. The partial work is undone.

    Owns the lock, the number of calls, and the error that they share.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._calls = 0
        self._failures = 0
        self._failure: Exception | None = None
        self._is_half_done = False

    async def run(
        self, work: Callable[[], Awaitable[None]], undo: Callable[[], Awaitable[None]]
    ) -> None:
        """Return when `work()` is done; raise the errors of `work()`.

        `work()` must return at once when the work is already done, and continue the work of a
        cancelled call. `undo()` reverts partial work.
        """
        failures = self._failures
        self._calls += 1
        try:
            async with self._lock:
                if self._failure is not None and self._failures != failures:
                    raise renewed(self._failure) from self._failure
                await self._work(work, undo)
        except asyncio.CancelledError:
            if self._is_half_done and self._calls == 1:
                self._is_half_done = False
                # Hold the lock, so that a new call starts the work only after the partial work is
                # undone.
                async with self._lock:
                    await undo()
            raise
        finally:
            self._calls -= 1
            if not self._calls:
                # The traceback of the failure would keep the objects of the work in memory.
                self._failure = None

    async def _work(
        self, work: Callable[[], Awaitable[None]], undo: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await work()
        except BaseException as error:
            self._is_half_done = isinstance(error, asyncio.CancelledError) and self._calls > 1
            if not self._is_half_done:
                if isinstance(error, Exception):
                    self._failures += 1
                    self._failure = error
                await undo()
            raise
        self._is_half_done = False


# -- The event loop of a client object


# The warnings of aiokafka 0.14 begin with these texts, and applications filter warnings by them.
OF_CONSUMERS = "The loop argument is deprecated since 0.7.1, and scheduled for removal in 0.9.0: "
OF_PRODUCERS = (
    "The `loop` parameter has been deprecated since 0.7.1 and will be removed in a future release. "
)


@contextmanager
def made_for(loop: Any, name: str, opening: str = "") -> Iterator[AbstractEventLoop]:
    """Yield the event loop of an object of class `name` that is constructed in this block.

    The event loop is the running loop. Without a running loop it is the argument `loop`, which
    `asyncio.get_running_loop()` then returns inside the block; the block must not schedule
    anything. Raises RuntimeError without either loop, TypeError if `loop` is not an event loop.
    The warning about the argument `loop` starts with `opening`.
    """
    if loop is not None and not isinstance(loop, AbstractEventLoop):
        raise TypeError(f"loop: must be an event loop or None, not {type(loop).__name__}")
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        if loop is None:
            raise RuntimeError(
                f"{name}: there is no running event loop; make it inside `async def main()`, or "
                "wherever a coroutine runs"
            ) from None
    else:
        if loop is not None:
            _warn(f"{opening}the argument loop has no effect: the running event loop is used")
        yield running
        return
    _warn(
        f"{opening}{name}(loop=...) without a running event loop: make it inside a coroutine "
        "instead"
    )
    # The constructors of the object's parts call get_running_loop().
    asyncio._set_running_loop(loop)
    try:
        yield loop
    finally:
        asyncio._set_running_loop(None)


def origin(loop: AbstractEventLoop) -> dict[str, Any]:
    """Return the stack of the constructor call, as asyncio passes it for tasks and futures to the
    loop's exception handler; {} unless the loop is in debug mode."""
    if not loop.get_debug():
        return {}
    return {"source_traceback": traceback.extract_stack(sys._getframe(2))}


def refuse_other_loop(loop: AbstractEventLoop, name: str) -> None:
    """Raise IllegalStateError if the running event loop is not `loop`, to which an object of class
    `name` belongs.

    Without this check asyncio would raise an unrelated error, or wait forever.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is not loop:
        raise IllegalStateError(
            f"this {name} belongs to another event loop than the one that runs now; make one in "
            "each loop (every call of asyncio.run has its own), and use it in no other thread"
        )


def _warn(text: str) -> None:
    # The warning is for the caller of the constructor: skip the frames of `_warn`, of the context
    # manager (two) and of the constructor.
    warnings.warn(text, DeprecationWarning, stacklevel=5)
