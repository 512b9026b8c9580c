"""Coordinators that move and load, and what survives that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.testing import FakeCluster

from .support import RawClient

LOADING, NOT_COORDINATOR, UNKNOWN_MEMBER, REBALANCING = 14, 16, 25, 27


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    config = {"group.min.session.timeout.ms": 10}
    async with FakeCluster(3, config=config) as started:
        started.move_coordinator("group", "g", 0)
        started.move_coordinator("transaction", "x", 0)
        yield started
        assert started.failures == []


class Member:
    """A member of a group that says only what it is asked to."""

    def __init__(self, cluster: FakeCluster, session_ms: int = 30_000) -> None:
        self.cluster = cluster
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1

    async def call(self, request: Any, version: int) -> Any:
        broker = self.cluster.state.coordinator(0, "g")
        async with RawClient(self.cluster.address(broker)) as client:
            return await client.call(request, version)

    async def join(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=30_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            answer: JoinGroupResponse = await self.call(request, 5)
            self.member_id = answer.member_id
            if answer.error_code != 79:
                if answer.error_code == 0:
                    self.generation = answer.generation_id
                return answer

    async def sync(self) -> int:
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"mine")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[assignment],
        )
        answer = await self.call(request, 3)
        assert answer.error_code or answer.assignment == b"mine"
        error: int = answer.error_code
        return error

    async def beat(self) -> int:
        request = HeartbeatRequest(
            group_id="g", generation_id=self.generation, member_id=self.member_id
        )
        error: int = (await self.call(request, 3)).error_code
        return error


async def test_a_move_takes_no_time_by_default(cluster: FakeCluster) -> None:
    member = Member(cluster)
    await member.join()
    cluster.move_coordinator("group", "g", 1)
    assert await member.sync() == 0  # not even what was not written down is lost
    assert await member.beat() == 0


async def test_requests_while_it_loads(cluster: FakeCluster) -> None:
    member = Member(cluster)
    await member.join()
    await member.sync()
    cluster.coordinators.load("group", "g", 0.5)
    assert await member.beat() == LOADING
    assert (await member.join()).error_code == LOADING
    await asyncio.sleep(0.51)
    assert await member.beat() == 0
    cluster.coordinators.load("transaction", "x", 60)
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    async with RawClient(cluster.address(0)) as client:
        assert (await client.call(request, 4)).error_code == LOADING
        cluster.coordinators.heal()
        assert (await client.call(request, 4)).error_code == 0


async def test_members_survive_a_move(cluster: FakeCluster) -> None:
    cluster.coordinators.load_time = (0.01, 0.02)
    member = Member(cluster)
    await member.join()
    await member.sync()
    cluster.move_coordinator("group", "g", 1)
    assert await member.beat() == LOADING
    await asyncio.sleep(0.03)
    assert await member.beat() == 0
    assert await member.sync() == 0


async def test_a_generation_without_assignment_does_not(cluster: FakeCluster) -> None:
    cluster.coordinators.load_time = 0
    member = Member(cluster)
    await member.join()
    cluster.move_coordinator("group", "g", 1)
    assert await member.beat() == UNKNOWN_MEMBER
    assert await member.sync() == UNKNOWN_MEMBER


async def test_who_waits_is_sent_away(cluster: FakeCluster) -> None:
    cluster.coordinators.load_time = 0
    first, second = Member(cluster), Member(cluster)
    await first.join()
    await first.sync()
    waiting = asyncio.create_task(second.join())
    await cluster.wait_for(lambda: cluster.groups.state_of("g") == "PreparingRebalance")
    cluster.coordinators.move("group", "g", 1)
    assert (await waiting).error_code == NOT_COORDINATOR
    assert cluster.groups.state_of("g") == "Stable"  # as it was written down
    assert await first.beat() == 0


async def test_sessions_begin_afresh(cluster: FakeCluster) -> None:
    cluster.coordinators.load_time = 0
    member = Member(cluster, session_ms=50)
    await member.join()
    await member.sync()
    cluster.coordinators.move("group", "g", 1)
    await cluster.wait_for(lambda: cluster.groups.state_of("g") == "Empty")
    assert await member.beat() == UNKNOWN_MEMBER


async def test_a_broker_that_starts_again_loads(cluster: FakeCluster) -> None:
    cluster.coordinators.load_time = 60
    member = Member(cluster)
    assert (await member.join()).error_code == 0  # nothing to load the first time
    await member.sync()
    await cluster.stop_broker(0)
    assert await member.beat() == LOADING  # at another broker
    await cluster.start_broker(0)
    assert await member.beat() == LOADING
    cluster.faults.heal()
    assert await member.beat() == 0


async def test_wrong_arguments(cluster: FakeCluster) -> None:
    with pytest.raises(KeyError):
        cluster.coordinators.load("share", "g", 1)
    with pytest.raises(KeyError):
        cluster.coordinators.move("group", "g", 9)
