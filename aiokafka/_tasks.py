"""Own the background tasks of one client object.

The guarantees of a TaskGroup for an object whose `start()` and `stop()` are called from different
tasks: a TaskGroup opened in `start()` would cancel the *caller's* task when a child fails.
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
    "TaskOwner",
    "both",
    "is_told_to_end",
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

# Seconds from the cancellation of a task to the end of the loop, if it was for that end.
_GRACE = 0.1


class TaskOwner:
    """Starts tasks, notices the first that fails, ends them all.

    Owns: the running tasks, the oldest first, the context that they run in, and `failure`, the
    first exception one of them raised. A child that fails cancels its siblings, then
    `on_failure(exception)` is called once so that no caller waits for what will not come. A child
    cancelled from outside counts as failed: its work is not done any more.
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
        """Whether `stop()` was called or a child failed: nothing new can be started."""
        return self._stopping

    def keep_context(self) -> None:
        """Run what is started from now on in the context variables of this call.

        Otherwise a task has those of the program that happens to need it first, such as the request
        of a web server: it would log and trace in its name for ever, and keep it in memory.
        """
        self._context = copy_context()

    @property
    def context(self) -> Context:
        """A new copy of the context variables that tasks are started with."""
        # One context cannot be entered twice, and an eager task may start others.
        return copy_context() if self._context is None else self._context.copy()

    def start(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `coro` as a task named `<owner>:<name>`.

        Raises the failure of an earlier child, or IllegalStateError after `stop()`; `coro` is
        closed then.
        """
        if self._stopping:
            coro.close()
            self.check()
            raise IllegalStateError(f"{self.name} is stopped: cannot start {name!r}")
        create = asyncio.get_running_loop().create_task
        task = self.context.run(create, coro, name=f"{self.name}:{name}")
        self._tasks[task] = None
        # A wrapper coroutine would leave `coro` un-awaited when cancelled before its first step.
        task.add_done_callback(self._on_done, context=self.context)
        return task

    def fail(self, name: str, error: BaseException) -> None:
        """Do as when a child fails, for a callback, which has no task to raise its exception.

        `name` is that of its work in the log.
        """
        self._report(f"{self.name}:{name}", error)

    def check(self) -> None:
        """Raise a new copy of the failure, if a child has failed."""
        if self.failure is not None:
            raise renewed(self.failure) from self.failure

    async def stop(self, deadline: float | None = None) -> None:
        """Cancel every task and wait until all have ended, at most until `deadline` (loop time;
        None = no limit).

        May be called from a child (which is then left running), again after it ended, and again
        after it was cancelled: it then goes on waiting. Tasks still alive at the deadline are
        logged by name.
        """
        self.cancel()
        await self.wait(deadline)

    async def wait(self, deadline: float | None = None) -> None:
        """Do as `stop()`, with tasks that were told to end before: what they do about it is not cut
        short by telling them again."""
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
        """Return whether a CancelledError in the running task is meant for the task. Otherwise it
        came out of something that an application's function has awaited there, such as a task that
        was cancelled, and is that function's failure.
        """
        # Python 3.10 does not count: there, what happens while the owner stops is for the task.
        count = getattr(asyncio.current_task(), "cancelling", None)
        return self._stopping if count is None else count() > 0

    def cancel(self) -> None:
        """Cancel all tasks, as `stop()` does, without waiting: they end on their own."""
        self._stopping = True
        for task in self._others():
            task.cancel()

    def release(self, task: asyncio.Task[Any]) -> None:
        """Leave a child to itself: it is not ended with the others."""
        self._tasks.pop(task, None)

    def _others(self) -> list[asyncio.Task[Any]]:
        """Return every child but the calling one."""
        # A task that stops its own owner would cancel itself, and never come to the end of the
        # stop.
        caller = asyncio.current_task()
        return [task for task in self._tasks if task is not caller]

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._report(task.get_name(), error)
        elif not self._stopping:
            # At the end of `asyncio.run()` all tasks are cancelled, and the loop closed soon. Then
            # this is an object that its application forgot to stop, which says so by itself.
            task.get_loop().call_later(_GRACE, self._on_lost, task.get_name())

    def _report(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            log.error("%s failed: %s", name, error, exc_info=error)
            self._fail(error)

    def _on_lost(self, name: str) -> None:
        """Fail: a task of ours was cancelled from outside, and the loop goes on."""
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


def is_told_to_end() -> bool:
    """Return whether a CancelledError in the running task is meant for the task. Otherwise it came
    out of something that an application's function has awaited there, such as a task that was
    cancelled, and is that function's failure. True on Python 3.10, which does not count.
    """
    count = getattr(asyncio.current_task(), "cancelling", None)
    return count is None or count() > 0


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what calls return that run at once. The first that fails ends the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Return what two calls return that run at once. The first that fails ends the other."""
    found: list[Any] = await together((first, second))
    return found[0], found[1]


async def unless(over: Coroutine[Any, Any, object], call: Coroutine[Any, Any, T]) -> T | None:
    """Return what `call` returns; None if `over` has returned before, which ends the call."""
    calling, ending = asyncio.ensure_future(call), asyncio.ensure_future(over)
    try:
        await asyncio.wait((calling, ending), return_when=asyncio.FIRST_COMPLETED)
        return await calling if calling.done() else None
    finally:
        await _end((calling, ending))


async def with_second(
    first: Coroutine[Any, Any, T], after: float, second: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Return what `first` returns; if that takes more than `after` seconds, `second()` runs beside
    it, and the one that returns first counts. Raises what the last of them raises."""
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
    """Cancel calls and wait for their ends."""
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    for call in calls:
        # Where one fails in the turn in which the caller is cancelled, asyncio would log that.
        if not call.cancelled():
            call.exception()


# -- Let calls of one `start()` that are made at the same time do its work once


class SharedStart:
    """Runs the work of a `start()` for all calls that wait for it at the same time.

    Programs that start a shared client with its first use make such calls. One of them works, and
    the others wait:

    1. It succeeds. The others find the work done, one after the other.
    2. It fails. The others fail with copies of its error. A later call may try again.
    3. It is cancelled. The next one works in its place, and what was begun stays for it.
    4. The last one is cancelled, at work or while it waits for its turn: what was begun is undone.

    Owns: whose turn it is, how many calls there are, and the failure that they share.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._calls = 0
        self._failures = 0
        self._failure: Exception | None = None
        self._is_half_done = False

    async def run(
        self, work: Callable[[], Awaitable[None]], undo: Callable[[], Awaitable[None]]
    ) -> None:
        """Return when `work()` has been done. It does nothing if it was done before; what a
        cancelled one has begun it goes on with. `undo()` ends what was begun.

        Raises what `work()` raises.
        """
        failures = self._failures
        self._calls += 1
        try:
            async with self._turn:
                if self._failure is not None and self._failures != failures:
                    raise renewed(self._failure) from self._failure
                await self._work(work, undo)
        except asyncio.CancelledError:
            if self._is_half_done and self._calls == 1:
                self._is_half_done = False
                # A call that comes meanwhile works on what is not being undone any more.
                async with self._turn:
                    await undo()
            raise
        finally:
            self._calls -= 1
            if not self._calls:
                # Its traceback refers to whatever the work refers to.
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


# -- The event loop that a client object is made for


# So begin the warnings that programs have filters for.
OF_CONSUMERS = "The loop argument is deprecated since 0.7.1, and scheduled for removal in 0.9.0: "
OF_PRODUCERS = (
    "The `loop` parameter has been deprecated since 0.7.1 and will be removed in a future release. "
)


@contextmanager
def made_for(loop: Any, name: str, opening: str = "") -> Iterator[AbstractEventLoop]:
    """Give the event loop that an object of class `name`, made in this block, will belong to.

    That is the running one; with none running it is `loop`, if one was given. What the block makes
    sees it as the running one, but it does not run: nothing may be scheduled. Raises RuntimeError
    without any, TypeError for a `loop` that is no event loop. A warning for a given `loop` begins
    with `opening`.
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
    # Everything that it consists of asks for the running loop; one that is about to run is as good.
    asyncio._set_running_loop(loop)
    try:
        yield loop
    finally:
        asyncio._set_running_loop(None)


def origin(loop: AbstractEventLoop) -> dict[str, Any]:
    """Return where the constructor that calls it was called from, for the context of an exception
    handler. It is told in debug mode, as tasks and futures do.
    """
    if not loop.get_debug():
        return {}
    return {"source_traceback": traceback.extract_stack(sys._getframe(2))}


def refuse_other_loop(loop: AbstractEventLoop, name: str) -> None:
    """Raise IllegalStateError if another event loop runs than `loop`, which an object of class
    `name` was made for.

    Otherwise asyncio would say something about futures and tasks, or nothing and wait for ever.
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
    # Seen from here: the context manager's two steps, the constructor, its caller.
    warnings.warn(text, DeprecationWarning, stacklevel=5)
