"""Every error that a group's coordinator may respond with: it passes, or the application gets it;
nothing hangs, and no request is repeated without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    GroupMaxSizeReached,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpoch,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Delay, Fail, FakeCluster, Hold
from tests.support.consumers import T0, T1, fill, read

ERRORS: list[type[BrokerResponseError]] = [
    UnknownError,
    RequestTimedOutError,
    GroupLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    UnknownMemberIdError,
    InvalidSessionTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    GroupIdNotFound,
    GroupMaxSizeReached,
    FencedInstanceId,
    FencedMemberEpoch,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    StaleMemberEpoch,
    for_code(9999),
]
JOINS = {
    "FindCoordinator": ("classic", FindCoordinatorRequest),
    "JoinGroup": ("classic", JoinGroupRequest),
    "SyncGroup": ("classic", SyncGroupRequest),
    "ConsumerGroupHeartbeat": ("consumer", ConsumerGroupHeartbeatRequest),
}
BEATS = {
    "Heartbeat": ("classic", HeartbeatRequest),
    "ConsumerGroupHeartbeat": ("consumer", ConsumerGroupHeartbeatRequest),
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as fake:
        await fake.create_topic("t")
        fill(fake, 0, 9)
        yield fake
        assert fake.failures == []


def member(cluster: FakeCluster, protocol: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=10,
        request_timeout_ms=1000,
        default_api_timeout_ms=200,
        max_poll_interval_ms=300,
        rebalance_timeout_ms=200,
        **PROTOCOLS[protocol],
        **options,
    )


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("where", JOINS)
async def test_start_ends(
    cluster: FakeCluster, where: str, error: type[BrokerResponseError]
) -> None:
    protocol, api = JOINS[where]
    consumer = member(cluster, protocol)
    cluster.intercept(api, Fail(error))
    with pytest.raises((error, KafkaTimeoutError)):
        async with timeout(10):
            await consumer.start()
    # Ten times as many as with pauses of 10 ms and more.
    assert cluster.count(api) < 300
    assert consumer.health().state == "closed"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("where", BEATS)
async def test_a_member_goes_on_or_says_why_not(
    cluster: FakeCluster, where: str, error: type[BrokerResponseError]
) -> None:
    protocol, api = BEATS[where]
    consumer = member(cluster, protocol)
    async with consumer:
        await read(consumer, 9)
        with cluster.intercept(api, Fail(error)) as script:
            reader = asyncio.get_running_loop().create_task(consumer.getone())
            await cluster.wait_for(lambda: script.hits)
            await asyncio.wait([reader], timeout=0.1)
            assert script.hits < 100
        if error is UnknownMemberIdError:
            # It is not gone, so joining again takes until the end of its session.
            for member_id in list(cluster.groups.classic.get("g", _NO_GROUP).members):
                cluster.groups.expire("g", member_id)
        fill(cluster, 0, 1)
        try:
            async with timeout(10):
                await reader
                return
        except error:
            pass
        # Told: it is over for good, or it goes on with the next call.
        try:
            async with timeout(10):
                await consumer.getone()
        except error:
            assert consumer.health().state == "failed"


class _NO_GROUP:
    members: tuple[str, ...] = ()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_commits_and_questions_end(
    cluster: FakeCluster, protocol: str, error: type[BrokerResponseError]
) -> None:
    async with member(cluster, protocol) as consumer:
        await read(consumer, 3)
        with cluster.intercept(OffsetFetchRequest, Fail(error)) as script:
            with pytest.raises((error, KafkaTimeoutError)):
                await consumer.committed(T0)
            assert script.hits < 100
        with cluster.intercept(OffsetCommitRequest, Fail(error)) as script:
            with pytest.raises((error, CommitFailedError, KafkaTimeoutError)):
                await consumer.commit({T0: 2})
            assert script.hits < 100
        cluster.intercept(LeaveGroupRequest, Fail(error))
        async with timeout(10):
            await consumer.stop()


async def test_an_error_that_the_broker_cannot_explain_does_not_end_the_membership(
    cluster: FakeCluster,
) -> None:
    async with member(cluster, "classic") as consumer:
        await read(consumer, 9)
        with cluster.intercept(HeartbeatRequest, Fail(UnknownError)):
            with pytest.raises(UnknownError):
                async with timeout(10):
                    await consumer.getone()
        fill(cluster, 0, 1)
        async with timeout(10):
            while True:
                try:
                    assert (await consumer.getone()).offset == 9
                    break
                except UnknownError:
                    await asyncio.sleep(0)


# -- what a commit finds out -----------------------------------------------------------------------


async def test_a_commit_that_waits_too_long_for_a_rebalance(cluster: FakeCluster) -> None:
    async with member(cluster, "classic") as consumer:
        await read(consumer, 9)
        with cluster.intercept(JoinGroupRequest, Fail(RebalanceInProgressError)) as script:
            joins = cluster.count(JoinGroupRequest)
            cluster.groups.rebalance("g")
            reader = asyncio.get_running_loop().create_task(consumer.getmany(timeout_ms=5000))
            await cluster.wait_for(lambda: cluster.count(JoinGroupRequest) > joins)
            with pytest.raises(KafkaTimeoutError, match="rebalanc"):
                await consumer.commit({T0: 3})
            assert script.hits
        await reader
    assert cluster.groups.committed("g", "t") is None


async def test_a_commit_for_what_went_to_another_member_meanwhile(cluster: FakeCluster) -> None:
    await cluster.create_topic("u", partitions=2)
    loop = asyncio.get_running_loop()
    first, second = member(cluster, "classic"), member(cluster, "classic")
    for consumer in (first, second):
        consumer.subscribe(["u"])
    async with first:
        before = sorted(first.assignment())
        reader = loop.create_task(first.getone())
        go = asyncio.Event()
        with cluster.intercept(SyncGroupRequest, Hold(go)) as script:
            starting = loop.create_task(second.start())
            # Both have joined; it is not known yet whose the partitions will be.
            await cluster.wait_for(lambda: script.hits == 2)
            commits = [loop.create_task(first.commit({tp: 1})) for tp in before]
            go.set()
            await starting
        results = await asyncio.gather(*commits, return_exceptions=True)
        given = [tp for tp in before if tp in second.assignment()]
        assert len(given) == 1
        for tp, result in zip(before, results, strict=True):
            if tp in given:
                assert isinstance(result, CommitFailedError)
                assert "not this member's any more: u-" in str(result)
            else:
                assert result is None
        reader.cancel()
        await second.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_commit_of_what_was_unsubscribed_fails(
    cluster: FakeCluster, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=60_000,
        **PROTOCOLS[protocol],
    )
    async with consumer:
        await read(consumer, 3)
        await consumer.getmany()
        with cluster.intercept(OffsetCommitRequest, Fail(InvalidGroupIdError)) as script:
            consumer.unsubscribe()
            await cluster.wait_for(lambda: script.hits)
            await cluster.wait_for(lambda: cluster.groups.state_of("g") == "Empty")
        assert "auto-commit failed" in caplog.text
        # It is left all the same, and the records come again.
        consumer.subscribe(["t"])
        assert (await consumer.getone()).offset == 0


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])
async def test_who_fails_to_join_returns_nothing_while_it_leaves(
    cluster: FakeCluster, assignor: type[AbstractPartitionAssignor]
) -> None:
    """The group gives its partitions to others as soon as it hears of it, and the coordinator may
    take its time to respond."""
    consumer = member(cluster, "classic", partition_assignment_strategy=[assignor])
    is_left = asyncio.Event()
    async with consumer:
        await read(consumer, 1)
        cluster.intercept(JoinGroupRequest, Fail(InconsistentGroupProtocolError))
        leaves = cluster.intercept(LeaveGroupRequest, Hold(is_left))
        cluster.groups.rebalance("g")
        waiting = asyncio.get_running_loop().create_task(leaves.wait())
        # Asked for all the while, or an eager member would wait for the application.
        while not waiting.done():
            await consumer.getmany(T1, timeout_ms=10)
        assert await consumer.getmany(T0) == {}
        is_left.set()
        with pytest.raises(InconsistentGroupProtocolError):
            await consumer.getone()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_commit_that_is_refused_for_good_ends_the_membership(
    cluster: FakeCluster, protocol: str
) -> None:
    async with member(cluster, protocol) as consumer:
        await read(consumer, 9)
        # The next reader lets other tasks run first: the membership ends just then.
        answer = Delay(0.05, Fail(FencedInstanceId))
        with cluster.intercept(OffsetCommitRequest, answer):
            with pytest.raises(CommitFailedError) as caught:
                await consumer.commit({T0: 1})
        assert isinstance(caught.value.__cause__, FencedInstanceId)
        with pytest.raises(FencedInstanceId, match="group_instance_id"):
            async with timeout(10):
                await consumer.getone()
        assert consumer.health().state == "failed"


async def test_a_commit_learns_that_the_group_rebalances(cluster: FakeCluster) -> None:
    async with member(cluster, "classic") as consumer:
        await read(consumer, 9)
        joins = cluster.count(JoinGroupRequest)
        # Not from a heartbeat: these tell nothing.
        cluster.intercept(HeartbeatRequest, Fail(GroupLoadInProgressError))
        reader = asyncio.get_running_loop().create_task(consumer.getone())
        with cluster.intercept(OffsetCommitRequest, Fail(RebalanceInProgressError), times=1):
            await consumer.commit({T0: 9})
        await cluster.wait_for(lambda: cluster.count(JoinGroupRequest) == joins + 1)
        assert cluster.groups.committed("g", "t") == 9
        fill(cluster, 0, 1)
        # An eager member begins again where it finds the group: before this commit, or after it.
        assert (await reader).offset in (0, 9)
