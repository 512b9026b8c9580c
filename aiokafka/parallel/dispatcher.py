"""Dispatch records to workers: the meter, the workers, the dispatcher, and the pump."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout_at
from aiokafka._handlers import check_result, refuse_generators
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner, together
from aiokafka.errors import IllegalStateError
from aiokafka.parallel.work import PartitionWork, Work, WorkQueue, WorkState

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.processor import DrainingListener
    from aiokafka.parallel.retry import Delays, RetryTopics
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["Dispatcher", "Handler", "Pump", "Workers"]


# -- The tasks that call the handler


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


class Meter:
    """Counts records, and for how long they are processed, all together.

    Owns these counts. The time is that of one record after the other, as a worker spends it: each
    time a record begins or ends, those that ran until then have taken so much longer.
    """

    __slots__ = ("_at", "_busy", "_loop", "_running", "failed", "finished")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._running = 0
        self._busy = 0.0
        self.finished = 0
        """Records that are done, those that were sent to a retry topic among them."""
        self.failed = 0
        """Records whose handler or block has raised an exception."""

    def moved(self, running: int) -> None:
        """Take note that so many records are being processed from now on."""
        now = self._loop.time()
        self._busy += self._running * (now - self._at)
        self._running = running
        self._at = now

    def finish(self, running: int) -> None:
        """Take note that a record is done, and so many are still being processed."""
        self.finished += 1
        self.moved(running)

    def fail(self) -> None:
        """Take note that a handler or block has raised an exception."""
        self.failed += 1

    @property
    def busy(self) -> float:
        """Seconds that records have been processed for, those that still are included."""
        return self._busy + self._running * max(0.0, self._loop.time() - self._at)


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


log = logging.getLogger("aiokafka.parallel")

Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Dispatcher:
    """Stands between the queue and the workers.

    Owns: the workers that wait, whether processing has ended, and why.
    """

    def __init__(
        self,
        queue: WorkQueue,
        flow: Flow,
        concurrency: int,
        retry: RetryTopics | None,
        subject: str,
    ) -> None:
        """Start empty; `subject` begins lines in the log."""
        self.log = SubjectLog(log, subject)
        self.queue = queue
        queue.dispatcher = self
        self.meter = Meter()
        self.failure: BaseException | None = None
        self.ending = asyncio.Event()
        self._flow = flow
        self._concurrency = concurrency
        self._retry = retry
        self._waiters: deque[asyncio.Future[None]] = deque()

    # -- in ----------------------------------------------------------------------------------------

    def add(self, batches: Batches) -> None:
        """Queue what a call returned, up to the limits, and wake as many workers as it needs.

        The rest will be read again.
        """
        queue, flow = self.queue, self._flow
        most = flow.max_bytes
        for tp, records in batches.items():
            next_offset = records[0].offset
            if queue.nbytes < most:
                partition = queue.add(tp, records, most)
                flow.taken(partition)
                next_offset = partition.tracker.position
            # What did not fit is behind what did. Records of it that wait would come twice.
            if next_offset <= records[-1].offset:
                queue.waiting.drop([tp])
                flow.put_back(tp, next_offset)
        flow.note_fill()
        self._wake(queue.ready)

    def add_all(self, batches: Batches) -> None:
        """Queue records that were held back and are due now."""
        if not batches:
            return
        for tp, records in batches.items():
            self._flow.taken(self.queue.add(tp, records, math.inf))
        self._flow.note_fill()
        self._wake(self.queue.ready)

    # -- out ---------------------------------------------------------------------------------------

    async def claim(self) -> Work | None:
        """Return the next record to process, now running; None when processing has ended.

        A cancelled call has taken nothing.
        """
        loop = asyncio.get_running_loop()
        while not self.ending.is_set():
            work = self.start_next()
            if work is not None:
                return work
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            # What a wake-up was for is still there if the woken worker is cancelled: another one
            # has to hear of it.
            is_here = False
            try:
                await waiter
                is_here = True
            finally:
                if not is_here:
                    self._miss(waiter)
        return None

    def start_next(self) -> Work | None:
        """Do the same as `claim()`, without waiting."""
        queue = self.queue
        # Handlers that go on after their partition is gone count as well.
        if queue.running >= self._concurrency:
            return None
        work = queue.start_next()
        if work is not None:
            self.meter.moved(queue.running)
        return work

    async def claim_sound(self) -> Work | None:
        """Do the same as `claim()`, but settle works whose lane could not be found.

        Raises what ends the processing then.
        """
        while True:
            work = await self.claim()
            if work is None or work.failure is None:
                return work
            if not await self.leave(work, work.failure):
                raise work.failure

    def _miss(self, waiter: asyncio.Future[None]) -> None:
        """Wake the next worker, if the cancelled one had been woken."""
        if waiter.done() and not waiter.cancelled():
            self._wake(1)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)

    def _wake(self, count: int) -> None:
        waiters = self._waiters
        while count > 0 and waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    # -- back --------------------------------------------------------------------------------------

    def finish(self, work: Work) -> None:
        """Mark a record as done, and make room for more."""
        self.queue.finish(work)
        self.meter.finish(self.queue.running)
        flow = self._flow
        if flow.is_tight:
            flow.finished(work.partition)

    async def settle(self, work: Work, error: Exception) -> Exception | None:
        """Handle a failed record: return None if it was sent to be retried, else the error, which
        ends the processing if the partition is still ours."""
        outcome = error
        self.meter.fail()
        topic, partition = work.partition.tp
        if not work.partition.is_ours:
            # Its new owner processes it: what fails there is what counts.
            self.log.warning(
                "%r failed, and is another member's by now: %r",
                work,
                error,
                topic=topic,
                partition=partition,
            )
            return error
        try:
            if self._retry is not None and await self._retry.send(work.record, error):
                self.finish(work)
                return None
        except Exception as failure:
            outcome = failure
            if failure.__cause__ is None:
                failure.__cause__ = error
        self.log.error(
            "Processing stops: %r failed",
            work,
            exc_info=outcome,
            topic=topic,
            partition=partition,
        )
        self.fail(outcome)
        return outcome

    async def leave(self, work: Work, error: BaseException | None) -> bool:
        """Finish or fail the work whose block was left; return True if its exception is handled."""
        try:
            if error is None:
                self.finish(work)
            elif isinstance(error, Exception):
                outcome = await self.settle(work, error)
                if outcome is not None and outcome is not error:
                    raise outcome
                return outcome is None
            return False
        finally:
            self.maybe_release(work)
            self._wake(self.queue.ready)

    def maybe_release(self, work: Work) -> None:
        """Let another worker start the record, if this one left it undone."""
        if work.state is WorkState.RUNNING:
            self.queue.release(work)
            self.meter.moved(self.queue.running)
            self._wake(1)

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget partitions that are given up, with the works that were not begun."""
        self.queue.drop(tps)
        self.meter.moved(self.queue.running)
        self._wake(self.queue.ready)

    def resign(self) -> None:
        """Wake the next worker: this one has finished."""
        self._wake(1)

    # -- end ---------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop processing because of this error."""
        # The first one is the cause; others follow from it as handlers are cancelled.
        if self.failure is None:
            self.failure = error
        self.end()

    def end(self) -> None:
        """Start nothing more."""
        # Closed before workers are woken: they look for a record first.
        self.queue.close_all()
        self.ending.set()
        self._wake(len(self._waiters))

    async def drain(self, partitions: Collection[PartitionWork], deadline: float) -> bool:
        """Wait until nothing of these partitions is running; return False at `deadline`."""
        try:
            async with timeout_at(deadline):
                for partition in partitions:
                    while partition.running:
                        await partition.next_idle().wait()
        except asyncio.TimeoutError:
            return False
        return True


# -- The task that takes records from the consumer


# How long a call waits for records; only records that are due earlier end it sooner.
_LONGEST_WAIT = 10.0


class Pump:
    """Asks the consumer for records all the time, also while everything is paused.

    The calls tell the group that we are alive.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        dispatcher: Dispatcher,
        flow: Flow,
        delays: Delays | None,
        listener: DrainingListener,
    ) -> None:
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._flow = flow
        self._delays = delays
        self._listener = listener

    async def run(self) -> None:
        """Read until cancelled.

        Raises what `getmany()` raises, and IllegalStateError if the listener is called no more.
        """
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wait = _LONGEST_WAIT
            if self._delays is not None:
                self._dispatcher.add_all(self._delays.release(now))
                due = self._delays.next_due()
                wait = wait if due is None else min(wait, max(0.0, due - now))
            batches = await self._consumer.getmany(
                timeout_ms=wait * 1000, max_records=self._flow.most()
            )
            # Without it, what is revoked would be worked on, here and by its next owner.
            if self._consumer.rebalance_listener is not self._listener:
                raise IllegalStateError(
                    "subscribe() or assign() was called while a ParallelConsumer ran, so it cannot "
                    "know what is still its own: call them before it starts"
                )
            # No await from here on: no partition can be revoked in between.
            # An interceptor may have left out all records of a partition.
            batches = {tp: records for tp, records in batches.items() if records}
            if batches:
                # If something fails from here on, this is never taken back: no commit may pass over
                # these records.
                self._dispatcher.queue.begin_transit()
                if self._delays is not None:
                    batches = self._delays.hold_back(batches, loop.time())
                self._dispatcher.add(batches)
                self._dispatcher.queue.finish_transit()
