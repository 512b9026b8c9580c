"""The client on a real Kafka: bootstrap, metadata, coordinators, connections."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest
from tests.kafka.fixtures import Kafka


def soon(seconds: float = 30.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_the_cluster_is_found_and_described(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        assert client.cluster.cluster_id
        assert client.controller() in client.cluster.node_ids
        partitions = await client.wait_for_topic(topic, soon())
        assert client.cluster.partitions_for_topic(topic) == partitions
        assert client.cluster.topics() == {topic}
        assert topic in (await client.fetch_all_metadata()).topics()


async def test_every_purpose_gets_a_connection(kafka: Kafka) -> None:
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        node_id = client.get_random_node()
        assert node_id is not None
        for group in ConnectionGroup:
            answers = await asyncio.gather(
                *(client.send(node_id, MetadataRequest(topics=[]), group=group) for _ in range(50))
            )
            assert {broker.node_id for answer in answers for broker in answer.brokers}
        versions = client.versions(node_id)
        assert versions is not None
        assert versions.has(ApiVersionsRequest)


async def test_coordinators_are_found(kafka: Kafka) -> None:
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        for kind in CoordinationType:
            found = await client.coordinator(kind, "some-id", soon())
            assert found in client.cluster.node_ids
            assert await client.ready(found, group=ConnectionGroup.COORDINATION)


async def test_a_topic_that_is_not_there(kafka: Kafka) -> None:
    client = AIOKafkaClient(
        bootstrap_servers=kafka.bootstrap_servers, allow_auto_create_topics=False
    )
    async with client:
        with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic"):
            await client.wait_for_topic("no-such-topic", soon(0.5))


async def test_a_request_nobody_knows_ends_only_its_connection(kafka: Kafka) -> None:
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        node_id = client.get_random_node()
        assert node_id is not None
        connection = await client.connection(node_id, ConnectionGroup.COORDINATION)
        # Request key 32512, version 0: no Kafka knows it.
        answer = connection.send_raw(b"\x7f\x00\x00\x00\x00\x00\x00\x01\xff\xff", timeout=30)
        with pytest.raises(KafkaConnectionError):
            await answer
        assert (await client.send(node_id, MetadataRequest(topics=[]))).brokers
