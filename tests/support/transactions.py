"""Transactions on a fake cluster: from the topic `t`, read by group `g`, to the topic `out`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.protocol.messages.transactions import TxnOffsetCommitRequest
from aiokafka.testing import FakeCluster
from tests.support.producers import committed

Produce = Callable[..., Awaitable[AIOKafkaProducer]]

READING: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
}
"""Options of a consumer whose records are processed in transactions."""


async def until(condition: Callable[[], Any]) -> None:
    async with timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def committed_values(fake: FakeCluster, topic: str = "out", partition: int = 0) -> list[Any]:
    """Return the values that a consumer with read_committed returns."""
    return committed(fake, partition, topic)


def stored(fake: FakeCluster, partitions: Collection[int] = (0, 1)) -> list[int | None]:
    """Return the committed offsets of group `g` for these partitions of topic `t`."""
    return [fake.groups.committed("g", "t", number) for number in partitions]


def members(cluster: FakeCluster) -> list[tuple[int, str]]:
    """Return the generation and member id of every TxnOffsetCommit request."""
    sent = [seen.request for seen in cluster.requests(TxnOffsetCommitRequest)]
    return [(request.generation_id_or_member_epoch, request.member_id) for request in sent]


async def put(producer: AIOKafkaProducer, offsets: Any, group: Any) -> None:
    """Commit a transaction with one record and these offsets."""
    async with producer.transaction():
        await producer.send("out", b"v", partition=0)
        await producer.send_offsets_to_transaction(offsets, group)
