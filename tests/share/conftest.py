"""A fake cluster with a share group `g` that starts at the first record, and its members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaShareConsumer
from aiokafka.testing import FakeCluster
from tests.support.clocks import wall_time as wall_time
from tests.support.loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from tests.support.share import Start


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two brokers; a topic `t` with one partition, led by broker 0; locks of ten seconds."""
    config = {
        "group.share.record.lock.duration.ms": 10_000,
        "group.share.heartbeat.interval.ms": 200,
    }
    async with FakeCluster(2, config=config) as fake:
        fake.state.other_configs[32, "g"] = {"share.auto.offset.reset": "earliest"}
        await fake.create_topic("t", assignment={0: [0, 1]})
        yield fake
        assert fake.failures == []


@pytest.fixture
async def start(cluster: FakeCluster) -> AsyncIterator[Start]:
    """`await start(**options)`: a started member, which is stopped at the end of the test."""
    consumers: list[AIOKafkaShareConsumer[Any, Any]] = []

    async def make(*topics: str, **options: Any) -> AIOKafkaShareConsumer[Any, Any]:
        options.setdefault("share_acknowledgement_mode", "explicit")
        options.setdefault("fetch_max_wait_ms", 100)
        consumer = AIOKafkaShareConsumer(
            *(topics or ("t",)),
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            retry_backoff_ms=10,
            **options,
        )
        consumers.append(consumer)
        await consumer.start()
        return consumer

    yield make
    for consumer in consumers:
        await consumer.stop()
