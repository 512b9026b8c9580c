"""A fake cluster, and consumers on it that are stopped at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.loops import LoopFactory, in_virtual_time


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    return in_virtual_time(config, item)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        yield fake
        assert fake.failures == []
