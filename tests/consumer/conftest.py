"""A fake cluster, and consumers on it that are stopped at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumer_protocol import CONFIG
from tests.support.consumers import fill
from tests.support.consumers import start as start
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        yield fake
        assert fake.failures == []


@pytest.fixture
async def four() -> AsyncIterator[FakeCluster]:
    """A cluster with a topic of four partitions, and heartbeats of the consumer protocol every
    20 ms."""
    async with FakeCluster(config=CONFIG) as fake:
        await fake.create_topic("t", partitions=4)
        yield fake
        assert fake.failures == []


@pytest.fixture
async def filled() -> AsyncIterator[FakeCluster]:
    """A cluster with nine records in a partition, and heartbeats of the consumer protocol every
    20 ms."""
    async with FakeCluster(config=CONFIG) as fake:
        await fake.create_topic("t")
        fill(fake, 0, 9)
        yield fake
        assert fake.failures == []


@pytest.fixture
async def two_brokers() -> AsyncIterator[FakeCluster]:
    """Two brokers, and a topic with one partition on both."""
    async with FakeCluster(brokers=2) as fake:
        await fake.create_topic("t", replication_factor=2)
        yield fake
