"""What programs do with the client and the cluster of a consumer or a producer."""

from __future__ import annotations

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaProducer, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v0
from aiokafka.testing import FakeCluster

PARTITIONS = [(0, 0, 1, [1], [1]), (0, 1, -1, [1], [])]


def known() -> ClusterMetadata:
    cluster = ClusterMetadata()
    cluster.update_metadata(MetadataResponse_v0([(1, "a", 9092)], [(0, "t", PARTITIONS)]))
    return cluster


def test_sets_are_the_callers_own() -> None:
    cluster = known()
    for ask, wanted in (
        (lambda: cluster.partitions_for_topic("t"), {0, 1}),
        (lambda: cluster.available_partitions_for_topic("t"), {0}),
        (lambda: cluster.partitions_for_broker(1), {TopicPartition("t", 0)}),
        (cluster.topics, {"t"}),
    ):
        found = ask()
        assert type(found) is set
        assert found == wanted
        found.pop()
        assert ask() == wanted


def test_what_is_not_known_is_none() -> None:
    cluster = known()
    assert cluster.partitions_for_topic("other") is None
    assert cluster.available_partitions_for_topic("other") is None
    assert cluster.partitions_for_broker(7) is None


def test_names_of_bootstrap_servers_are_no_brokers() -> None:
    cluster = known()
    assert not cluster.is_bootstrap("bootstrap-0")
    assert cluster.broker_metadata("bootstrap-0") is None  # type: ignore[arg-type]


async def test_a_request_to_no_broker() -> None:
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    node = client.get_random_node()
    assert node is None
    with pytest.raises(NodeNotReadyError, match="no broker is known"):
        await client.send(node, MetadataRequest([]))
    await client.close()


async def test_a_request_without_a_connection_group() -> None:
    """Wrappers of `send` with their own default pass on None."""
    async with FakeCluster() as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            node = client.get_random_node()
            for _ in range(2):
                response = await client.send(node, MetadataRequest([]), group=None)
                assert response.brokers


async def test_a_forced_update_shows_all_topics_to_a_client_that_uses_none() -> None:
    """So health checks look for a topic, before anything is sent to it."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("u", partitions=2)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            client = producer.client
            assert await client.force_metadata_update()
            assert client.cluster.partitions_for_topic("u") == {0, 1}
            assert client.cluster.topics() == {"t", "u"}
            # With one in use, only that one.
            await producer.send_and_wait("t", b"v")
            assert await client.force_metadata_update()
            assert client.cluster.topics() == {"t"}
        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            assert await client.cluster.request_update()
            assert client.cluster.topics() == {"t", "u"}
