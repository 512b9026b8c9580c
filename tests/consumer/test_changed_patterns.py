"""A member whose application subscribes to another regular expression that the broker matches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, SubscriptionPattern, TopicPartition
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.testing import Cut, Edit, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill
from tests.support.groups import until

U0 = TopicPartition("u", 0)


def options(cluster: FakeCluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
    }


@pytest.mark.parametrize(
    "before", [{"topics": ["t"]}, {"pattern": SubscriptionPattern("t.*")}], ids=["topics", "regex"]
)
def test_it_reads_on_what_both_match(before: dict[str, Any]) -> None:
    """The broker assigns nothing new then. The member forgot the topic: it had no leaders any more
    after the next metadata, and returned nothing for good."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            consumer = AIOKafkaConsumer(**options(cluster), metadata_max_age_ms=10_000)
            consumer.subscribe(**before)
            async with consumer:
                fill(cluster, 0, 1)
                assert (await consumer.getone()).offset == 0
                consumer.subscribe(pattern=SubscriptionPattern("(t|u).*"))
                assert await consumer.getmany(timeout_ms=30_000) == {}
                assert consumer.subscription() == {"t"}
                cluster.move_leader(T0, 1 - cluster.partition("t").leader)
                fill(cluster, 0, 1)
                records = await consumer.getmany(timeout_ms=30_000)
                assert [record.offset for record in records.get(T0, ())] == [1]

    simulate(main)


def test_the_broker_forgets_an_expression_though_it_does_not_get_the_heartbeat() -> None:
    """The next one says all, and said nothing of what had to be taken back: the member kept
    partitions of which it returned no records."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("u")
            async with AIOKafkaConsumer(**options(cluster)) as consumer:
                consumer.subscribe(pattern=SubscriptionPattern("u.*"))
                await until(cluster, lambda: consumer.assignment() == {U0})
                cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(), times=1)
                consumer.subscribe(["t"])
                await until(cluster, lambda: T0 in consumer.assignment())
                await asyncio.sleep(30)
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_static_member_is_back_without_its_expression() -> None:
    """The coordinator kept it with the member's place."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("u")
            async with AIOKafkaConsumer(**options(cluster), group_instance_id="i") as consumer:
                consumer.subscribe(pattern=SubscriptionPattern("u.*"))
                await until(cluster, lambda: consumer.assignment() == {U0})
            async with AIOKafkaConsumer("t", **options(cluster), group_instance_id="i") as consumer:
                await asyncio.sleep(30)
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_static_member_needs_no_broker_that_knows_expressions() -> None:
    def without(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == ConsumerGroupHeartbeatRequest.API_KEY:
                api.max_version = 0

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            cluster.intercept(ApiVersionsRequest, Edit(without))
            async with AIOKafkaConsumer("t", **options(cluster), group_instance_id="i") as consumer:
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_second_start_waits_for_no_topic_that_the_first_was_given() -> None:
    """It was deleted meanwhile, and it was not asked for by name: start() raised
    UnknownTopicOrPartitionError after 40 s."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("tt")
            given = options(cluster) | {"auto_offset_reset": "latest"}
            consumer = AIOKafkaConsumer(**given, allow_auto_create_topics=False)
            consumer.subscribe(pattern=SubscriptionPattern("t+"))
            with cluster.intercept(ListOffsetsRequest, Silence()) as script:
                starting = asyncio.create_task(consumer.start())
                await until(cluster, lambda: script.hits)
                starting.cancel()
                await asyncio.wait([starting])
            await cluster.delete_topic("tt")
            async with consumer:
                assert consumer.assignment() == {T0}
                assert consumer.subscription() == {"t"}

    simulate(main)
