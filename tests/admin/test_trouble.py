"""Brokers that are silent, busy, old or strict with quotas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    KafkaTimeoutError,
    ThrottlingQuotaExceeded,
)
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster, Silence
from tests.admin.test_admin import make_admin

# -- silent brokers --------------------------------------------------------------------------------


async def test_another_broker_is_asked_when_one_is_silent() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster, request_timeout_ms=3000) as admin:
            await admin.list_topics()
            cluster.intercept(None, Silence(), broker=1)
            for _ in range(12):
                assert await admin.list_topics() == ["t"]
                assert (await admin.describe_topics(["t"]))[0]["error_code"] == 0


@pytest.mark.parametrize("version", ["2.1", "4.3"])
async def test_a_silent_controller_is_given_up(version: str) -> None:
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        async with make_admin(cluster, request_timeout_ms=6000) as admin:
            await admin.list_topics()
            silent = cluster.intercept(None, Silence(), broker=0)

            async def moves() -> None:
                # The others notice that it is gone, and one of them takes over.
                await silent.wait()
                cluster.state.node_down(0)

            moving = asyncio.get_running_loop().create_task(moves())
            result = await admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=6000)
            assert result.topic_errors[0].error_code in (0, 36)
            moving.cancel()
            await asyncio.wait([moving])
    assert "t" in cluster.state.topics


# -- quotas ----------------------------------------------------------------------------------------


async def _create(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    topics = [NewTopic(name, 1, 1) for name in ("a", "b")]
    return list((await admin.create_topics(topics, timeout_ms=2000)).topic_error_codes)


async def _delete(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    return list((await admin.delete_topics(["a", "b"], timeout_ms=2000)).topic_error_codes)


async def _grow(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    wanted = {"a": NewPartitions(2), "b": NewPartitions(2)}
    return list((await admin.create_partitions(wanted, timeout_ms=2000)).topic_error_codes)


QUOTAS = [
    (CreateTopicsRequest, _create, False),
    (DeleteTopicsRequest, _delete, True),
    (CreatePartitionsRequest, _grow, True),
]


@pytest.mark.parametrize(("request_class", "call", "has_topics"), QUOTAS)
async def test_changes_beyond_the_quota_wait(
    request_class: Any,
    call: Callable[[AIOKafkaAdminClient], Awaitable[list[tuple[str, int]]]],
    has_topics: bool,
) -> None:
    """What was refused for the quota (KIP-599) is sent again, and nothing else."""
    async with FakeCluster() as cluster:
        if has_topics:
            for name in ("a", "b"):
                await cluster.create_topic(name)
        asked: list[list[str]] = []

        def names_of(request: Any) -> list[str]:
            topics = request.topics
            return [topic.name for topic in topics] or list(request.topic_names)

        def refuse_b(request: Any, context: Any) -> Any:
            asked.append(names_of(request))
            if len(asked) > 1:
                return None
            # As if the quota was used up by the first one.
            return Fail(ThrottlingQuotaExceeded)

        cluster.intercept(request_class, refuse_b)
        async with make_admin(cluster) as admin:
            assert sorted(await call(admin)) == [("a", 0), ("b", 0)]
    assert [sorted(names) for names in asked] == [["a", "b"]] * 2


async def test_a_quota_that_stays_used_up_is_told_of() -> None:
    async with FakeCluster() as cluster:
        refusals = cluster.intercept(CreateTopicsRequest, Fail(ThrottlingQuotaExceeded))
        async with make_admin(cluster) as admin:
            result = await admin.create_topics([NewTopic("a", 1, 1)], timeout_ms=300)
    assert result.topic_errors[0].error_code == 89
    assert refusals.hits > 1


# -- busy and old brokers --------------------------------------------------------------------------


async def test_groups_are_listed_when_they_are_loaded() -> None:
    async with FakeCluster() as cluster:
        cluster.intercept(ListGroupsRequest, Fail(14), times=2)
        async with make_admin(cluster) as admin:
            assert await admin.list_consumer_groups() == []
            cluster.intercept(ListGroupsRequest, Fail(ClusterAuthorizationFailedError))
            with pytest.raises(ClusterAuthorizationFailedError):
                await admin.list_consumer_groups()


@pytest.mark.parametrize("version", ["0.9", "0.10.2", "0.11", "4.3"])
async def test_describing_creates_nothing(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster) as admin:
            found = await admin.describe_topics(["typo", "t"])
    assert [(each["topic"], each["error_code"]) for each in found] == [("typo", 3), ("t", 0)]
    assert "typo" not in cluster.state.topics


async def test_records_are_deleted_though_another_topic_is_unknown() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2)
        for number in range(2):
            cluster.log("t", number).extend([(None, b"x", ())] * 3)
        wanted = {
            TopicPartition("gone", 0): RecordsToDelete(1),
            TopicPartition("t", 0): RecordsToDelete(2),
            TopicPartition("t", 1): RecordsToDelete(3),
            TopicPartition("t", 7): RecordsToDelete(3),
        }
        began_at = time.monotonic()
        async with make_admin(cluster) as admin:
            with pytest.raises(KafkaTimeoutError, match=r"gone|t-7"):
                await admin.delete_records(wanted, timeout_ms=500)
        assert time.monotonic() - began_at < 5
        assert [cluster.log("t", number).start_offset for number in range(2)] == [2, 3]
    assert "gone" not in cluster.state.topics


# -- new topics ------------------------------------------------------------------------------------


async def test_defaults_of_the_broker() -> None:
    async with FakeCluster(brokers=2, config={"num.partitions": 3}) as cluster:
        async with make_admin(cluster) as admin:
            await admin.create_topics([NewTopic("a", None, None), NewTopic("b", 2, None)])
    assert len(cluster.state.topics["a"].partitions) == 3
    assert len(cluster.state.topics["b"].partitions) == 2
    with pytest.raises(IllegalArgumentError, match="None takes the broker's default"):
        NewTopic("a", -1, -1)


async def test_what_was_created_is_told() -> None:
    """KIP-525, from Kafka 2.4 on."""
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        topic = NewTopic("a", 2, 2, topic_configs={"retention.ms": "60000"})
        result = await admin.create_topics([topic])
    made = result.details["a"]
    assert (made.num_partitions, made.replication_factor) == (2, 2)
    assert made.configs is not None
    assert made.configs["retention.ms"] == "60000"
    throttle_time_ms, errors = result
    assert (throttle_time_ms, [tuple(each) for each in errors]) == (0, [("a", 0, None)])


async def test_old_brokers_do_not_tell_what_was_created() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        result = await admin.create_topics([NewTopic("a", 2, 1)])
    assert result.details == {}
