"""Dispatch records to workers: the reader, the dispatcher, the workers, and their counts."""

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

from aiokafka._callbacks import check_result, refuse_generators
from aiokafka._compat import timeout_at
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

__all__ = ["Dispatcher", "Handler", "Reader", "Workers"]


# -- The workers, which call the handler


Handler = Callable[["ConsumerRecord[Any, Any]"], "Awaitable[object] | object"]

# If handlers never wait, the workers together block the event loop for about this number of
# seconds, and then let other tasks run.
_MAX_BLOCKING = 0.02


class _Worker:
    """A worker, and the record that it processes. Its task has its own TaskOwner, so that one
    worker can be cancelled alone.
    """

    def __init__(self, name: str, owner: TaskOwner) -> None:
        self.name = name
        self.owner = owner
        self.work: Work | None = None


class Meter:
    """Counts the processed records, and the sum of their processing times.

    Owns these counts. Each change of the number of running records adds the time since the previous
    change, multiplied by the number of records that were running.
    """

    __slots__ = ("_at", "_busy", "_loop", "_running", "failed", "finished")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._running = 0
        self._busy = 0.0
        self.finished = 0
        """Number of finished records, including records sent to a retry or dead-letter topic."""
        self.failed = 0
        """Number of exceptions of handlers, `async with work:` blocks and the key function."""

    def set_running(self, running: int) -> None:
        """Add the processing time since the last change, and set the number of running records."""
        now = self._loop.time()
        self._busy += self._running * (now - self._at)
        self._running = running
        self._at = now

    def finish(self, running: int) -> None:
        """Count a finished record, and set the number of running records."""
        self.finished += 1
        self.set_running(running)

    def fail(self) -> None:
        """Count an exception of a handler, an `async with work:` block or the key function."""
        self.failed += 1

    @property
    def busy(self) -> float:
        """Sum of the processing times in seconds, including running records."""
        return self._busy + self._running * max(0.0, self._loop.time() - self._at)


class Workers:
    """Runs `count` worker tasks, each of which processes one record at a time.

    Owns: the tasks (cancelled tasks until they end), the record of each task, and the context
    variables of `ParallelConsumer.run()`.
    """

    def __init__(self, dispatcher: Dispatcher, count: int) -> None:
        self._dispatcher = dispatcher
        self._count = count
        self._workers: dict[asyncio.Task[None], _Worker] = {}
        self._handler: Handler | None = None
        self._context = copy_context()

    def start(self, handler: Handler) -> None:
        """Start the tasks. Raises TypeError for a generator function, whose body would not run."""
        refuse_generators("handler", handler)
        self._handler = handler
        self._context = copy_context()
        for number in range(self._count):
            self._start(f"worker-{number}")

    def is_calling(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether `task` is the task of a worker. If it is the current task, a handler has
        made the current call, for example of `stop()`.
        """
        return task in self._workers

    async def cancel(self, partitions: Collection[PartitionWork], deadline: float) -> None:
        """Cancel the workers whose handlers process records of these partitions, and start other
        workers in their place. Wait for the end of the handlers, at most until `deadline`.
        """
        busy = [
            worker
            for worker in self._workers.values()
            if worker.work is not None and worker.work.partition in partitions
        ]
        # Start a replacement for each worker first, so that a handler that ignores its cancellation
        # does not delay other partitions.
        for worker in busy:
            if not worker.owner.is_stopping:
                self._start(worker.name)
        await together(_stop_worker(worker.owner, deadline) for worker in busy)

    async def stop(self, deadline: float) -> None:
        """Cancel all workers; wait for their end, at most until `deadline`."""
        owners = [worker.owner for worker in self._workers.values()]
        await together(_stop_worker(owner, deadline) for owner in owners)

    def abandon(self) -> None:
        """Cancel all workers without waiting for them."""
        for worker in self._workers.values():
            worker.owner.cancel()

    def _start(self, name: str) -> None:
        owner = TaskOwner("parallel", self._dispatcher.fail)
        worker = _Worker(name, owner)
        # Use the context variables of `ParallelConsumer.run()`: a worker that replaces a cancelled
        # worker is started by a rebalance, which has other context variables.
        task = self._context.copy().run(owner.start, self._run(worker), name=name)
        self._workers[task] = worker
        task.add_done_callback(self._workers.pop)

    async def _run(self, worker: _Worker) -> None:
        """Process records until processing ends or the worker is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        # Register the task here too: an eager task runs before `_start()` can register it.
        self._workers[task] = worker
        dispatcher, handler = self._dispatcher, self._handler
        assert handler is not None
        loop = asyncio.get_running_loop()
        share = _MAX_BLOCKING / self._count
        yield_at = loop.time() + share
        while True:
            work = dispatcher.start_next()
            if work is None:
                work = await dispatcher.claim()
                if work is None:
                    return
                yield_at = loop.time() + share
            worker.work = work
            work.open()
            try:
                if work.failure is not None:
                    raise work.failure
                result = handler(work.record)
                if result is not None:
                    await (result if isinstance(result, CoroutineType) else _as_awaitable(result))
            except Exception as error:
                await dispatcher.handle_failure(work, error)
            except asyncio.CancelledError as error:
                if worker.owner.is_stopping or _is_cancelled(task):
                    raise
                await dispatcher.handle_failure(work, _not_cancelled(work, error))
            else:
                dispatcher.finish(work)
            finally:
                dispatcher.release_if_running(work)
                worker.work = None
            if worker.owner.is_stopping:
                # The handler ignored the cancellation of this worker, so until now its record
                # counted as running. The worker that replaces this one may wait because
                # `concurrency` was reached: wake it.
                dispatcher.wake(1)
                return
            if loop.time() > yield_at:
                await asyncio.sleep(0)
                yield_at = loop.time() + share


async def _stop_worker(owner: TaskOwner, deadline: float) -> None:
    """Cancel a worker's task, unless it is already cancelled; wait until `deadline` for its end."""
    if owner.is_stopping:
        await owner.wait(deadline)
    else:
        await owner.stop(deadline)


async def _nothing() -> None:
    """Do nothing. Awaited instead of a handler's result that is not awaitable."""


def _as_awaitable(result: object) -> Awaitable[object]:
    """Return `result` if it is awaitable, else a coroutine that ends at once. Raises TypeError for
    generators and concurrent futures.
    """
    if inspect.isawaitable(result):
        return result
    check_result(result)
    return _nothing()


def _is_cancelled(task: asyncio.Task[None]) -> bool:
    """Return whether `cancel()` of this task was called; always False before Python 3.11."""
    cancelling = getattr(task, "cancelling", None)
    return cancelling is not None and cancelling() > 0


def _not_cancelled(work: Work, error: asyncio.CancelledError) -> RuntimeError:
    record = work.record
    failure = RuntimeError(
        f"the handler of {record.topic}-{record.partition}@{record.offset} raised CancelledError "
        "without being cancelled: it awaited a cancelled task or future"
    )
    failure.__cause__ = error
    return failure


log = logging.getLogger("aiokafka.parallel")

Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Dispatcher:
    """Moves records from the reader to the queue, and from the queue to the workers.

    Owns: the waiting workers, whether processing has ended, and the failure that ended it.
    """

    def __init__(
        self,
        queue: WorkQueue,
        flow: Flow,
        concurrency: int,
        retry: RetryTopics | None,
        subject: str,
    ) -> None:
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

    # -- adding ----------------------------------------------------------------------------------

    def add(self, batches: Batches) -> None:
        """Queue the records of one `getmany()`, up to `max_bytes`, and wake workers for them.

        Records that do not fit are read again.
        """
        queue, flow = self.queue, self._flow
        most = flow.max_bytes
        for tp, records in batches.items():
            next_offset = records[0].offset
            if queue.nbytes < most:
                partition = queue.add(tp, records, most)
                flow.on_queued(partition)
                next_offset = partition.tracker.position
            # The records from `next_offset` on did not fit, and are read again. The delayed
            # records of the partition come after them and are read again too. Drop the delayed
            # records, or they would be processed twice.
            if next_offset <= records[-1].offset:
                queue.delayed.drop([tp])
                flow.read_again(tp, next_offset)
        flow.check_full()
        self.wake(queue.ready)

    def add_all(self, batches: Batches) -> None:
        """Queue delayed records that are due now."""
        if not batches:
            return
        for tp, records in batches.items():
            self._flow.on_queued(self.queue.add(tp, records, math.inf))
        self._flow.check_full()
        self.wake(self.queue.ready)

    # -- starting --------------------------------------------------------------------------------

    async def claim(self) -> Work | None:
        """Wait for the next record, start it and return it; return None when processing has ended.

        If a call is cancelled, no record was started.
        """
        loop = asyncio.get_running_loop()
        while not self.ending.is_set():
            work = self.start_next()
            if work is not None:
                return work
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            # If this call is cancelled after it was woken, another worker must be woken for the
            # record.
            is_cancelled = True
            try:
                await waiter
                is_cancelled = False
            finally:
                if is_cancelled:
                    self._wake_next(waiter)
        return None

    def start_next(self) -> Work | None:
        """Start the next record and return it; return None if no record can be started now."""
        queue = self.queue
        # `running` includes handlers of revoked partitions that still run.
        if queue.running >= self._concurrency:
            return None
        work = queue.start_next()
        if work is not None:
            self.meter.set_running(queue.running)
        return work

    async def claim_processable(self) -> Work | None:
        """Wait for the next record, start it and return it. Return None when processing has ended.

        If the application's key function raised an exception for the record, send the record to
        its retry or dead-letter topic, and wait for the next record. Without such a topic, end the
        processing and raise this exception; if the send fails, raise the error of the send.
        """
        while True:
            work = await self.claim()
            if work is None or work.failure is None:
                return work
            if not await self.end_block(work, work.failure):
                raise work.failure

    def _wake_next(self, waiter: asyncio.Future[None]) -> None:
        """Called when a worker is cancelled while it waits for the future `waiter`. If the future
        was set already, wake another worker in its place; otherwise remove the future.
        """
        if waiter.done() and not waiter.cancelled():
            self.wake(1)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)

    def wake(self, count: int) -> None:
        """Wake at most `count` waiting workers."""
        waiters = self._waiters
        while count > 0 and waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    # -- finishing -------------------------------------------------------------------------------

    def finish(self, work: Work) -> None:
        """Finish a record, and resume paused partitions if the limits allow it."""
        self.queue.finish(work)
        self.meter.finish(self.queue.running)
        flow = self._flow
        if flow.may_resume:
            flow.on_finished(work.partition)

    async def handle_failure(self, work: Work, error: Exception) -> Exception | None:
        """Send a failed record to its retry or dead-letter topic, and return None.

        - Without such a topic: end the processing and return `error`.
        - If the send fails: end the processing and return the error of the send.
        - If the partition was revoked or lost: do not send, only log and return `error`.
        """
        outcome = error
        self.meter.fail()
        topic, partition = work.partition.tp
        if not work.partition.is_ours:
            # The new owner of the partition processes the record again.
            self.log.warning(
                "%r failed after its partition was revoked; the new owner processes it: %r",
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

    async def end_block(self, work: Work, error: BaseException | None) -> bool:
        """End a record at the end of its `async with work:` block; return whether to suppress
        `error`.

        Without `error`, the record is finished; with an Exception, it has failed; with
        CancelledError or another BaseException, it is put back in the queue. Raises the error of
        the send if a failed record cannot be sent to its retry or dead-letter topic.
        """
        try:
            if error is None:
                self.finish(work)
            elif isinstance(error, Exception):
                outcome = await self.handle_failure(work, error)
                if outcome is not None and outcome is not error:
                    raise outcome
                return outcome is None
            return False
        finally:
            self.release_if_running(work)
            self.wake(self.queue.ready)

    def release_if_running(self, work: Work) -> None:
        """Put a record back in the queue if it is still RUNNING, because its handler has failed or
        was cancelled."""
        if work.state is WorkState.RUNNING:
            self.queue.release(work)
            self.meter.set_running(self.queue.running)
            self.wake(1)

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Drop revoked partitions and their queued records."""
        self.queue.drop(tps)
        self.meter.set_running(self.queue.running)
        self.wake(self.queue.ready)

    # -- ending ----------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the processing because of an error. The first error becomes `failure`."""
        # The first error is the cause; later errors follow from the cancellation of handlers.
        if self.failure is None:
            self.failure = error
        self.end()

    def end(self) -> None:
        """Return no more records to workers, and wake all waiting workers, so that they end."""
        # Close the queue before waking workers, because a woken worker looks for a record first.
        self.queue.close_all()
        self.ending.set()
        self.wake(len(self._waiters))

    async def drain(self, partitions: Collection[PartitionWork], deadline: float) -> bool:
        """Wait until no record of these partitions is running, and return True; return False if
        one is still running at `deadline`.
        """
        try:
            async with timeout_at(deadline):
                for partition in partitions:
                    while partition.running:
                        await partition.next_idle().wait()
        except asyncio.TimeoutError:
            return False
        return True


# -- The reader, which takes records from the consumer


# Maximum seconds that a `getmany()` waits; less if delayed records are due earlier.
_MAX_POLL = 10.0


class Reader:
    """Polls the consumer all the time, even while all partitions are paused: a member that does not
    poll for `max_poll_interval_ms` is removed from its group.
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

        Raises the errors of `getmany()`, and IllegalStateError if the application has replaced our
        rebalance listener by `subscribe()` or `assign()`.
        """
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wait = _MAX_POLL
            if self._delays is not None:
                self._dispatcher.add_all(self._delays.release(now))
                due = self._delays.next_due()
                wait = wait if due is None else min(wait, max(0.0, due - now))
            batches = await self._consumer.getmany(
                timeout_ms=wait * 1000, max_records=self._flow.most()
            )
            # Without the listener, records of revoked partitions would be processed here and by
            # the next owner.
            if self._consumer.rebalance_listener is not self._listener:
                raise IllegalStateError(
                    "subscribe() or assign() was called while a ParallelConsumer ran, so it gets "
                    "no notice of revoked partitions: call them before it starts"
                )
            # No await from here on: otherwise a partition could be revoked before its records are
            # queued. Skip empty lists: an interceptor may have removed all records of a partition.
            batches = {tp: records for tp, records in batches.items() if records}
            if batches:
                # If queueing fails, `in_transit` stays True, so that no commit includes records
                # that were not queued.
                self._dispatcher.queue.begin_transit()
                if self._delays is not None:
                    batches = self._delays.hold_back(batches, loop.time())
                self._dispatcher.add(batches)
                self._dispatcher.queue.finish_transit()
