"""Commit the lowest unfinished offset of each partition."""

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

# Seconds of the shortest and the longest backoff after failed commits. If the commit interval is
# longer, the backoff is the interval.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_LOG_INTERVAL = 60.0  # seconds between two log messages about failed commits


class Committer:
    """Sends one commit at a time, so that a slow commit cannot overwrite a later commit.

    Owns: the committed offsets (`PartitionWork.committed`).
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
        self._next_log_at = 0.0
        self._unlogged = 0

    async def run(self) -> None:
        """Commit at every interval, and at once for `flush()`, until cancelled. After a failed
        commit, wait for a backoff.

        Raises broker errors that are not retriable.
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
            # Take the waiters before the commit: a `flush()` that is called during this commit may
            # be for records that finish during the commit, so it waits for the next commit.
            waiters, self._waiters = self._waiters, []
            try:
                is_committed = await self._commit()
            finally:
                # Wake the waiters after a failure too: `flush()` waits for one attempt only,
                # because a rebalance waits for `flush()`.
                for waiter in waiters:
                    waiter.set()
            if is_committed:
                self._backoff.reset()
            pause = self._interval if is_committed else self._backoff.next()

    async def flush(self, deadline: float) -> None:
        """Commit the finished records: one attempt, at most until `deadline`. Logs failures."""
        if not self._finished():
            return
        try:
            async with timeout_at(deadline):
                # If `run()` is running, it sends the commit: the broker could store two concurrent
                # commits in the wrong order.
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
            pass  # an earlier, cancelled `stop()` has stopped the consumer
        except KafkaError as error:
            self._log.warning("Not committed, finished records will be processed again: %s", error)

    async def _commit(self) -> bool:
        """Commit the finished records; return False if the commit failed, True otherwise.

        Logs CommitFailedError, IllegalStateError and retriable errors; raises other errors.
        """
        finished = self._finished()
        if not finished:
            return True
        truncations = [len(work.truncations) for work, _ in finished]
        try:
            await self._consumer.commit({work.tp: offset for work, offset in finished})
        except (CommitFailedError, IllegalStateError) as error:
            if (more := self._log_suffix()) is not None:
                self._log.warning(
                    "Not committed, others may process these records again: %s%s", error, more
                )
            return False
        except KafkaError as error:
            if not error.retriable and not isinstance(error, KafkaTimeoutError):
                raise
            if (more := self._log_suffix()) is not None:
                self._log.warning("Commit failed, will be tried again: %s%s", error, more)
            return False
        for (work, offset), before in zip(finished, truncations, strict=True):
            self._queue.store_commit(work, offset, before)
        self._next_log_at = 0.0  # log the next failure at once
        return True

    def _log_suffix(self) -> str | None:
        """Return the end of the log message about a failed commit: the number of failures that were
        not logged before. Return None if a failure was logged within the last minute.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next_log_at:
            self._unlogged += 1
            return None
        more = f" ({self._unlogged} failures before it were not logged)" if self._unlogged else ""
        self._unlogged, self._next_log_at = 0, now + _LOG_INTERVAL
        return more

    def _finished(self) -> list[tuple[PartitionWork, int]]:
        """Return the assigned partitions with finished records to commit, and for each of them the
        offset to commit."""
        consumer = self._consumer
        lags, ends = consumer.lag(), consumer.known_end_offsets()
        finished = []
        for work in self._queue.partitions:
            # Skip revoked partitions, which stay in the queue until the listener drops them.
            if work.tp in lags:
                offset = self._committable(work, ends.get(work.tp), lags[work.tp])
                if offset > work.committed:
                    finished.append((work, offset))
        return finished

    def _committable(self, work: PartitionWork, end: int | None, lag: int | None) -> int:
        """Return the offset to commit for a partition.

        - If the end of the log is unknown: `tracker.committable`, the lowest unfinished offset, or
          the offset after the last record if all records are finished.
        - If taken records are unfinished: the same offset, but not more than the consumer's
          position.
        - Otherwise: the position, because transaction markers after the last record should not
          count as lag.

        If the lag is unknown, `work.committed` is used in place of the position.
        """
        committable = work.tracker.committable
        if end is None or end < 0:
            return committable
        # The position is after all taken records, unless the log was truncated or the topic
        # recreated. Then `committable` is an offset of the previous log; committing it would skip
        # records of the new log. With an unknown lag the position is unknown: commit nothing new.
        position = work.committed if lag is None else end - lag
        queue = self._queue
        # The position may be committed only if no taken record is unfinished. Such records would be
        # lost by the next rebalance or crash:
        # 1. Records in the queue (`span`).
        # 2. Records taken from the consumer that are not in the queue yet, or never will be,
        #    because the reading task failed before it queued them (`in_transit`).
        # 3. Records of retry topics that are not due (`delayed`).
        if work.tracker.span or queue.in_transit or work.tp in queue.delayed:
            return min(committable, position)
        return position
