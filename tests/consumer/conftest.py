"""A fake cluster, and consumers on it that are stopped at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster
from tests.support.consumers import start as start
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        yield fake
        assert fake.failures == []
