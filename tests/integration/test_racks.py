"""Producers and groups on brokers in racks, a real Kafka (KIP-1123, KIP-881)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

RACKS = {node: f"rack-{node}" for node in (1, 2, 3)}
# Each of them fills a batch, and a partitioner without a key changes the partition then.
VALUE = bytes(20_000)


@pytest.fixture(scope="module")
def racked() -> Iterator[KafkaCluster]:
    """Three brokers, each in a rack of its own."""
    need_own_brokers()
    with KafkaCluster(nodes=3, config={"broker.rack": "rack-{node}"}) as cluster:
        yield cluster


async def leaders(servers: str, topic: str) -> dict[int, int]:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        (found,) = await admin.describe_topics([topic])
    return {each["partition"]: each["leader"] for each in found["partitions"]}


async def new_topic(servers: str, partitions: int = 6) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    await create_topic(servers, name, partitions, 3)
    return name


async def sent_to(producer: AIOKafkaProducer, topic: str, **record: Any) -> set[int]:
    """Return the partitions of 60 records."""
    async with timeout(60):
        futures = [await producer.send(topic, VALUE, **record) for _ in range(60)]
        return {(await future).partition for future in futures}


async def test_records_without_a_key_stay_in_the_rack(racked: KafkaCluster) -> None:
    servers = racked.bootstrap_servers
    topic = await new_topic(servers)
    led = await leaders(servers, topic)
    assert set(led.values()) == set(RACKS)
    for node, rack in RACKS.items():
        options = {"client_rack": rack, "partitioner_rack_aware": True}
        async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
            local = {partition for partition, leader in led.items() if leader == node}
            assert await sent_to(producer, topic) == local


@pytest.mark.parametrize(
    "options", [{"client_rack": "rack-1"}, {"client_rack": "none", "partitioner_rack_aware": True}]
)
async def test_all_partitions_are_used_without_a_rack(
    racked: KafkaCluster, options: dict[str, Any]
) -> None:
    servers = racked.bootstrap_servers
    topic = await new_topic(servers)
    async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
        assert await sent_to(producer, topic) == set(range(6))


async def test_records_follow_the_leaders(racked: KafkaCluster) -> None:
    """The rack loses its broker and gets it back; records with a key stay where they are."""
    servers = racked.bootstrap_servers
    topic = await new_topic(servers)
    led = await leaders(servers, topic)
    options = {"client_rack": "rack-3", "partitioner_rack_aware": True}
    async with AIOKafkaProducer(
        bootstrap_servers=servers, metadata_max_age_ms=300, **options
    ) as producer:
        (keyed,) = await sent_to(producer, topic, key=b"k")
        local = await sent_to(producer, topic)
        await asyncio.to_thread(racked.terminate, 3)
        async with timeout(60):
            while await sent_to(producer, topic) != set(range(6)):
                pass
        assert await sent_to(producer, topic, key=b"k") == {keyed}
        await asyncio.to_thread(racked.restart, 3)
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin, timeout(60):
            while await leaders(servers, topic) != led:
                with contextlib.suppress(KafkaError):  # the replica may not be in sync yet
                    await admin.topics.elect_leaders()
        async with timeout(60):
            while await sent_to(producer, topic) != local:
                pass
