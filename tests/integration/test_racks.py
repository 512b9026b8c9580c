"""Producers and groups on brokers in racks, a real Kafka (KIP-1123, KIP-881)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
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


async def new_topic(servers: str) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    await create_topic(servers, name, 6, 3)
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
    seen: set[int] = set()
    async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer, timeout(60):
        while seen != set(range(6)):
            seen |= await sent_to(producer, topic)


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
            while await sent_to(producer, topic) <= local:
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


# -- groups


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]
)
async def test_members_get_the_partitions_of_their_rack(
    racked: KafkaCluster, assignor: type[Any]
) -> None:
    """Members join one after the other, so a sticky assignor has to move partitions."""
    servers = racked.bootstrap_servers
    topic = f"test-{uuid.uuid4().hex[:12]}"
    led = {0: 1, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3}
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        replicas = {partition: [node] for partition, node in led.items()}
        await admin.create_topics([NewTopic(topic, -1, -1, replica_assignments=replicas)])
    async with contextlib.AsyncExitStack() as stack:
        members: dict[int, AIOKafkaConsumer] = {}
        for node in (2, 3, 1):
            members[node] = AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=topic,
                client_rack=RACKS[node],
                heartbeat_interval_ms=200,
                partition_assignment_strategy=[assignor],
            )
            await stack.enter_async_context(members[node])
        async with timeout(60):
            for node, member in members.items():
                mine = {partition for partition, leader in led.items() if leader == node}
                while {tp.partition for tp in member.assignment()} != mine:
                    await asyncio.sleep(0.05)
