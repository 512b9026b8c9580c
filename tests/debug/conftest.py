"""A fake cluster with a topic of three partitions, and consumers that are stopped at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.producers import TOPIC


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []
