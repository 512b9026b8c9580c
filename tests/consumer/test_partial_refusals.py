"""Commits of which some partitions are refused for good, and others for a reason that passes."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import TopicPartition
from aiokafka.errors import (
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, Start, fill, read

# Longer than any test waits.
NEVER_MS = 10**9

DENIED = TopicPartition("denied", 0)


def refused(**codes: int) -> Edit:
    """Refuse the offsets of some topics."""

    def change(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = codes.get(topic.name, partition.error_code)

    return Edit(change)


async def test_a_coordinator_that_has_moved_is_found_though_a_topic_is_denied(start: Start) -> None:
    """Without a membership no heartbeat tells of it. Each commit asked the former coordinator, and
    got no further than the denied topic."""
    async with FakeCluster(brokers=2, as_version="3.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        partitions = [DENIED, T0]
        consumer = await start(cluster, assign=partitions, group_id="g", enable_auto_commit=False)
        await consumer.commit(dict.fromkeys(partitions, 1))
        former = cluster.requests(OffsetCommitRequest)[0].broker_id
        cluster.move_coordinator("group", "g", 1 - former)
        denied = refused(denied=TopicAuthorizationFailedError.errno)
        with cluster.intercept(OffsetCommitRequest, denied):
            with pytest.raises(TopicAuthorizationFailedError, match="denied"):
                await consumer.commit(dict.fromkeys(partitions, 2))
        assert cluster.groups.committed("g", "t") == 2


async def test_a_rebalance_is_heard_of_though_a_topic_is_denied(
    cluster: FakeCluster, start: Start
) -> None:
    """What else was to be committed was not stored."""
    await cluster.create_topic("t")
    await cluster.create_topic("denied")
    consumer = await start(cluster, "t", "denied", group_id="g", enable_auto_commit=False)
    denied, passing = TopicAuthorizationFailedError.errno, RebalanceInProgressError.errno
    cluster.intercept(OffsetCommitRequest, refused(denied=denied, t=passing), times=1)
    cluster.intercept(OffsetCommitRequest, refused(denied=denied))
    offsets = {DENIED: 2, T0: 2}
    with pytest.raises(TopicAuthorizationFailedError, match="denied"):
        await consumer.commit(offsets)
    assert cluster.count(OffsetCommitRequest) == 2
    assert cluster.groups.committed("g", "t") == 2


async def test_positions_are_found_at_another_old_coordinator_though_a_topic_is_denied(
    start: Start,
) -> None:
    """Before Kafka 0.10.2 each partition has an error of its own: the one that is no coordinator
    any more was asked for ever."""
    async with FakeCluster(brokers=2, as_version="0.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        options = {"enable_auto_commit": False, "default_api_timeout_ms": 20_000}
        consumer = await start(cluster, assign=[T0], group_id="g", **options)
        await consumer.commit({T0: 1})
        former = cluster.requests(OffsetCommitRequest)[0].broker_id
        cluster.move_coordinator("group", "g", 1 - former)

        def deny(response: OffsetFetchResponse) -> None:
            for topic in response.topics:
                if topic.name == "denied":
                    topic.partitions[0].error_code = TopicAuthorizationFailedError.errno

        with cluster.intercept(OffsetFetchRequest, Edit(deny)):
            consumer.assign([])
            consumer.assign([T0, DENIED])
            assert await consumer.position(T0) == 1
            cluster.move_coordinator("group", "g", former)
            with pytest.raises(TopicAuthorizationFailedError, match="denied"):
                await consumer.committed_offsets()
        assert cluster.requests(OffsetFetchRequest)[-1].broker_id == former


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "denied"])
async def test_auto_commit_puts_back_nothing_that_was_stored_beside_a_refusal(
    start: Start, is_gone: bool
) -> None:
    """The application has committed what it still has in hand, and another task stops it."""
    async with FakeCluster(as_version="3.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        fill(cluster, 0, 1, topic="denied")
        # Its own request for metadata might make the topic again before it commits.
        options = {"auto_commit_interval_ms": NEVER_MS, "allow_auto_create_topics": False}
        consumer = await start(cluster, "t", "denied", group_id="g", **options)
        await read(consumer, 1)
        fill(cluster, 0, 3)
        await consumer.getmany(T0, timeout_ms=10_000)
        if is_gone:
            await cluster.delete_topic("denied")
        else:
            denied = refused(denied=TopicAuthorizationFailedError.errno)
            cluster.intercept(OffsetCommitRequest, denied)
        with pytest.raises((UnknownTopicOrPartitionError, TopicAuthorizationFailedError)):
            await consumer.commit()
        assert cluster.groups.committed("g", "t") == 3
        await asyncio.create_task(consumer.stop())
        assert cluster.groups.committed("g", "t") == 3
