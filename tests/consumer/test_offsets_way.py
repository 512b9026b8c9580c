"""Which connection carries a commit while others on it may be held by the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer.position.committed import OffsetsWay
from aiokafka.net.connection import BrokerConnection
from aiokafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiokafka.testing import Edit, FakeCluster, Hold
from tests.support.groups import until

_WITH_NAMES = 9


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[AIOKafkaClient]:
    await cluster.create_topic("t")
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    yield client
    await client.close()


@pytest.fixture
async def shared(client: AIOKafkaClient) -> BrokerConnection:
    """The connection of the membership."""
    return await client.connection(0, ConnectionGroup.COORDINATION)


def commit(way: OffsetsWay, offset: int) -> asyncio.Task[object]:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    sent = way.commit(0, lambda _: request, _WITH_NAMES, {})
    return asyncio.get_running_loop().create_task(sent)


def synchronise(connection: BrokerConnection) -> asyncio.Future[SyncGroupResponse]:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    return connection.send_nowait(request)


async def test_a_membership_that_waits_for_nothing_shares_its_connection(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    way = OffsetsWay(client, (SyncGroupRequest,))
    opened = cluster.connections
    await commit(way, 1)
    assert await way.for_look_up(0) is shared
    assert cluster.groups.committed("g", "t") == 1
    assert cluster.connections == opened


async def test_a_commit_passes_what_the_coordinator_keeps(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    way = OffsetsWay(client, (SyncGroupRequest,))
    others_sync = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        await commit(way, 1)
        assert cluster.groups.committed("g", "t") == 1
        assert not sync.done()
        # The response to one that was cancelled is still due.
        sync.cancel()
        assert await way.for_look_up(0) is not shared
        others_sync.set()
        await until(cluster, lambda: not shared.in_flight)
    assert await way.for_look_up(0) is shared


async def test_no_commit_passes_a_cancelled_one_before_a_join(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    way = OffsetsWay(client, (SyncGroupRequest,))
    is_over = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(is_over), times=1) as script:
        first = commit(way, 1)
        await script.wait()
        first.cancel()
        sync = synchronise(shared)
        second = commit(way, 2)
        await until(cluster, lambda: shared.in_flight == 3)
        is_over.set()
        await asyncio.wait([sync])
        await second
    assert cluster.groups.committed("g", "t") == 2


async def test_no_commit_passes_a_cancelled_one_after_a_join(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    way = OffsetsWay(client, (SyncGroupRequest,))
    is_over, others_sync = asyncio.Event(), asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        with cluster.intercept(OffsetCommitRequest, Hold(is_over), times=1) as script:
            first = commit(way, 1)
            await script.wait()
            first.cancel()
            others_sync.set()
            await asyncio.wait([sync])
            aside = await way.for_look_up(0)
            assert aside is not shared
            second = commit(way, 2)
            await until(cluster, lambda: aside.in_flight == 2)
            is_over.set()
            await second
    assert cluster.groups.committed("g", "t") == 2


async def test_no_commit_passes_one_that_a_throttled_connection_sends_later(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    def throttle(response: OffsetCommitResponse) -> None:
        response.throttle_time_ms = 3_600_000

    way = OffsetsWay(client, (SyncGroupRequest,))
    others_sync = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        aside = await way.for_look_up(0)
        with cluster.intercept(OffsetCommitRequest, Edit(throttle), times=1):
            await commit(way, 1)
        second = commit(way, 2)
        others_sync.set()
        await sync
        assert not aside.in_flight
        assert await way.for_look_up(0) is aside
        second.cancel()
        await asyncio.wait([second])
    assert await way.for_look_up(0) is shared
