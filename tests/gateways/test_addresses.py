"""Servers behind one address, and servers whose addresses change with each look."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, Start, read

BROKERS = 3


@pytest.fixture
async def agents() -> AsyncIterator[FakeCluster]:
    """Brokers each of which serves each partition."""
    async with FakeCluster(BROKERS, profile="warpstream") as fake:
        await fake.create_topic("t")
        yield fake
        assert fake.failures == []


async def use(cluster: FakeCluster, bootstrap: str, start: Start, **options: Any) -> None:
    """Produce, read as a group, and administer."""
    options |= {"bootstrap_servers": bootstrap}
    async with timeout(30):
        async with AIOKafkaProducer(**options, linger_ms=1) as producer:
            for number in range(200):
                await producer.send("t", b"%d" % number, partition=0)
        consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
        assert await read(consumer, 200) == [(0, number) for number in range(200)]
        await consumer.commit()
        assert await consumer.committed(T0) == 200
        async with AIOKafkaAdminClient(**options) as admin:
            assert "t" in await admin.list_topics()
            assert ("g", "consumer") in await admin.list_consumer_groups()


async def test_all_brokers_have_one_address(agents: FakeCluster, start: Start) -> None:
    """As behind a load balancer that passes requests on to any of them."""
    host, _, port = agents.address(0).rpartition(":")
    for node in range(1, BROKERS):
        agents.advertise(node, host, int(port))
    agents.move_coordinator("group", "g", 0)
    await use(agents, agents.address(0), start, metadata_max_age_ms=20)
    # One connection for each broker and kind of work, though the address is the same.
    assert agents.broker(0).connections <= 3 * BROKERS + 1


async def test_addresses_change_with_each_refresh(agents: FakeCluster, start: Start) -> None:
    looks = itertools.count()
    addresses = [agents.address(node).rpartition(":") for node in range(BROKERS)]

    def turn(response: MetadataResponse) -> None:
        look = next(looks)
        for broker in response.brokers:
            host, _, port = addresses[(broker.node_id + look) % BROKERS]
            broker.host, broker.port = host, int(port)

    agents.intercept(3, Edit(turn))
    await use(agents, agents.bootstrap_servers, start, metadata_max_age_ms=20)
    # Those of former addresses are closed.
    assert agents.connections <= 4 * BROKERS
