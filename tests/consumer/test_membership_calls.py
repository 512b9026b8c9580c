"""`enforce_rebalance()` (KIP-568) and `stop(leave=)` (KIP-1092)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import ConsumerStoppedError, IllegalOperation, IllegalStateError
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka.testing import Cut, FakeCluster, Hold
from tests.support.consumer_protocol import CONFIG
from tests.support.consumers import T0, Start
from tests.support.groups import until

CLASSIC: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
KIP_848: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}


def generation(cluster: FakeCluster) -> int:
    return cluster.groups.classic["g"].generation


def members(cluster: FakeCluster) -> int:
    groups = cluster.groups
    group = groups.consumer.get("g") or groups.classic["g"]
    return len(group.members)


# -- enforce_rebalance


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize("caller", [0, 1])
async def test_the_group_rebalances_whichever_member_calls(
    cluster: FakeCluster, start: Start, assignor: Any, caller: int
) -> None:
    """The coordinator ignores a member that joins again, is no leader and says nothing new."""
    await cluster.create_topic("t", partitions=2)
    options = {**CLASSIC, "partition_assignment_strategy": [assignor]}
    consumers = [await start(cluster, "t", **options) for _ in range(2)]
    await until(cluster, lambda: [len(each.assignment()) for each in consumers] == [1, 1])
    before = generation(cluster)
    for turn in range(1, 3):
        consumers[caller].enforce_rebalance("the load has changed")
        await until(cluster, lambda turn=turn: generation(cluster) == before + turn)
        await until(cluster, lambda: all(each.assignment() for each in consumers))
    reasons = [seen.request.reason for seen in cluster.requests(JoinGroupRequest)]
    assert reasons.count("the application enforces a rebalance: the load has changed") == 2


async def test_a_call_during_a_rebalance_leads_to_another_one(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    leader = await start(cluster, "t", **CLASSIC)
    consumer = await start(cluster, "t", **CLASSIC)
    await until(cluster, lambda: bool(consumer.assignment()) and bool(leader.assignment()))
    before, go_on = generation(cluster), asyncio.Event()
    held = cluster.intercept(SyncGroupRequest, Hold(go_on), times=1)
    consumer.enforce_rebalance()
    await held.wait()
    consumer.enforce_rebalance()
    go_on.set()
    await until(cluster, lambda: generation(cluster) == before + 2)
    await until(cluster, lambda: bool(consumer.assignment()) and bool(leader.assignment()))


async def test_a_join_that_fails_still_forces_the_rebalance(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    leader = await start(cluster, "t", **CLASSIC)
    consumer = await start(cluster, "t", **CLASSIC)
    await until(cluster, lambda: bool(consumer.assignment()) and bool(leader.assignment()))
    before = generation(cluster)
    cluster.intercept(JoinGroupRequest, Cut(), times=2)
    consumer.enforce_rebalance()
    await until(cluster, lambda: generation(cluster) > before)


async def test_wrong_calls(cluster: FakeCluster, start: Start) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g")
    with pytest.raises(IllegalStateError, match="not started"):
        consumer.enforce_rebalance()
    assigned = await start(cluster, assign=[T0], **CLASSIC)
    with pytest.raises(IllegalOperation, match="subscribe"):
        assigned.enforce_rebalance()
    with pytest.raises(TypeError, match="reason: must be a string"):
        assigned.enforce_rebalance(5)  # type: ignore[arg-type]
    alone = await start(cluster, "t")
    with pytest.raises(IllegalOperation, match="group_id"):
        alone.enforce_rebalance()
    by_broker = await start(cluster, "t", group_id="h", group_protocol="consumer")
    with pytest.raises(IllegalOperation, match="KIP-848"):
        by_broker.enforce_rebalance()
    await assigned.stop()
    with pytest.raises(ConsumerStoppedError):
        assigned.enforce_rebalance()


# -- stop(leave=)


@pytest.mark.parametrize("options", [CLASSIC, KIP_848], ids=["classic", "consumer"])
@pytest.mark.parametrize("instance", [None, "one"], ids=["dynamic", "static"])
@pytest.mark.parametrize("leave", [None, True, False])
async def test_who_leaves_the_group(
    start: Start, options: dict[str, Any], instance: str | None, leave: bool | None
) -> None:
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", group_instance_id=instance, **options)
        await until(cluster, lambda: bool(consumer.assignment()))
        assert members(cluster) == 1
        await consumer.stop(leave=leave)
        leaves = leave if leave is not None else instance is None
        assert members(cluster) == (0 if leaves else 1)
        if options is CLASSIC:
            sent = [seen.request for seen in cluster.requests(LeaveGroupRequest)]
            named = [each.group_instance_id for request in sent for each in request.members]
            assert named == ([instance] if leaves else [])
        else:
            beats = [seen.request for seen in cluster.requests(ConsumerGroupHeartbeatRequest)]
            last = beats[-1].member_epoch
            assert (last == -1) == leaves
            # A static member leaves for a while, by epoch -2.
            assert (last == -2) == (not leaves and instance is not None)
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["0.10.2", "2.1", "2.8"])
async def test_leaving_on_older_brokers(start: Start, release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", **CLASSIC)
        await consumer.stop(leave=True)
        assert members(cluster) == 0
        consumer = await start(cluster, "t", **CLASSIC)
        await consumer.stop(leave=False)
        assert members(cluster) == 1


async def test_the_next_member_waits_for_the_session_of_one_that_remains(start: Start) -> None:
    options = {**CLASSIC, "session_timeout_ms": 300, "rebalance_timeout_ms": 5000}
    async with FakeCluster(config={"group.min.session.timeout.ms": "100"}) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", **options)
        await consumer.stop(leave=False)
        assert members(cluster) == 1
        follower = await start(cluster, "t", **options)
        await until(cluster, lambda: bool(follower.assignment()))
        assert members(cluster) == 1
        await follower.stop()


async def test_leave_must_be_a_truth_value(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, "t", **CLASSIC)
    with pytest.raises(TypeError, match="leave: must be True, False or None"):
        await consumer.stop(leave="yes")  # type: ignore[arg-type]
