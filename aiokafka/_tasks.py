"""Own the background tasks of one client object.

The guarantees of a TaskGroup for an object whose `start()` and `stop()` are called from different
tasks: a TaskGroup opened in `start()` would cancel the *caller's* task when a child fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any, TypeVar

from aiokafka.errors import IllegalStateError, KafkaError, renewed

__all__ = ["TaskOwner", "both", "is_told_to_end", "together", "unless", "with_second"]

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
