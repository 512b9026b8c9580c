"""Show the progress of a query as the offsets of a group. Runs in the event loop of the process."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaConsumer
from aiokafka._tasks import TaskOwner
from aiokafka.spark._offsets import Offsets
from aiokafka.structs import TopicPartition

__all__ = ["Mirror"]

log = logging.getLogger("aiokafka.spark")

# So long the query waits for a commit, so that the last one is done when a query of AvailableNow
# ends; it does not wait for a coordinator that has let it wait before.
_PATIENCE = 0.5


class Mirror:
    """Commits offsets of a group that nobody is in, beside the query, which does not depend on it.

    Owns the task of the commit, and what is to be committed next. Uses the consumer's commits
    alone.
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
        """Have these committed, soon: after a commit that is under way, in place of others that
        wait for it. Never raises; a failure is logged, and the next call tries again."""
        if not offsets or offsets == self._wanted:
            return
        self._wanted = offsets
        if self._task is not None and not self._task.done():
            return
        self._task = self._tasks.start(self._run(), name="commit")
        if not self._is_late:
            _, pending = await asyncio.wait({self._task}, timeout=_PATIENCE)
            self._is_late = bool(pending)

    async def close(self) -> None:
        """End a commit that is under way."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while self._wanted != self._done:
            offsets = self._wanted
            try:
                await self._send(offsets)
            except Exception as error:
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
