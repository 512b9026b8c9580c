"""Gives out work, waits for it, and takes it back."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka.parallel.meter import Meter
from aiokafka.parallel.work import PartitionWork, Work, WorkQueue, WorkState

if TYPE_CHECKING:
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.retry import RetryTopics
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["Dispatcher"]

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
