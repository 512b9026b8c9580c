"""Connections that reach another broker than the expected one (KIP-1242)."""

from __future__ import annotations

import logging

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, RebootstrapRequired
from aiokafka.protocol.messages import ApiVersionsRequest, ListGroupsRequest, MetadataRequest
from aiokafka.testing import FakeCluster


def asked_for(cluster: FakeCluster) -> list[tuple[str | None, int]]:
    """Return the cluster id and node id in each ApiVersions request, in order."""
    seen = [each.request for each in cluster.requests(ApiVersionsRequest)]
    return [(request.cluster_id, request.node_id) for request in seen]


async def test_each_broker_gets_its_expected_ids_but_a_bootstrap_server_none() -> None:
    async with FakeCluster(brokers=2) as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
            await client.send(1, ListGroupsRequest())
        assert asked_for(cluster) == [(None, -1), (cluster.state.cluster_id, 1)]


async def test_a_misrouted_connection_is_refused_and_the_client_bootstraps_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka")
    async with FakeCluster(brokers=2, proxied=True) as cluster:
        right = cluster.proxies[1].target
        async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
            cluster.proxies[1].target = cluster.proxies[0].target
            before = cluster.count(MetadataRequest)
            with pytest.raises(KafkaConnectionError, match="than node 1 of cluster") as caught:
                await client.send(1, ListGroupsRequest())
            assert isinstance(caught.value.__cause__, RebootstrapRequired)
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) > before)
            # The request went over a new connection to the bootstrap server.
            assert asked_for(cluster)[-1] == (None, -1)
            with pytest.raises(KafkaConnectionError):
                await client.send(1, ListGroupsRequest())
            warnings = [each for each in caplog.messages if "Misrouted connection" in each]
            assert len(warnings) == 1
            cluster.proxies[1].target = right
            assert await client.send(1, ListGroupsRequest())


@pytest.mark.parametrize(
    "options",
    [
        {"metadata_cluster_check_enable": False},
        {"metadata_recovery_rebootstrap_trigger_ms": None},
    ],
)
async def test_the_check_can_be_disabled(options: dict[str, object]) -> None:
    async with FakeCluster(brokers=2, proxied=True) as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.address(0), **options) as client:
            cluster.proxies[1].target = cluster.proxies[0].target
            assert await client.send(1, ListGroupsRequest())
        assert asked_for(cluster) == [(None, -1), (None, -1)]


async def test_older_brokers_get_no_ids() -> None:
    async with FakeCluster(brokers=2, proxied=True, as_version="4.3") as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
            cluster.proxies[1].target = cluster.proxies[0].target
            assert await client.send(1, ListGroupsRequest())
        assert {each.version for each in cluster.requests(ApiVersionsRequest)} <= {0, 4}


async def test_a_producer_follows_to_another_cluster_at_the_same_address() -> None:
    """A cluster was replaced: its broker has the old address and node id."""
    async with FakeCluster(proxied=True) as old, FakeCluster() as new:
        await old.create_topic("t")
        await new.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=old.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"one")
            old.proxies[0].target = new.address(0)
            old.proxies[0].cut()
            async with timeout(20):
                await producer.send_and_wait("t", b"two")
            assert [record.value for record in new.log("t").records()] == [b"two"]
        assert (old.state.cluster_id, 0) in asked_for(new)
