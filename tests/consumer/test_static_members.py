"""Members that keep their name when they are restarted (KIP-345), and what a leader says and
learns of members."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import FencedInstanceId, InvalidSessionTimeoutError
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start
from tests.support.groups import until

OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "metadata_max_age_ms": 50,
}


async def grow(cluster: FakeCluster, count: int) -> None:
    """Have more partitions of t."""
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_partitions({"t": NewPartitions(count)})


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
async def test_a_static_leader_that_was_restarted_notices_new_partitions(
    start: Start, release: str
) -> None:
    """Brokers before 3.2 do not tell it that it is the leader (KIP-814)."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        await first.stop()
        joins = cluster.count(JoinGroupRequest)
        second = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        assert len(second.assignment()) == 1
        assert cluster.count(JoinGroupRequest) == joins + 1  # Its share stood.
        await grow(cluster, 3)
        await until(cluster, lambda: len(second.assignment()) == 3)
        await second.stop()


async def test_a_static_leader_notices_partitions_that_were_added_while_it_was_away(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
    await first.stop()
    await grow(cluster, 3)
    second = await start(cluster, "t", group_instance_id="one", **OPTIONS)
    await until(cluster, lambda: len(second.assignment()) == 3)


@pytest.mark.parametrize(
    "strategy",
    [
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    ],
)
async def test_members_tell_their_rack(cluster: FakeCluster, start: Start, strategy: Any) -> None:
    await cluster.create_topic("t", partitions=2)
    options = {**OPTIONS, "partition_assignment_strategy": [strategy]}
    consumer = await start(cluster, "t", client_rack="north", **options)
    assert len(consumer.assignment()) == 2
    protocol = cluster.requests(JoinGroupRequest)[-1].request.protocols[0]
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.version) == ("north", 3)
    assert metadata.subscription == ["t"]


async def test_without_a_rack_members_say_what_they_always_said(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    await start(cluster, "t", **OPTIONS)
    protocol = cluster.requests(JoinGroupRequest)[-1].request.protocols[0]
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.version) == (None, 0)


async def test_a_member_that_was_replaced_says_by_what(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
    await start(cluster, "t", group_instance_id="one", **OPTIONS)
    with pytest.raises(
        FencedInstanceId, match="another member joined with group_instance_id='one'"
    ):
        await first.getone()


async def test_a_session_timeout_that_the_broker_refuses_is_named(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    with pytest.raises(
        InvalidSessionTimeoutError,
        match=r"(?s)session_timeout_ms=5000.*group.min.session.timeout.ms.*group.max.session",
    ):
        await start(cluster, "t", session_timeout_ms=5000, **OPTIONS)
