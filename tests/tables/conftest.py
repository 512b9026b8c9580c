"""A fake cluster with a topic of two partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        yield fake
        assert fake.failures == []
