from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Hold
from tests.producer.held import Held
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from tests.support.producers import TOPIC, new_producer


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """One broker, one topic of three partitions."""
    async with FakeCluster() as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


@pytest.fixture
async def three() -> AsyncIterator[FakeCluster]:
    """Three brokers, one topic of one partition that broker 0 leads."""
    async with FakeCluster(brokers=3) as fake:
        await fake.create_topic(TOPIC, assignment={0: (0, 1, 2)})
        yield fake
        assert fake.failures == []


@pytest.fixture
async def held(cluster: FakeCluster) -> AsyncIterator[Held]:
    """A producer whose requests are answered later."""
    event = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(event), times=None) as requests:
        async with new_producer(cluster) as producer:
            yield Held(producer, event, requests)
            event.set()


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    """The contexts that the event loop was given for its exception handler."""
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    return seen
