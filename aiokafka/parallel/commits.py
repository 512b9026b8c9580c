"""Commits up to the lowest unfinished offset of each partition."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka._compat import timeout, timeout_at
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.work import PartitionWork, WorkQueue

__all__ = ["Committer"]

log = logging.getLogger("aiokafka.parallel")

# Seconds between two commits that fail, unless the interval is longer.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_QUIET = 60.0  # seconds between two lines of the log about commits that fail


class Committer:
    """Sends one commit at a time, so that a slow one never overwrites a later one.

    Owns: the offsets committed last (`PartitionWork.committed`).
    """

    def __init__(
        self, consumer: AIOKafkaConsumer, queue: WorkQueue, interval: float, subject: str
    ) -> None:
        self._consumer = consumer
        self._log = SubjectLog(log, subject)
        self._queue = queue
        self._interval = interval
        self._backoff = Backoff(max(interval, _SHORTEST_PAUSE), max(interval, _LONGEST_PAUSE))
        self._is_urgent = asyncio.Event()
        self._waiters: list[asyncio.Event] = []
        self._is_running = False
        self._quiet_until = 0.0
        self._unsaid = 0

    async def run(self) -> None:
        """Commit every interval, later after failures, and when asked to, until cancelled.

        Raises errors of the broker that are not retriable.
        """
        self._is_running = True
        try:
            await self._run()
        finally:
            self._is_running = False

    async def _run(self) -> None:
        pause = self._interval
        while True:
            try:
                async with timeout(pause):
                    await self._is_urgent.wait()
            except asyncio.TimeoutError:
                pass
            self._is_urgent.clear()
            # Before the commit: a `flush` that comes during it is about what was finished since,
            # and waits for the next one.
            waiters, self._waiters = self._waiters, []
            try:
                is_committed = await self._commit()
            finally:
                # Also if it failed: `flush` promises one attempt, and a rebalance waits for it.
                for waiter in waiters:
                    waiter.set()
            if is_committed:
                self._backoff.reset()
            pause = self._interval if is_committed else self._backoff.next()

    async def flush(self, deadline: float) -> None:
        """Commit everything that is finished now: one attempt, at most until `deadline`."""
        if not self._finished():
            return
        try:
            async with timeout_at(deadline):
                # By the one task that commits: two commits on their way at once could be stored the
                # other way round.
                if self._is_running:
                    done = asyncio.Event()
                    self._waiters.append(done)
                    self._is_urgent.set()
                    await done.wait()
                else:
                    await self._commit()
        except asyncio.TimeoutError:
            self._log.warning(
                "Not committed in time: some finished records will be processed again"
            )
        except ConsumerStoppedError:
            pass  # a `stop()` before this one came so far, and was cancelled then
        except KafkaError as error:
            self._log.warning("Not committed, finished records will be processed again: %s", error)

    async def _commit(self) -> bool:
        """Commit what is finished; return whether nothing of it has to be committed again."""
        finished = self._finished()
        if not finished:
            return True
        cuts = [len(work.cuts) for work, _ in finished]
        try:
            await self._consumer.commit({work.tp: offset for work, offset in finished})
        except (CommitFailedError, IllegalStateError) as error:
            if (more := self._next_complaint()) is not None:
                self._log.warning(
                    "Not committed, others may process these records again: %s%s", error, more
                )
            return False
        except KafkaError as error:
            if not error.retriable and not isinstance(error, KafkaTimeoutError):
                raise
            if (more := self._next_complaint()) is not None:
                self._log.warning("Commit failed, there will be another: %s%s", error, more)
            return False
        for (work, offset), before in zip(finished, cuts, strict=True):
            self._queue.note_commit(work, offset, before)
        self._quiet_until = 0.0  # the next failure is news
        return True

    def _next_complaint(self) -> str | None:
        """Return what to add to the line of the log about a commit that failed: how many others
        have failed since the last line. None if there was a line in this minute."""
        now = asyncio.get_running_loop().time()
        if now < self._quiet_until:
            self._unsaid += 1
            return None
        more = f" ({self._unsaid} failures before it were not logged)" if self._unsaid else ""
        self._unsaid, self._quiet_until = 0, now + _QUIET
        return more

    def _finished(self) -> list[tuple[PartitionWork, int]]:
        """Return what is finished and not committed, of partitions that are still ours."""
        consumer = self._consumer
        lags, ends = consumer.lag(), consumer.known_end_offsets()
        finished = []
        for work in self._queue.partitions:
            # The assignment of this moment. What was revoked is dropped a little later, by the
            # listener.
            if work.tp in lags:
                offset = self._committable(work, ends.get(work.tp), lags[work.tp])
                if offset > work.committed:
                    finished.append((work, offset))
        return finished

    def _committable(self, work: PartitionWork, end: int | None, lag: int | None) -> int:
        """Return the offset to commit for a partition.

        With nothing unfinished this is the position: markers of transactions may follow the last
        record, and should not count as lag.
        """
        committable = work.tracker.committable
        if end is None or end < 0:
            return committable
        # The position is behind all that was taken, unless the log was cut, or the topic made
        # again: what was finished of the former log would skip records of this one.
        position = work.committed if lag is None else end - lag
        queue = self._queue
        # It may be committed only where nothing of what was taken is left to do:
        # 1. taken and not finished (`span`),
        # 2. taken and not in the queue yet, nor ever, if the reading task failed right then
        #    (`in_transit`),
        # 3. kept for later, as records of retry topics are (`waiting`).
        # Each of them would be lost with the next rebalance or crash.
        if work.tracker.span or queue.in_transit or work.tp in queue.waiting:
            return min(committable, position)
        return position
