"""Changes that are made, and sent again because the response is lost."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    BrokerResponseError,
    GroupIdNotFound,
    InvalidPartitionsError,
    KafkaTimeoutError,
    ResourceNotFound,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages import (
    acls,
    configs,
    group_offsets,
    groups,
    produce,
    quotas,
    replicas,
    scram,
    topics,
)
from aiokafka.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from aiokafka.testing import Cut, FakeCluster, Silence
from tests.admin.operations import CALLS, prepared
from tests.admin.support import make_admin, simulated

# What is sent, and the error of the call if it is sent twice. The docstring has to name it.
CHANGES: dict[str, tuple[Any, type[BrokerResponseError] | None]] = {
    "acls.create": (acls.CreateAclsRequest, None),
    "acls.delete": (acls.DeleteAclsRequest, None),
    "configs.alter": (configs.IncrementalAlterConfigsRequest, None),
    "configs.set_exactly": (configs.AlterConfigsRequest, None),
    "groups.alter_offsets": (group_offsets.OffsetCommitRequest, None),
    "groups.delete": (groups.DeleteGroupsRequest, GroupIdNotFound),
    "groups.delete_offsets": (groups.OffsetDeleteRequest, None),
    "quotas.alter": (quotas.AlterClientQuotasRequest, None),
    "records.delete": (topics.DeleteRecordsRequest, None),
    "topics.apply": (topics.CreateTopicsRequest, TopicAlreadyExistsError),
    "topics.create": (topics.CreateTopicsRequest, TopicAlreadyExistsError),
    "topics.create_partitions": (topics.CreatePartitionsRequest, InvalidPartitionsError),
    "topics.delete": (topics.DeleteTopicsRequest, UnknownTopicOrPartitionError),
    "topics.elect_leaders": (replicas.ElectLeadersRequest, None),
    "topics.reassign": (replicas.AlterPartitionReassignmentsRequest, None),
    "transactions.fence": (produce.InitProducerIdRequest, None),
    "users.delete": (scram.AlterUserScramCredentialsRequest, ResourceNotFound),
}


def docstring_of(admin: AIOKafkaAdminClient, name: str) -> str:
    room, _, call = name.partition(".")
    return inspect.getdoc(getattr(getattr(admin, room), call)) or ""


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_is_sent_again(name: str) -> None:
    request, expected = CHANGES[name]
    async with prepared() as (cluster, admin):
        await CALLS["users.upsert"](admin)
        lost = cluster.intercept(request, Cut(handled=True), times=1)
        if expected is None:
            await CALLS[name](admin)
        else:
            with pytest.raises(expected):
                await CALLS[name](admin)
            text = " ".join(docstring_of(admin, name).split())
            assert "lost" in text
            assert expected.__name__ in text or "not found" in text
        assert lost.hits == 1
        assert cluster.count(request) >= 2


async def test_the_flat_methods_report_it_by_code() -> None:
    async with prepared() as (cluster, admin):
        cluster.intercept(topics.CreateTopicsRequest, Cut(handled=True), times=1)
        result = await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])
        assert [(each.topic, each.error_code) for each in result.topic_errors] == [
            ("a", TopicAlreadyExistsError.errno),
            ("b", TopicAlreadyExistsError.errno),
        ]
        assert {"a", "b"} < set(cluster.state.topics)


@pytest.mark.parametrize("first", ["the change", "the short call"])
@simulated
async def test_a_short_call_beside_a_change_does_not_have_it_sent_again(first: str) -> None:
    """Both have one connection, on which the broker takes its time."""
    async with FakeCluster() as cluster, make_admin(cluster, request_timeout_ms=40_000) as admin:
        await admin.topics.list()
        cluster.faults.slow(0, 2.0)

        async def ask() -> None:
            with pytest.raises(KafkaTimeoutError):
                await admin.topics.list(timeout_ms=500)

        calls = [admin.topics.create([NewTopic("a", 1, 1)]), ask()]
        await asyncio.gather(*(calls if first == "the change" else reversed(calls)))
        assert cluster.count(topics.CreateTopicsRequest) == 1


@simulated
async def test_a_broker_that_is_silent_is_connected_to_again_after_a_short_call() -> None:
    async with FakeCluster() as cluster, make_admin(cluster, request_timeout_ms=40_000) as admin:
        await admin.topics.list()
        cluster.intercept(MetadataRequest, Silence(), times=1)
        with pytest.raises(KafkaTimeoutError):
            await admin.topics.list(timeout_ms=500)
        await admin.topics.list(timeout_ms=500)
        assert cluster.count(ApiVersionsRequest) == 2


@simulated
async def test_a_change_is_not_sent_when_no_time_is_left() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await admin.topics.list()
        for left in (0, -5):
            with pytest.raises(KafkaTimeoutError, match="before the request was sent"):
                await admin.topics.create([NewTopic("a", 1, 1)], timeout_ms=left)
        assert cluster.count(topics.CreateTopicsRequest) == 0
