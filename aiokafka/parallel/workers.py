"""The tasks that call the handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from aiokafka._handlers import check_result, refuse_generators
from aiokafka._tasks import TaskOwner, together

if TYPE_CHECKING:
    from aiokafka.parallel.dispatcher import Dispatcher
    from aiokafka.parallel.work import PartitionWork, Work
    from aiokafka.structs import ConsumerRecord

__all__ = ["Handler", "Workers"]

Handler = Callable[["ConsumerRecord[Any, Any]"], "Awaitable[object] | object"]

# Handlers that never wait must not block the loop for longer than a turn of all workers.
_TURN = 0.02


class _Worker:
    """Processes one record at a time. Its task has an owner of its own, so that it can be ended
    alone."""

    def __init__(self, name: str, owner: TaskOwner) -> None:
        self.name = name
        self.owner = owner
        self.work: Work | None = None


class Workers:
    """Runs as many tasks as handlers may run at once.

    Owns: the tasks, those that were told to end until they do, what each is processing, and the
    context variables of `run()`.
    """

    def __init__(self, dispatcher: Dispatcher, count: int) -> None:
        self._dispatcher = dispatcher
        self._count = count
        self._workers: dict[asyncio.Task[None], _Worker] = {}
        self._handler: Handler | None = None
        self._context = copy_context()

    def start(self, handler: Handler) -> None:
        """Start the tasks. Raises TypeError for a handler whose body would not run."""
        refuse_generators("handler", handler)
        self._handler = handler
        self._context = copy_context()
        for number in range(self._count):
            self._start(f"worker-{number}")

    def is_calling(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this task is one that calls the handler."""
        return task in self._workers

    async def cancel(self, partitions: Collection[PartitionWork], deadline: float) -> None:
        """End the handlers that work on these partitions; wait at most until `deadline`."""
        busy = [
            worker
            for worker in self._workers.values()
            if worker.work is not None and worker.work.partition in partitions
        ]
        # The new tasks come first, so that a handler which ignores its end holds up no other
        # partition.
        for worker in busy:
            if not worker.owner.is_stopping:
                self._start(worker.name)
        await together(_end(worker.owner, deadline) for worker in busy)

    async def stop(self, deadline: float) -> None:
        """End all; wait at most until `deadline`."""
        owners = [worker.owner for worker in self._workers.values()]
        await together(_end(owner, deadline) for owner in owners)

    def abandon(self) -> None:
        """End all without waiting for them."""
        for worker in self._workers.values():
            worker.owner.cancel()

    def _start(self, name: str) -> None:
        owner = TaskOwner("parallel", self._dispatcher.fail)
        worker = _Worker(name, owner)
        # A rebalance starts workers in place of others: not with its own context variables, but
        # with those that `run()` was called with.
        task = self._context.copy().run(owner.start, self._run(worker), name=name)
        self._workers[task] = worker
        task.add_done_callback(self._workers.pop)

    async def _run(self, worker: _Worker) -> None:
        """Process records until the processing ends."""
        task = asyncio.current_task()
        assert task is not None
        # An eager task factory runs it before `_start()` knows its task.
        self._workers[task] = worker
        dispatcher, handler = self._dispatcher, self._handler
        assert handler is not None
        loop = asyncio.get_running_loop()
        turn = _TURN / self._count
        yield_at = loop.time() + turn
        while True:
            work = dispatcher.start_next()
            if work is None:
                work = await dispatcher.claim()
                if work is None:
                    return
                yield_at = loop.time() + turn
            worker.work = work
            work.open()
            try:
                if work.failure is not None:
                    raise work.failure
                result = handler(work.record)
                if result is not None:
                    await (result if isinstance(result, CoroutineType) else _end_of(result))
            except Exception as error:
                await dispatcher.settle(work, error)
            except asyncio.CancelledError as error:
                if worker.owner.is_stopping or _is_cancelled(task):
                    raise
                await dispatcher.settle(work, _not_cancelled(work, error))
            else:
                dispatcher.finish(work)
            finally:
                dispatcher.maybe_release(work)
                worker.work = None
            if worker.owner.is_stopping:
                dispatcher.resign()  # cancelled, which the handler ignored
                return
            if loop.time() > yield_at:
                await asyncio.sleep(0)
                yield_at = loop.time() + turn


async def _end(owner: TaskOwner, deadline: float) -> None:
    """End a worker's task; one that was told before is only waited for: its handler cleans up."""
    if owner.is_stopping:
        await owner.wait(deadline)
    else:
        await owner.stop(deadline)


async def _nothing() -> None:
    """Return what to wait for when a handler returned a plain value."""


def _end_of(result: object) -> Awaitable[object]:
    """Return what to wait for before the record counts as done."""
    if inspect.isawaitable(result):
        return result
    check_result(result)
    return _nothing()


def _is_cancelled(task: asyncio.Task[None]) -> bool:
    """Return whether this task was asked to end. Before Python 3.11 a task cannot tell."""
    cancelling = getattr(task, "cancelling", None)
    return cancelling is not None and cancelling() > 0


def _not_cancelled(work: Work, error: asyncio.CancelledError) -> RuntimeError:
    record = work.record
    failure = RuntimeError(
        f"the handler of {record.topic}-{record.partition}@{record.offset} was not cancelled, but "
        "raised CancelledError: it awaited something that was, such as a task it cancelled itself"
    )
    failure.__cause__ = error
    return failure
