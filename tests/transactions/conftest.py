"""A fake cluster with an input topic `t` and an output topic `out`, and clients on it that are
stopped at the end of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.testing import FakeCluster
from tests.consumer.conftest import start as start
from tests.producer.support import QUICK

Produce = Callable[..., Awaitable[AIOKafkaProducer]]

READING: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
}
"""Options of a consumer whose records are processed in transactions."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        await fake.create_topic("out")
        yield fake
        assert fake.failures == []


@pytest.fixture
async def produce() -> AsyncIterator[Produce]:
    """`await produce(cluster, **options)`: a started transactional producer."""
    producers: list[AIOKafkaProducer] = []

    async def make(fake: FakeCluster, **options: Any) -> AIOKafkaProducer:
        defaults = {"transactional_id": "worker", "bootstrap_servers": fake.bootstrap_servers}
        producer = AIOKafkaProducer(**{**QUICK, **defaults, **options})
        producers.append(producer)
        await producer.start()
        return producer

    yield make
    for producer in producers:
        await producer.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def committed_values(fake: FakeCluster, topic: str = "out", partition: int = 0) -> list[Any]:
    """What a consumer with read_committed sees."""
    log = fake.log(topic, partition)
    dropped: set[int] = set()
    for one in log.producers.aborted_between(0, log.end_offset):
        for batch in log.batches:
            is_its = batch.producer_id == one.producer_id and batch.is_transactional
            if is_its and one.first_offset <= batch.base_offset < one.last_offset:
                dropped.update(range(batch.base_offset, batch.last_offset + 1))
    end = log.last_stable_offset
    return [r.value for r in log.records() if r.offset not in dropped and r.offset < end]


def stored(fake: FakeCluster, partitions: Collection[int] = (0, 1)) -> list[int | None]:
    """The offsets that group `g` has committed for topic `t`."""
    return [fake.groups.committed("g", "t", number) for number in partitions]
