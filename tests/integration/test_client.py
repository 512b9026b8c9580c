"""The client on a real Kafka: bootstrap, metadata, coordinators, connections."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import (
    KafkaConnectionError,
    RebootstrapRequired,
    UnknownTopicOrPartitionError,
)
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest
from tests.kafka.fixtures import Kafka, need_own_brokers
from tests.kafka.launcher import KafkaCluster


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


async def test_a_broker_refuses_connections_to_another_broker() -> None:
    """KIP-1242: each broker since Kafka 4.4 checks the cluster id and node id of its clients."""
    need_own_brokers()
    with KafkaCluster("4.4.0") as kafka:
        async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
            node_id, cluster_id = client.get_random_node(), client.cluster.cluster_id
            assert node_id is not None and cluster_id is not None
            # The client itself sends the right ids with each connection.
            connection = await client.connection(node_id, ConnectionGroup.OFFSETS)
            assert connection.pick(ApiVersionsRequest) == 5
            host, _, port = kafka.bootstrap_servers.split(",")[0].partition(":")
            connector = Connector(client.config, host, int(port), "")
            for wrong in ((cluster_id, node_id + 100), ("another", node_id)):
                with pytest.raises(KafkaConnectionError, match="another broker than") as caught:
                    await connector.open(soon(), expected=wrong)
                assert isinstance(caught.value.__cause__, RebootstrapRequired)
            opened = await connector.open(soon(), expected=(cluster_id, node_id))
            opened.close()
            await opened.closed


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
