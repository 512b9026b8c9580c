"""Commits that reach the coordinator when another topic has the name already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.position.committed import LateCommits
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import GroupLoadInProgressError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.offsets import CommittedOffset
from tests.support.consumer_protocol import CONFIG, listening
from tests.support.consumers import T0, Start, client_of, fill, read
from tests.support.groups import Log, until


@pytest.fixture
async def by_name() -> AsyncIterator[FakeCluster]:
    """A cluster of the last release that stores offsets by the names of topics."""
    async with FakeCluster(as_version="4.0", config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        yield cluster


class Unaware:
    """A member that has read three records, and hears of nothing for a while."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.log = Log()
        self._cluster = cluster
        self._fetching = asyncio.Event()

    async def start(self, start: Start) -> Any:
        """Return the consumer, which gets no assignments and no records from now on."""
        cluster = self._cluster
        fill(cluster, 0, 3)
        options: dict[str, Any] = {"enable_auto_commit": False, "fetch_max_wait_ms": 20}
        consumer = await listening(cluster, start, self.log, **options)
        assert len(await read(consumer, 3)) == 3
        fetches = cluster.intercept(FetchRequest, Hold(self._fetching))
        refusal = Fail(GroupLoadInProgressError)
        self._beats = cluster.intercept(ConsumerGroupHeartbeatRequest, refusal)
        await until(cluster, lambda: fetches.hits and self._beats.hits)
        return consumer

    async def hear(self) -> None:
        """Let the group tell it of the other topic, and fetches after that."""
        self._beats.remove()
        given = ["assigned", "revoked", "assigned", "assigned"]
        await until(self._cluster, lambda: [call for call, _ in self.log.calls] == given)
        self._fetching.set()


async def make_again(cluster: FakeCluster, count: int) -> None:
    """Delete the topic; make another one with so many records in its first partition."""
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=4)
    fill(cluster, 0, count)


async def test_a_position_in_the_former_topic_is_not_one_in_the_next(
    by_name: FakeCluster, start: Start
) -> None:
    member = Unaware(by_name)
    consumer = await member.start(start)
    await make_again(by_name, 5)
    await consumer.commit()
    assert by_name.groups.committed("g", "t") == await consumer.committed(T0) == 3
    await member.hear()
    assert await consumer.committed(T0) is None
    assert await read(consumer, 5) == [(0, n) for n in range(5)]
    await consumer.commit()
    assert await consumer.committed(T0) == 5


async def test_what_another_member_commits_for_the_next_topic_counts(
    by_name: FakeCluster, start: Start
) -> None:
    member = Unaware(by_name)
    consumer = await member.start(start)
    await consumer.commit()
    # The topic is still there: what was committed goes when it goes.
    await client_of(consumer).force_metadata_update()
    await make_again(by_name, 5)
    assert by_name.groups.committed("g", "t") is None
    by_name.groups.offsets_of("g").commit(("t", 0), CommittedOffset(3))
    await member.hear()
    assert await read(consumer, 2) == [(0, 3), (0, 4)]


async def test_a_commit_that_is_sent_again_is_still_for_the_former_topic(start: Start) -> None:
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer = await Unaware(cluster).start(start)
        refusals = cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError))
        commit = asyncio.ensure_future(consumer.commit({T0: 3}))
        await until(cluster, lambda: refusals.hits)
        await make_again(cluster, 5)
        await client_of(consumer).force_metadata_update()
        refusals.remove()
        with pytest.raises(UnknownTopicOrPartitionError):
            await commit
        assert cluster.groups.committed("g", "t") is None


async def test_a_commit_that_waits_for_another_is_still_for_the_former_topic(start: Start) -> None:
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer = await Unaware(cluster).start(start)
        released = asyncio.Event()
        with cluster.intercept(OffsetCommitRequest, Hold(released)) as script:
            commits = [asyncio.ensure_future(consumer.commit({T0: n})) for n in (2, 3)]
            await script.wait()
            await make_again(cluster, 5)
            await client_of(consumer).force_metadata_update()
            released.set()
            await asyncio.wait(commits)
        assert [type(commit.exception()) for commit in commits] == 2 * [
            UnknownTopicOrPartitionError
        ]
        assert cluster.groups.committed("g", "t") is None


async def test_a_position_in_a_topic_that_is_known_to_be_gone_is_not_one_in_the_next(
    start: Start,
) -> None:
    config = {**CONFIG, "auto.create.topics.enable": "false"}
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer = await Unaware(cluster).start(start)
        await cluster.delete_topic("t")
        while client_of(consumer).cluster.partitions_for_topic("t") is not None:
            await client_of(consumer).force_metadata_update()
        await cluster.create_topic("t", partitions=4)
        fill(cluster, 0, 5)
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.commit()
        assert cluster.groups.committed("g", "t") is None


def test_topics_that_are_gone_for_ever_do_not_fill_the_memory() -> None:
    """A pattern may find new topics every minute, which are deleted a minute later."""
    commits, cluster = LateCommits(), ClusterMetadata()
    before, now = bytes(16), bytes([1] * 16)
    tps = [TopicPartition(f"t{number}", 0) for number in range(10_001)]
    for tp in tps:
        commits.add(tp, before, 5)
        assert commits.is_of_former_topic(tp, now, 5)
    commits.look(cluster)
    kept = [tp for tp in tps if commits.is_of_former_topic(tp, now, 5)]
    assert kept == tps[1:]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_what_was_given_up_is_committed_for_the_former_topic(
    start: Start, protocol: str
) -> None:
    """The application unsubscribes, and the last commit waits for what is under way."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 3)
        options: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 60_000}
        if protocol == "classic":
            options["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        consumer = await start(cluster, "t", group_protocol=protocol, **options)
        assert len(await read(consumer, 3)) == 3
        assert await consumer.getmany() == {}
        released = asyncio.Event()
        request = SyncGroupRequest if protocol == "classic" else ConsumerGroupHeartbeatRequest
        with cluster.intercept(request, Hold(released)) as script:
            if protocol == "classic":
                cluster.groups.rebalance("g")
            await script.wait()
            consumer.unsubscribe()
            await make_again(cluster, 5)
            await client_of(consumer).force_metadata_update()
            released.set()
            await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
        assert cluster.count(OffsetCommitRequest) == 1
        assert cluster.groups.committed("g", "t") is None
