"""Heartbeats that get no response, in time or at all, from a coordinator that may be alive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.testing import Delay, FakeCluster, Hold
from aiokafka.testing.actions import Action
from aiokafka.testing.script import RequestContext
from tests.support.consumers import Start
from tests.support.groups import Log, until

OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}
CLASSIC = pytest.mark.parametrize("protocol", ["eager", "cooperative"])


def beat_of(protocol: str) -> Any:
    return ConsumerGroupHeartbeatRequest if protocol == "consumer" else HeartbeatRequest


async def begin(start: Start, cluster: FakeCluster, log: Log, protocol: str) -> AIOKafkaConsumer:
    """Start a member with the default session, ten seconds in a classic group."""
    consumer = await start(cluster, group_id="g", max_poll_interval_ms=10**7, **OPTIONS[protocol])
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment())
    return consumer


@pytest.mark.parametrize("protocol", OPTIONS)
async def test_a_connection_that_is_dead_costs_no_session(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The coordinator is alive, and other connections to it work."""
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    dead: set[int] = set()

    def never(request: Any, context: RequestContext) -> Action | None:
        # All that the connection carries, from the first heartbeat on.
        if isinstance(request, beat_of(protocol)) and not dead:
            dead.add(context.connection_id)
        return Hold(asyncio.Event()) if context.connection_id in dead else None

    for request in (beat_of(protocol), JoinGroupRequest):
        cluster.intercept(request, never)
    joins = cluster.count(JoinGroupRequest)
    await until(cluster, lambda: dead)
    await asyncio.sleep(120)
    assert cluster.count(JoinGroupRequest) == joins
    assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
    assert consumer.assignment()


@CLASSIC
async def test_a_coordinator_that_has_moved_is_found_in_time(start: Start, protocol: str) -> None:
    """The broker that was it says nothing at all."""
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 0)
        log = Log()
        consumer = await begin(start, cluster, log, protocol)
        joins = cluster.count(JoinGroupRequest)
        cluster.move_coordinator("group", "g", 1)
        cluster.intercept(
            HeartbeatRequest,
            lambda _, context: Hold(asyncio.Event()) if context.node_id == 0 else None,
        )
        await until(cluster, lambda: [s for s in cluster.requests(HeartbeatRequest) if s.broker_id])
        await asyncio.sleep(120)
        assert cluster.count(JoinGroupRequest) == joins
        assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
        assert consumer.assignment()


@CLASSIC
async def test_a_slow_line_costs_no_session(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """Each response takes longer than the time for a second heartbeat."""
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    joins = cluster.count(JoinGroupRequest)
    cluster.intercept(HeartbeatRequest, Delay(5))
    before = cluster.connections
    await asyncio.sleep(300)
    assert cluster.count(JoinGroupRequest) == joins
    assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
    assert consumer.assignment()
    # One more, which is kept.
    assert cluster.connections <= before + 1


@CLASSIC
async def test_one_heartbeat_is_enough_if_it_gets_its_response(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t")
    await begin(start, cluster, Log(), protocol)
    beats, before = cluster.count(HeartbeatRequest), cluster.connections
    searches = cluster.count(FindCoordinatorRequest)
    cluster.intercept(HeartbeatRequest, Delay(2))
    await asyncio.sleep(30)
    assert 9 <= cluster.count(HeartbeatRequest) - beats <= 11
    assert cluster.connections == before
    assert cluster.count(FindCoordinatorRequest) == searches


@CLASSIC
async def test_a_member_joins_again_once_its_coordinator_answers(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    awake = asyncio.Event()
    held = cluster.intercept(HeartbeatRequest, Hold(awake))
    await asyncio.sleep(60)
    # By a second one each time, but no more than that in one session.
    assert 2 <= held.hits <= 60
    held.remove()
    awake.set()
    await until(cluster, lambda: log.calls[-1] == ("assigned", {0}) and len(log.calls) > 2)
    assert consumer.assignment()
