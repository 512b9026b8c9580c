"""A fake cluster with a plug-in that takes metrics, and a topic of three partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.producers import TOPIC


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"metric.reporters": "Receiver"}) as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []
