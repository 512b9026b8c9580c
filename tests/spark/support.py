"""Plans of streams on a fake cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.ranges import PartitionRange
from aiokafka.spark._options import parse_read
from aiokafka.spark._plan import StreamPlan, batch_tasks
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster

TOLERANT = {"failOnDataLoss": "false"}


def options(cluster: FakeCluster, *, streaming: bool, **given: Any) -> Any:
    all_of_them = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.retry.backoff.ms": "10",
        "fetchOffset.retryIntervalMs": "10",
        "kafka.request.timeout.ms": "500",
        "latestOffset.minIntervalMs": "0",
        "subscribe": "t",
        **given,
    }
    there = {name: value for name, value in all_of_them.items() if value is not None}
    return parse_read(there, streaming=streaming)


def stream(cluster: FakeCluster, **given: Any) -> StreamPlan:
    return StreamPlan(options(cluster, streaming=True, **given))


async def batch(cluster: FakeCluster, **given: Any) -> list[list[PartitionRange]]:
    return await asyncio.to_thread(batch_tasks, options(cluster, streaming=False, **given))


async def end(plan: StreamPlan, start: Any, most: int | None = None) -> Any:
    return await asyncio.to_thread(lambda: plan.end(start, most, wait=most is not None))


async def initial(plan: StreamPlan) -> Any:
    return await asyncio.to_thread(plan.initial)


async def read(plan: StreamPlan, start: Any, until: Any) -> list[tuple[str, int, int, int]]:
    """The ranges of the tasks."""
    tasks = await asyncio.to_thread(plan.tasks, start, until)
    return [r[:4] for task in tasks for r in task]


def fill(cluster: FakeCluster, *counts: int, topic: str = "t", at: int | None = None) -> None:
    for partition, count in enumerate(counts):
        for n in range(count):
            cluster.log(topic, partition).append(b"%d" % n, timestamp_ms=at)


BOTH = {"subscribe": "t,u"}
BEGIN = {"t": {"0": 0, "1": 0, "2": 0}, "u": {"0": 0, "1": 0}}


async def committed(cluster: FakeCluster) -> int | None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        stored = await admin.list_consumer_group_offsets("g")
    found = stored.get(TopicPartition("t", 0))
    return None if found is None else found.offset


MIRRORED = {
    "commitOffsets": "true",
    "kafka.group.id": "g",
    "startingOffsets": "earliest",
    "kafka.request.timeout.ms": "20000",
}
