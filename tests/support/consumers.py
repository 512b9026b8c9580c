"""Consumers on a fake cluster, stopped at the end of the test, and records for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.testing import FakeCluster

Start = Callable[..., Awaitable[AIOKafkaConsumer]]

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start(cluster, *topics, **options)`: a started consumer that reads from the
    beginning."""
    consumers: list[tuple[AIOKafkaConsumer, FakeCluster]] = []

    async def make(fake: FakeCluster, *topics: str, assign: Any = (), **options: Any) -> Any:
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("retry_backoff_ms", 10)
        options.setdefault("fetch_max_wait_ms", 100)
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=fake.bootstrap_servers, **options)
        consumers.append((consumer, fake))
        if assign:
            consumer.assign(assign)
        await consumer.start()
        return consumer

    yield make
    for consumer, fake in consumers:
        # To a cluster that the test has ended nobody can commit: do not wait for it.
        await consumer.stop(timeout=None if fake.state.live_nodes() else 0)


def fill(
    fake: FakeCluster, partition: int, count: int, *, topic: str = "t", batch: int = 1
) -> None:
    """Write `count` numbered records, `batch` of them to a batch."""
    log = fake.log(topic, partition)
    start = log.end_offset
    numbers = range(start, start + count)
    for first in range(0, count, batch):
        log.extend([(None, b"%d" % n, ()) for n in numbers[first : first + batch]])
