"""How many rebalances an event causes, and how often listeners are called: as with aiokafka."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import GroupLoadInProgressError
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Fail, FakeCluster, Silence
from tests.support.consumers import Start, client_of
from tests.support.groups import Log, is_member, until

OPTIONS: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
BOTH = pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])


async def matching(
    cluster: FakeCluster, start: Start, log: Log, assignor: Any, **options: Any
) -> AIOKafkaConsumer:
    """Start a member with a pattern, whose metadata is refreshed only when something asks."""
    consumer = await start(
        cluster,
        metadata_max_age_ms=3_600_000,
        partition_assignment_strategy=[assignor],
        **OPTIONS,
        **options,
    )
    consumer.subscribe(pattern="t.*", listener=log)
    await until(cluster, lambda: is_member(consumer))
    return consumer


@BOTH
@pytest.mark.parametrize("finder", [0, 1])
async def test_a_new_topic_that_one_member_finds_is_shared_by_all_at_once(
    cluster: FakeCluster, start: Start, assignor: Any, finder: int
) -> None:
    """The others would get nothing of it until their own metadata is refreshed."""
    await cluster.create_topic("t1", partitions=2)
    logs = [Log(), Log()]
    members = [await matching(cluster, start, log, assignor) for log in logs]
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    await cluster.create_topic("t2", partitions=2)
    before = cluster.groups.classic["g"].generation
    await client_of(members[finder]).force_metadata_update()
    await until(cluster, lambda: all(len(member.assignment()) == 2 for member in members))
    assert cluster.groups.classic["g"].generation == before + 1
    assert all(member.subscription() == {"t1", "t2"} for member in members)


@BOTH
async def test_a_member_joins_though_no_broker_tells_the_topics(
    cluster: FakeCluster, start: Start, assignor: Any
) -> None:
    await cluster.create_topic("t1", partitions=2)
    members = [await matching(cluster, start, Log(), assignor, session_timeout_ms=6000)]
    with cluster.intercept(MetadataRequest, Silence()):
        cluster.groups.rebalance("g")
        before = cluster.count(SyncGroupRequest)
        await until(cluster, lambda: cluster.count(SyncGroupRequest) > before)
    await until(cluster, lambda: len(members[0].assignment()) == 2)


async def test_a_listener_hears_of_each_join_once(cluster: FakeCluster, start: Start) -> None:
    """`unsubscribe()` calls it, and the join that follows another subscription does not again."""
    await cluster.create_topic("t", partitions=2)
    logs = [Log(), Log()]
    members = []
    for log in logs:
        consumer = await start(cluster, **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) == 2)
        members.append(consumer)
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    second = {tp.partition for tp in members[1].assignment()}
    first = {0, 1} - second
    members[1].unsubscribe()
    await until(cluster, lambda: len(members[0].assignment()) == 2)
    members[1].subscribe(["t"], listener=logs[1])
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    assert logs[1].calls == [
        ("revoked", set()),
        ("assigned", second),
        ("revoked", second),
        ("assigned", {tp.partition for tp in members[1].assignment()}),
    ]
    await members[1].stop()
    await until(cluster, lambda: len(logs[0].calls) == 10)
    assert [name for name, _ in logs[0].calls] == ["revoked", "assigned"] * 5
    assert logs[0].calls[:4] == [
        ("revoked", set()),
        ("assigned", {0, 1}),
        ("revoked", {0, 1}),
        ("assigned", first),
    ]
    assert logs[0].calls[-1] == ("assigned", {0, 1})


async def test_a_listener_hears_of_a_join_with_nothing(cluster: FakeCluster, start: Start) -> None:
    """One of the members has no partition, and is called before each join like the other."""
    await cluster.create_topic("t")
    logs = [Log(), Log()]
    for log in logs:
        consumer = await start(cluster, **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) == 2)
    await until(cluster, lambda: len(logs[0].calls) == 4)
    cluster.groups.rebalance("g")
    await until(cluster, lambda: [len(log.calls) for log in logs] == [6, 4])
    for log in logs:
        assert [name for name, _ in log.calls] == ["revoked", "assigned"] * (len(log.calls) // 2)
        had = [partitions for _, partitions in log.calls]
        assert had[::2] == [set(), *had[1:-1:2]]


async def test_a_listener_hears_once_that_its_partitions_are_lost(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    log = Log()
    consumer = await start(cluster, **OPTIONS)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment())
    cluster.intercept(JoinGroupRequest, Fail(GroupLoadInProgressError), times=2)
    cluster.groups.expire("g", consumer.group_metadata().member_id)
    await until(cluster, lambda: len(log.calls) == 4)
    assert log.calls == [("revoked", set()), ("assigned", {0}), ("lost", {0}), ("assigned", {0})]


async def test_another_listener_hears_of_its_first_join(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    logs = [Log(), Log()]
    consumer = await start(cluster, **OPTIONS)
    for number, log in enumerate(logs):
        if number:
            consumer.unsubscribe()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) >= 2)
    assert consumer.assignment() == {TopicPartition("t", 0)}
    assert logs[0].calls == [("revoked", set()), ("assigned", {0}), ("revoked", {0})]
    assert logs[1].calls == [("revoked", set()), ("assigned", {0})]
