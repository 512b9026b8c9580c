"""What happens to the work when partitions are assigned, revoked or lost."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import TYPE_CHECKING, Any

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.parallel.commits import Committer
    from aiokafka.parallel.dispatcher import Dispatcher
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.retry import RetryTopics
    from aiokafka.parallel.workers import Workers

__all__ = ["DrainingListener"]


# Seconds for a cancelled handler to end.
_GRACE = 1.0


class DrainingListener(ConsumerRebalanceListener):
    """Gives up partitions: finishes what runs, commits it, forgets the rest.

    The consumer calls it; it calls the application's own listener in between.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        flow: Flow,
        committer: Committer,
        workers: Workers,
        drain_timeout: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._flow = flow
        self._committer = committer
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._calling: set[asyncio.Task[Any] | None] = set()
        self.listener: Any = None
        self.retry: RetryTopics | None = None
        self.is_pattern = False  # what is read was not named

    def is_calling(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this task calls the application's listener."""
        return task in self._calling

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Finish in time, let the application do the same, commit, forget."""
        try:
            # How partitions are given up, while the group waits:
            # 1. Nothing more of them is started. What runs may end, or is cancelled when its time
            #    is over.
            # 2. The application's listener finds all of it done, and may commit or close what it
            #    keeps for the partitions.
            # 3. What is finished is committed, that of step 2 included: this is still the owner.
            # 4. They are forgotten in any case. If they come back they begin at what is committed,
            #    so records that were left over come again; kept here, they would be processed
            #    twice.
            await self.finish(revoked, self._drain_timeout)
            try:
                if self.listener is not None:
                    await self._call(self.listener.on_partitions_revoked, revoked)
            except Exception:
                # The records of step 1 are finished all the same.
                await self.commit()
                raise
            await self.commit()
        finally:
            self._forget(revoked)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """End what runs at once: other members have the partitions already."""
        try:
            # No commit: the group would refuse it, and others have the records already.
            self._dispatcher.queue.lose(lost)
            await self.finish(lost, 0.0)
            if self.listener is not None:
                # Duck-typed listeners may have only the other two methods.
                listener = self.listener
                on_lost = getattr(listener, "on_partitions_lost", listener.on_partitions_revoked)
                await self._call(on_lost, lost)
        finally:
            self._forget(lost)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Call the application first: it may seek."""
        self._set_dead_letters_aside(assigned)
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, assigned)
        # Last: the records of a partition that is resumed come from where it stands, and the
        # application may have moved that.
        self._flow.assigned(assigned)

    def _set_dead_letters_aside(self, assigned: Set[TopicPartition]) -> None:
        """Pause dead-letter topics that the pattern matches.

        Reading them would make dead letters of dead letters, without end.
        """
        if self.retry is None or not self.is_pattern:
            return
        for topic in sorted({tp.topic for tp in assigned}):
            if self.retry.is_dead_letter_topic(topic):
                self._dispatcher.log.warning(
                    "Topic %r is not read, though the pattern matches it: it is where RetryTopics "
                    "sends dead letters. Take it out of the pattern, or name the topics to read",
                    topic,
                    topic=topic,
                )
                self._flow.set_aside(tp for tp in assigned if tp.topic == topic)

    async def finish(self, tps: Iterable[TopicPartition], limit: float) -> None:
        """Start nothing more of these partitions; wait at most `limit` seconds for what runs, then
        cancel it."""
        loop = asyncio.get_running_loop()
        partitions = self._dispatcher.queue.close(tps)
        if await self._dispatcher.drain(partitions, loop.time() + limit):
            return
        late = [partition for partition in partitions if partition.running]
        names = ", ".join(f"{each.tp.topic}-{each.tp.partition}" for each in late)
        self._dispatcher.log.warning(
            "Cancelling handlers that run for longer than %g s: %s", limit, names
        )
        await self._workers.cancel(late, loop.time() + _GRACE)

    async def commit(self) -> None:
        """Commit what is finished, in the time that a handler has."""
        await self._committer.flush(asyncio.get_running_loop().time() + self._drain_timeout)

    async def _call(
        self, method: Callable[[Any], Awaitable[None] | None], partitions: Set[TopicPartition]
    ) -> None:
        task = asyncio.current_task()
        self._calling.add(task)
        try:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self._calling.discard(task)

    def _forget(self, tps: Set[TopicPartition]) -> None:
        self._dispatcher.drop(tps)
        self._flow.gone(tps)
