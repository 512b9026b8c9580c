"""Parts of an application for tests of groups: a rebalance listener, a loop that consumes."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import CommitFailedError
from aiokafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest, HeartbeatRequest
from aiokafka.testing import FakeCluster


class Log(ConsumerRebalanceListener):
    """A rebalance listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[int]]] = []

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append(("revoked", {tp.partition for tp in revoked}))

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self.calls.append(("assigned", {tp.partition for tp in assigned}))

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self.calls.append(("lost", {tp.partition for tp in lost}))


class Loop:
    """A task that consumes as an application does: getmany, process, commit."""

    def __init__(self, consumer: AIOKafkaConsumer, pause: float = 0.0) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, int]] = []
        self._pause = pause
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            batches = await self.consumer.getmany(timeout_ms=20, max_records=3)
            for tp, records in batches.items():
                await asyncio.sleep(self._pause)
                self.seen.extend((tp.partition, record.offset) for record in records)
                await self.consumer.commit({tp: records[-1].offset + 1})

    async def end(self) -> None:
        """Cancel the task. Raises the exception of the task, if it has failed."""
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():
            self.task.result()


def coordinator(cluster: FakeCluster) -> int:
    """Return the node id of the broker that received the last heartbeat of any member."""
    beats = [
        *cluster.requests(HeartbeatRequest),
        *cluster.requests(ConsumerGroupHeartbeatRequest),
    ]
    return max(beats, key=lambda seen: seen.context.received_at).broker_id


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Return whether the consumer has joined its group, as far as the consumer knows."""
    try:
        return consumer.group_metadata().generation_id >= 0
    except CommitFailedError:
        return False


async def until(cluster: FakeCluster, condition: Any) -> None:
    async with timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
