"""A fake cluster for the parts of the Spark source and sink that need no Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.spark._loop import loop_thread
from aiokafka.testing import FakeCluster


@pytest.fixture(autouse=True)
async def thread() -> AsyncIterator[None]:
    """Ends what a test keeps open in this process: the next one counts its own clients."""
    yield
    await asyncio.to_thread(loop_thread().stop)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=3)
        yield fake
        assert fake.failures == []
