"""A cluster of each profile of :mod:`aiokafka.testing.servers`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from aiokafka.testing import FakeCluster
from aiokafka.testing.servers import PROFILES
from tests.support.consumers import start as start
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories


@pytest.fixture(params=PROFILES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3, profile=request.param, seed=1) as fake:
        await fake.create_topic("t", partitions=2, replication_factor=3)
        yield fake
        assert fake.failures == []


@pytest.fixture(autouse=True)
def _nothing_to_complain_about(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    said = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
    assert said == []
