"""Karapace brings a coordinator of its own, made of the requests of the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import aiokafka.errors as Errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer.group_coordinator import CoordinationType
from aiokafka.protocol.api import Request, Response
from aiokafka.protocol.commit import OffsetCommitRequest_v2 as OffsetCommitRequest
from aiokafka.protocol.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse_v0,
    JoinGroupResponse_v1,
    JoinGroupResponse_v2,
    JoinGroupResponse_v5,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequest_v0,
    SyncGroupRequest_v1,
    SyncGroupRequest_v3,
)
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataRequest_v4
from aiokafka.testing import FakeCluster
from aiokafka.util import create_future, create_task

GROUP = "schemas"


@pytest.fixture(params=["0.9", "0.10.2", "0.11", "2.1", "4.3"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AIOKafkaClient]:
    async with FakeCluster(as_version=request.param) as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            yield client


async def join(client: AIOKafkaClient, node: int, metadata: bytes) -> Any:
    """As its coordinator does, by the release of the broker."""
    release = client.api_version
    protocols = [("v0", metadata)]
    member_id = JoinGroupRequest[0].UNKNOWN_MEMBER_ID  # type: ignore[attr-defined]
    while True:
        if release < (0, 10, 1):
            request = JoinGroupRequest[0](GROUP, 10000, member_id, "sr", protocols)
        elif release < (0, 11, 0):
            request = JoinGroupRequest[1](GROUP, 10000, 20000, member_id, "sr", protocols)
        elif release < (2, 3, 0):
            request = JoinGroupRequest[2](GROUP, 10000, 20000, member_id, "sr", protocols)
        else:
            request = JoinGroupRequest[3](GROUP, 10000, 20000, member_id, None, "sr", protocols)
        response = await client.send(node, request, group=ConnectionGroup.COORDINATION)
        if Errors.for_code(response.error_code) is not Errors.MemberIdRequired:
            return response
        member_id = response.member_id


def sync(client: AIOKafkaClient, generation: int, member: str, shares: list[Any]) -> Any:
    if client.api_version < (2, 3, 0):
        version = 0 if client.api_version < (0, 11, 0) else 1
        return SyncGroupRequest[version](GROUP, generation, member, shares)
    return SyncGroupRequest[2](GROUP, generation, member, None, shares)


async def test_a_coordinator_of_its_own(client: AIOKafkaClient) -> None:
    node = await client.coordinator_lookup(CoordinationType.GROUP, GROUP)
    assert await client.ready(node, group=ConnectionGroup.COORDINATION)
    response = await join(client, node, b"me")
    joined = (
        JoinGroupResponse_v0,
        JoinGroupResponse_v1,
        JoinGroupResponse_v2,
        JoinGroupResponse_v5,
    )
    assert isinstance(response, joined)
    assert isinstance(response, Response)
    assert response.error_code == 0
    assert response.leader_id == response.member_id
    assert response.group_protocol == "v0"
    (member,) = response.members
    assert (member[0], member[-1]) == (response.member_id, b"me")
    assert len(member) == (3 if isinstance(response, JoinGroupResponse_v5) else 2)

    share = [(response.member_id, b"yours")]
    request = sync(client, response.generation_id, response.member_id, share)
    assert isinstance(request, (SyncGroupRequest_v0, SyncGroupRequest_v1, SyncGroupRequest_v3))
    synced = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    assert (synced.error_code, synced.member_assignment) == (0, b"yours")

    version = 0 if client.api_version < (0, 11, 0) else 1
    beat = HeartbeatRequest[version](GROUP, response.generation_id, response.member_id)
    assert (await client.send(node, beat, group=ConnectionGroup.COORDINATION)).error_code == 0
    late = HeartbeatRequest(GROUP, response.generation_id - 1, response.member_id)
    refused = await client.send(node, late, group=ConnectionGroup.COORDINATION)
    assert Errors.for_code(refused.error_code) is Errors.IllegalGenerationError

    leave = LeaveGroupRequest[version](GROUP, response.member_id)
    assert (await client.send(node, leave, group=ConnectionGroup.COORDINATION)).error_code == 0
    unknown = await client.send(node, beat, group=ConnectionGroup.COORDINATION)
    assert Errors.for_code(unknown.error_code) is Errors.UnknownMemberIdError


async def test_positions_and_metadata(client: AIOKafkaClient) -> None:
    node = await client.coordinator_lookup(CoordinationType.GROUP, GROUP)
    commit = OffsetCommitRequest(
        GROUP,
        OffsetCommitRequest.DEFAULT_GENERATION_ID,
        "",
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        [("t", [(0, 7, "note")])],
    )
    committed = await client.send(node, commit)
    assert [topic for topic, _ in committed.topics] == ["t"]
    if client.api_version < (0, 10):
        with pytest.raises(Errors.IncompatibleBrokerVersion, match="MetadataRequest_v1"):
            await client.send(node, MetadataRequest_v1([]))
        return
    response = await client.send(node, MetadataRequest_v1([]))
    assert response.controller_id == node
    assert response.topics == []
    (broker,) = response.brokers
    assert broker[:3] == (node, *client.hosts[0][:2])
    if client.api_version >= (0, 11):
        response = await client.send(node, MetadataRequest_v4(["missing"], False))
        code = Errors.UnknownTopicOrPartitionError.errno
        assert response.topics == [(code, "missing", False, [])]


async def test_helpers() -> None:
    future = create_future()
    task = create_task(asyncio.wait_for(future, 10))
    future.set_result(1)
    assert await task == 1
    assert Request is JoinGroupRequest.__mro__[1]
