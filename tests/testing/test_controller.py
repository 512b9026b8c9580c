"""Times without a controller, and what it notices late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from aiokafka.testing import FakeCluster

from .support import RawClient, batch, produce


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3) as started:
        await started.create_topic("t", assignment={0: [0, 1, 2]})
        yield started
        assert started.failures == []


async def metadata(cluster: FakeCluster, broker: int) -> MetadataResponse:
    async with RawClient(cluster.address(broker)) as client:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        return await client.call(wanted, 9)


def creation(name: str, timeout_ms: int) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


async def test_nothing_is_elected_without_a_controller(cluster: FakeCluster) -> None:
    cluster.controller.stop()
    await cluster.stop_broker(0)
    answer = await metadata(cluster, 1)
    assert [broker.node_id for broker in answer.brokers] == [0, 1, 2]
    assert answer.topics[0].partitions[0].leader_id == 0  # still, though it is gone
    cluster.controller.start()
    answer = await metadata(cluster, 1)
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    part = answer.topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch, part.offline_replicas) == (1, 1, [0])


async def test_a_broker_that_was_away_unnoticed(cluster: FakeCluster) -> None:
    cluster.controller.stop()
    await cluster.stop_broker(0)
    await cluster.start_broker(0)
    assert cluster.partition("t").leader_epoch == 0
    cluster.controller.start()
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, 1)
    assert cluster.replication.isr(("t", 0)) == [0, 1, 2]


async def test_it_notices_a_stopped_broker_after_its_session(cluster: FakeCluster) -> None:
    cluster.controller.session_timeout = 0.05
    await cluster.stop_broker(0)
    assert cluster.partition("t").leader == 0
    await cluster.wait_for(lambda: cluster.partition("t").leader == 1)


async def test_it_fails_over_to_another_broker(cluster: FakeCluster) -> None:
    cluster.controller.fail_over(0.02, broker_id=2)
    assert not cluster.controller.is_available
    await cluster.wait_for(lambda: cluster.controller.is_available)
    assert (await metadata(cluster, 0)).controller_id == 2


async def test_kraft_brokers_forward_until_the_time_is_over(cluster: FakeCluster) -> None:
    cluster.controller.stop()
    async with RawClient(cluster.address(0)) as client:
        answer = await client.call(creation("new", 20), 5)
        assert answer.topics[0].error_code == 7
        waiting = asyncio.create_task(client.call(creation("new", 30_000), 5))
        await cluster.wait_for(lambda: cluster.count(CreateTopicsRequest) == 2)
        cluster.controller.start()
        assert (await waiting).topics[0].error_code == 0
        deletion = DeleteTopicsRequest(topic_names=["new"], timeout_ms=20)
        assert (await client.call(deletion, 5)).responses[0].error_code == 0


async def test_no_partition_is_added_where_no_broker_can_have_it() -> None:
    """The only broker is cut off from the controller: it answers, and the controller fences it."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.faults.isolate(0)
        wanted = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=1000, validate_only=False)
        async with RawClient(cluster.address(0)) as client:
            result = (await client.call(request, 3)).results[0]
        assert (result.error_code, result.error_message) == (
            38,
            "All brokers are currently fenced.",
        )
        assert cluster.failures == []


async def test_no_broker_coordinates_while_none_is_known_to_be_alive() -> None:
    async with FakeCluster() as cluster:
        await cluster.stop_broker(0)
        cluster.controller.stop()
        await cluster.start_broker(0)
        async with RawClient(cluster.address(0)) as client:
            for kind in (0, 1):
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["one"])
                found = (await client.call(request, 4)).coordinators[0]
                assert (found.error_code, found.node_id) == (15, -1)
        assert cluster.failures == []


async def test_with_zookeeper_there_is_no_controller_id() -> None:
    async with FakeCluster(2, as_version="2.8") as cluster:
        cluster.controller.stop()
        assert (await metadata(cluster, 0)).controller_id == -1
        async with RawClient(cluster.address(0)) as client:
            assert (await client.call(creation("new", 1000), 4)).topics[0].error_code == 41
        cluster.controller.start(1)
        assert (await metadata(cluster, 0)).controller_id == 1


async def test_the_isr_stays_as_it_is_without_a_controller() -> None:
    async with FakeCluster(2, config={"replica.lag.time.max.ms": 10}) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        cluster.replication.stall(broker_id=1)
        cluster.controller.stop()
        async with RawClient(cluster.address(0)) as client:
            answer = await produce(client, "t", batch(b"x"), timeout_ms=50)
            assert answer.error_code == 7
            assert cluster.replication.isr(("t", 0)) == [0, 1]
            waiting = asyncio.create_task(produce(client, "t", batch(b"y"), timeout_ms=30_000))
            await cluster.wait_for(lambda: cluster.log("t").end_offset == 2)
            cluster.controller.start()
            assert (await waiting).error_code == 0
        assert cluster.replication.isr(("t", 0)) == [0]


async def test_wrong_arguments(cluster: FakeCluster) -> None:
    with pytest.raises(KeyError):
        cluster.controller.start(9)
    with pytest.raises(KeyError, match="no partition"):
        cluster.controller.elect(("nothing", 0), 0)
    with pytest.raises(KeyError, match="no broker"):
        cluster.controller.elect(("t", 0), 9)
    await cluster.stop_broker(2)
    with pytest.raises(ValueError, match="runs"):
        cluster.controller.elect(("t", 0), 2, unclean=True)
