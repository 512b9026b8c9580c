"""A fake cluster, and what the tests of the module do again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aiokafka import _clock
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import SimulatedLoop
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture
async def wall_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The time of day in the clients, which passes as fast as the time of the loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        monkeypatch.setattr(_clock, "wall_time", loop.wall_time)
    return _clock.wall_time


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": 20}) as fake:
        await fake.create_topic("t", partitions=4)
        yield fake
        assert fake.failures == []
