"""Producers with acks=0: a broker that does not take a record can only close the connection."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Delay, Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values

NEVER = 10**7
"""So long, in milliseconds, that metadata is not asked for because it is old."""


async def send_for_a_minute(producer: AIOKafkaProducer) -> None:
    for number in range(60):
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)
        await asyncio.sleep(1)


@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
def test_the_new_leader_is_asked_for(version: str) -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic(TOPIC, assignment={0: (0, 1, 2)})
            async with new_producer(cluster, acks=0, metadata_max_age_ms=NEVER) as producer:
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                await asyncio.sleep(1)
                cluster.move_leader((TOPIC, 0), 1)
                await send_for_a_minute(producer)
            return values(cluster)

    found = simulate(main)
    assert found[:2] == [b"first", b"1"]
    assert len(found) == 60


def test_the_id_of_a_topic_made_again_is_asked_for() -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, acks=0, metadata_max_age_ms=NEVER) as producer:
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                await asyncio.sleep(1)
                await cluster.delete_topic(TOPIC)
                await cluster.create_topic(TOPIC)
                await send_for_a_minute(producer)
            return values(cluster)

    assert simulate(main) == [b"%d" % number for number in range(1, 60)]


def name_the_former_leader(response: MetadataResponse) -> None:
    for topic in response.topics:
        topic.partitions[0].leader_id = 0


def test_another_broker_is_asked_than_the_one_that_names_the_former_leader() -> None:
    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic(TOPIC, assignment={0: (0, 1, 2)})
            known = {"bootstrap_servers": cluster.address(0), "metadata_max_age_ms": NEVER}
            async with new_producer(cluster, acks=0, **known) as producer:
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                await asyncio.sleep(1)
                cluster.intercept(MetadataRequest, Edit(name_the_former_leader), broker=0)
                cluster.move_leader((TOPIC, 0), 1)
                await send_for_a_minute(producer)
            return len(values(cluster))

    assert simulate(main) > 50


@pytest.mark.parametrize("size", [10, 1000])
def test_records_keep_their_order_when_other_requests_leave_their_connection(size: int) -> None:
    """A request for metadata has no response for long, and what is sent behind it waits: at the
    broker, or for room in the write buffer. New requests take another connection then. Records
    would overtake there what the broker has still to read."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, acks=0, metadata_max_age_ms=2000) as producer:
                await producer.send_and_wait(TOPIC, b"%9d" % 0, partition=0)
                cluster.intercept(MetadataRequest, Delay(15), times=1)
                cluster.intercept(ProduceRequest, Delay(0.01))
                for number in range(1, 4000):
                    value = b"%9d" % number
                    if number < 200 or number >= 3000:
                        await asyncio.sleep(0.08 if number < 200 else 0.02)
                    else:
                        value = value.ljust(size)
                    await producer.send(TOPIC, value, partition=0)
            await asyncio.sleep(60)
            return values(cluster)

    numbers = [int(value) for value in simulate(main) if value is not None]
    assert numbers == list(range(4000))


@pytest.mark.parametrize("partition", [0, None])
def test_batches_under_load_stay_below_the_limit_of_the_topic(partition: int | None) -> None:
    """No response would say that a batch is too large, so each one would be lost."""
    count = 2000

    async def main(_: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, config={"max.message.bytes": "100000"})
            async with new_producer(cluster, acks=0) as producer:
                for _ in range(count):
                    await producer.send(TOPIC, bytes(500), partition=partition)
            await asyncio.sleep(1)
            return len(values(cluster))

    assert simulate(main) == count
