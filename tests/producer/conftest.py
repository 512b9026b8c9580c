from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.producers import TOPIC


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """One broker, one topic of three partitions."""
    async with FakeCluster() as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


@pytest.fixture
async def three() -> AsyncIterator[FakeCluster]:
    """Three brokers, one topic of one partition that broker 0 leads."""
    async with FakeCluster(brokers=3) as fake:
        await fake.create_topic(TOPIC, assignment={0: (0, 1, 2)})
        yield fake
        assert fake.failures == []
