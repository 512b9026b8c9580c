"""A fake cluster, and what the tests of the module do again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.clocks import wall_time as wall_time
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": 20}) as fake:
        await fake.create_topic("t", partitions=4)
        yield fake
        assert fake.failures == []
