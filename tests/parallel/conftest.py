"""A fake cluster, and what the tests of the module do again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from aiokafka.testing import FakeCluster
from tests.support.loops import LoopFactory, in_virtual_time


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    return in_virtual_time(config, item)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": 20}) as fake:
        await fake.create_topic("t", partitions=4)
        yield fake
        assert fake.failures == []
