"""Mirror the progress of a query as the offsets of a group. Runs in the process's event loop."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaConsumer
from aiokafka._tasks import TaskOwner
from aiokafka.spark._offsets import Offsets
from aiokafka.structs import TopicPartition

__all__ = ["Mirror"]

log = logging.getLogger("aiokafka.spark")

# The query waits this long for a commit, so that the last one is done when an AvailableNow query
# ends. It does not wait for a coordinator that has kept it waiting before.
_PATIENCE = 0.5


class Mirror:
    """Commits offsets of a group without members, for display: the query does not depend on it.

    Owns the task of the commit, and the offsets to commit next. Uses only the consumer's commits.
    """

    def __init__(self, consumer: AIOKafkaConsumer, group_id: str | None) -> None:
        self._consumer = consumer
        self._group_id = group_id
        self._tasks = TaskOwner("aiokafka-spark-mirror")
        self._task: asyncio.Task[None] | None = None
        self._wanted: Offsets = {}
        self._done: Offsets = {}
        self._is_late = False
        self._warned = False

    async def commit(self, offsets: Offsets) -> None:
        """Commit these offsets soon: after the commit in progress, in place of any that wait.

        Never raises. A failure is logged, and the next call tries again.
        """
        if not offsets or offsets == self._wanted:
            return
        # Before the look at the task: one that runs takes it up when its commit is over.
        self._wanted = offsets
        if self._task is not None and not self._task.done():
            return
        self._task = self._tasks.start(self._run(), name="commit")
        if not self._is_late:
            _, pending = await asyncio.wait({self._task}, timeout=_PATIENCE)
            self._is_late = bool(pending)

    async def close(self) -> None:
        """Cancel a commit in progress."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while self._wanted != self._done:
            offsets = self._wanted
            try:
                await self._send(offsets)
            except Exception as error:
                # The same offsets count as new with the next call, which then tries again.
                self._tell(error)
                self._wanted = self._done
                return
            self._done = offsets
            self._is_late = self._warned = False

    async def _send(self, offsets: Offsets) -> None:
        entries = {
            TopicPartition(topic, number): offset
            for topic, numbers in offsets.items()
            for number, offset in numbers.items()
        }
        if self._consumer.assignment() != entries.keys():
            self._consumer.assign(list(entries))
            self._consumer.pause(*entries)
        await self._consumer.commit(entries)

    def _tell(self, error: Exception) -> None:
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "progress is not mirrored to group %s: %s",
            self._group_id,
            error,
        )
        self._warned = True
