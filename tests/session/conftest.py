"""A fake cluster with an input topic `t` and an output topic `out`, and clients on it that are
stopped at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from tests.support.producers import QUICK
from tests.support.transactions import Produce


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
