"""What a group's members are told, and asked, at an awkward moment: answers that say nothing, calls
of the application in the middle of a rebalance, topics that may not be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, SubscriptionPattern, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    ConsumerStoppedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, is_member, until

CLASSIC: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
CONSUMER: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
# Longer than any test waits.
NEVER_MS = 10**9


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as fake:
        await fake.create_topic("t")
        fill(fake, 0, 9)
        yield fake
        assert fake.failures == []


# -- commits ---------------------------------------------------------------------------------------


async def test_a_commit_that_was_answered_without_a_word_is_made_again(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    cluster.intercept(OffsetCommitRequest, OffsetCommitResponse(topics=[]), times=1)
    await consumer.commit({T0: 5})
    assert cluster.groups.committed("g", "t") == 5


async def test_a_commit_does_not_wait_without_end_for_an_earlier_one(
    cluster: FakeCluster, start: Start
) -> None:
    """That of auto-commit takes a second if it has to."""
    consumer = await start(
        cluster, "t", auto_commit_interval_ms=10, default_api_timeout_ms=100, **CLASSIC
    )
    answer = asyncio.Event()
    script = cluster.intercept(OffsetCommitRequest, Hold(answer), times=1)
    await read(consumer, 3)
    await script.wait()
    with pytest.raises(KafkaTimeoutError, match="an earlier commit of the same partitions"):
        async with timeout(10):
            await consumer.commit({T0: 1})
    answer.set()
    async with timeout(10):
        await consumer.commit({T0: 2})
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 2)


class Leading(Log):
    """Has a response given when its member has joined, behind it on the same connection."""

    def __init__(self, answer: asyncio.Event) -> None:
        super().__init__()
        self._answer = answer

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await super().on_partitions_revoked(revoked)
        asyncio.get_running_loop().call_later(0.05, self._answer.set)


@pytest.mark.parametrize(
    "error", [IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError]
)
@pytest.mark.parametrize("request_type", [OffsetCommitRequest, HeartbeatRequest])
async def test_what_is_refused_to_the_member_of_before_means_nothing(
    cluster: FakeCluster, start: Start, request_type: Any, error: type[BrokerResponseError]
) -> None:
    """1. A commit, or a heartbeat, is under way. 2. The member gives up its partitions and joins
    again. 3. The request is refused: that is nothing against the member of now, and the commit is
    made again."""
    await cluster.create_topic("u")
    answer = asyncio.Event()
    log = Leading(answer)
    consumer = await start(cluster, enable_auto_commit=False, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment() == {T0})
    answer.clear()
    log.calls.clear()
    joins = cluster.count(JoinGroupRequest)
    with cluster.intercept(request_type, Hold(answer, Fail(error)), times=1) as script:
        commit = asyncio.get_running_loop().create_task(consumer.commit({T0: 5}))
        await script.wait()
        consumer.subscribe(["t", "u"], listener=log)
        async with timeout(10):
            await commit
    assert cluster.groups.committed("g", "t") == 5
    await until(cluster, lambda: len(consumer.assignment()) == 2)
    beats = cluster.count(HeartbeatRequest)
    await until(cluster, lambda: cluster.count(HeartbeatRequest) > beats + 1)
    assert cluster.count(JoinGroupRequest) == joins + 1
    assert [name for name, _ in log.calls] == ["revoked", "assigned"]


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def test_a_commit_does_not_outlive_the_membership_it_was_called_in(
    cluster: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """Others may have read on meanwhile, though the partition has come back."""
    log = Log()
    consumer = await start(cluster, enable_auto_commit=False, **options)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: log.calls[-1:] == [("assigned", {0})])
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError)) as script:
        commit = asyncio.get_running_loop().create_task(consumer.commit({T0: 5}))
        await script.wait()
        cluster.groups.expire("g", consumer.group_metadata().member_id)
        await until(cluster, lambda: log.calls[-2:] == [("lost", {0}), ("assigned", {0})])
        await until(cluster, lambda: consumer.health().state == "running")
    with pytest.raises(CommitFailedError):
        async with timeout(10):
            await commit
    assert cluster.groups.committed("g", "t") is None


async def test_who_was_removed_does_not_commit_as_somebody_else(
    cluster: FakeCluster, start: Start
) -> None:
    """The group has no members left: it takes commits of all clients that know its name."""
    consumer = await start(cluster, "t", enable_auto_commit=False, **CLASSIC)
    await read(consumer, 3)
    answer = asyncio.Event()
    script = cluster.intercept(JoinGroupRequest, Hold(answer), times=1)
    cluster.groups.expire("g", consumer.group_metadata().member_id)
    await until(cluster, lambda: not is_member(consumer))
    with pytest.raises((CommitFailedError, IllegalStateError)):
        await consumer.commit({T0: 3})
    assert cluster.groups.committed("g", "t") is None
    await script.wait()
    answer.set()


# -- the application turns elsewhere in the middle of a rebalance ----------------------------------


class Slow(Log):
    """Takes its time to give up partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.topics: set[str] = set()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await super().on_partitions_revoked(revoked)
        if revoked:
            await self.go.wait()

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        self.topics |= {tp.topic for tp in assigned}


async def test_who_unsubscribes_while_its_listener_works_does_not_join(
    cluster: FakeCluster, start: Start
) -> None:
    log = Slow()
    consumer = await start(cluster, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment() == {T0})
    joins = cluster.count(JoinGroupRequest)
    cluster.groups.rebalance("g")
    await until(cluster, lambda: log.calls[-1] == ("revoked", {0}))
    consumer.unsubscribe()
    log.go.set()
    await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    assert cluster.count(JoinGroupRequest) == joins
    assert log.calls[-1] == ("revoked", {0})
    assert cluster.count(LeaveGroupRequest) == 1


async def test_an_assignment_of_what_was_subscribed_before_is_not_taken(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("u")
    log = Slow()
    log.go.set()
    consumer = await start(cluster, **CLASSIC)
    answer = asyncio.Event()
    script = cluster.intercept(SyncGroupRequest, Hold(answer), times=1)
    consumer.subscribe(["t"], listener=log)
    await script.wait()
    consumer.subscribe(["u"], listener=log)
    answer.set()
    await until(cluster, lambda: {tp.topic for tp in consumer.assignment()} == {"u"})
    assert log.topics == {"u"}


async def test_the_failure_of_a_membership_that_has_ended_means_nothing(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start(cluster, "t", enable_auto_commit=False, **CONSUMER)
    await read(consumer, 1)
    script = cluster.intercept(
        ConsumerGroupHeartbeatRequest, Delay(0.1, Fail(InvalidRequestError)), times=1
    )
    await script.wait()
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    async with timeout(10):
        while (await consumer.getone()).offset < 8:
            pass
    assert consumer.health().state == "running"


async def test_a_listener_that_does_not_return_does_not_hold_up_stop(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    log = Slow()
    consumer = await start(cluster, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment() == {T0})
    consumer.unsubscribe()
    async with timeout(10):
        await consumer.stop(timeout=0.5)
    assert "Stopped before its listener had returned" in caplog.text
    assert cluster.count(LeaveGroupRequest) == 1


async def test_stop_without_time_tells_the_group_nothing(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start(cluster, "t", auto_commit_interval_ms=NEVER_MS, **CLASSIC)
    await read(consumer, 3)
    async with timeout(10):
        await consumer.stop(timeout=0)
    assert cluster.count(LeaveGroupRequest) == cluster.count(OffsetCommitRequest) == 0


async def test_getmany_and_stop_at_once(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, "t", **CLASSIC)
    await read(consumer, 3)
    await asyncio.sleep(0.1)  # So long that getmany() lets others run first.
    loop = asyncio.get_running_loop()
    reader = loop.create_task(consumer.getmany(timeout_ms=NEVER_MS))
    stop = loop.create_task(consumer.stop())
    async with timeout(10):
        assert await reader == {}
        await stop
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()


# -- what no broker should say ---------------------------------------------------------------------


async def test_a_strategy_that_nobody_offered(cluster: FakeCluster, start: Start) -> None:
    def strange(response: JoinGroupResponse) -> None:
        response.protocol_name = "by the moon"

    cluster.intercept(JoinGroupRequest, Edit(strange))
    with pytest.raises(InconsistentGroupProtocolError, match="by the moon"):
        async with timeout(10):
            await start(cluster, "t", **CLASSIC)


@pytest.mark.parametrize("strategy", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])
async def test_an_assignment_that_makes_no_sense_is_asked_for_again(
    cluster: FakeCluster, start: Start, strategy: Any
) -> None:
    def cut_short(response: SyncGroupResponse) -> None:
        response.assignment = bytes(response.assignment)[:-1]

    cluster.intercept(SyncGroupRequest, Edit(cut_short), times=2)
    async with timeout(10):
        consumer = await start(cluster, "t", **CLASSIC, partition_assignment_strategy=[strategy])
    assert consumer.assignment() == {T0}
    assert cluster.count(SyncGroupRequest) == 3


async def test_a_coordinator_too_old_for_patterns(cluster: FakeCluster, start: Start) -> None:
    def older(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == ConsumerGroupHeartbeatRequest.API_KEY:
                api.max_version = 0

    cluster.intercept(ApiVersionsRequest, Edit(older))
    consumer = await start(cluster, **CONSUMER)
    consumer.subscribe(pattern=SubscriptionPattern("t"))
    with pytest.raises(UnsupportedVersionError, match="a str is matched by the client"):
        async with timeout(10):
            await consumer.getone()


async def test_names_of_topics_are_asked_for_until_they_are_known(
    cluster: FakeCluster, start: Start
) -> None:
    def lose(request: Any, context: Any) -> Any:
        named_by_id = [topic for topic in request.topics or () if topic.topic_id != ZERO_UUID]
        return Cut() if named_by_id and script.hits < 20 else None

    script = cluster.intercept(MetadataRequest, lose)
    consumer = await start(cluster, **CONSUMER, reconnect_backoff_ms=10)
    consumer.subscribe(pattern=SubscriptionPattern("t"))
    async with timeout(10):
        assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_no_broker_answers_who_has_nothing_yet(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(
        cluster, reconnect_backoff_max_ms=20, metadata_max_age_ms=50, request_timeout_ms=500
    )
    consumer.subscribe(pattern="nothing")
    assert consumer.health().state == "running"
    await cluster.stop_broker(0)
    await until(cluster, lambda: consumer.health().state == "unreachable")
    assert consumer.health().reason.startswith("No broker answers: ")
    await cluster.start_broker(0)
    await until(cluster, lambda: consumer.health().state == "running")


# -- topics that may not be seen -------------------------------------------------------------------


def hide(name: str) -> Edit:
    def change(response: MetadataResponse) -> None:
        for topic in response.topics:
            if topic.name == name:
                topic.error_code = TopicAuthorizationFailedError.errno
                topic.partitions = []

    return Edit(change)


@pytest.mark.parametrize("group", [{}, CLASSIC], ids=["no group", "group"])
async def test_one_of_two_topics_is_denied(
    cluster: FakeCluster, start: Start, group: dict[str, Any]
) -> None:
    await cluster.create_topic("secret")
    fill(cluster, 0, 1, topic="secret")
    script = cluster.intercept(MetadataRequest, hide("secret"))
    consumer = await start(cluster, "t", "secret", metadata_max_age_ms=50, **group)
    records: list[str] = []
    denials = 0
    async with timeout(10):
        # The other one is read, and the application told more than once.
        while len(records) < 9 or denials < 2:
            try:
                records.append((await consumer.getone()).topic)
            except TopicAuthorizationFailedError as error:
                assert error.args == ("secret",)
                denials += 1
        assert records == ["t"] * 9
        # When the right is there nothing is reported of the time before.
        script.remove()
        looks = cluster.count(MetadataRequest)
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) > looks + 1)
        assert (await consumer.getone()).topic == "secret"


async def test_all_topics_are_denied(cluster: FakeCluster, start: Start) -> None:
    cluster.intercept(MetadataRequest, hide("t"))
    with pytest.raises(TopicAuthorizationFailedError, match="topic 't'"):
        async with timeout(10):
            await start(cluster, "t", **CLASSIC)


async def test_the_position_in_a_denied_topic(cluster: FakeCluster, start: Start) -> None:
    cluster.intercept(MetadataRequest, hide("t"))
    consumer = await start(cluster, default_api_timeout_ms=NEVER_MS)
    consumer.assign([T0])
    async with timeout(10):
        for _ in range(2):
            with pytest.raises(TopicAuthorizationFailedError) as caught:
                await consumer.position(T0)
            assert caught.value.args == ("t",)
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.seek_to_end(T0)


async def test_start_does_not_need_to_know_all_topics(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Without topics they are looked up for `partitions_for_topic()` only."""

    def lose(request: Any, context: Any) -> Any:
        return Cut() if request.topics is None else None

    caplog.set_level(logging.WARNING, "aiokafka")
    script = cluster.intercept(MetadataRequest, lose)
    consumer = await start(cluster)
    assert "The topics of the cluster are not known yet" in caplog.text
    assert consumer.partitions_for_topic("t") is None
    script.remove()
    consumer.assign([T0])
    assert await read(consumer, 1) == [(0, 0)]


# -- listeners -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def test_what_is_finished_is_committed_before_the_listener_hears(
    cluster: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """It may go on to store what it has made of the records together with the position."""
    await cluster.create_topic("u", partitions=2)
    fill(cluster, 0, 3, topic="u")
    fill(cluster, 1, 3, topic="u")
    committed: list[int | None] = []

    class Curious(Log):
        def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:  # type: ignore[override]
            committed.extend(
                cluster.groups.committed("g", tp.topic, tp.partition) for tp in revoked
            )

    consumer = await start(cluster, auto_commit_interval_ms=NEVER_MS, **options)
    consumer.subscribe(["u"], listener=Curious())
    await read(consumer, 6)
    joining = asyncio.get_running_loop().create_task(
        start(cluster, "u", **options)  # type: ignore[arg-type]
    )
    async with timeout(10):
        while not committed:
            await consumer.getmany(timeout_ms=10)
    assert set(committed) == {3}
    consumer.unsubscribe()
    await joining


async def test_health_tells_of_a_join_that_takes_long(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, "t", **CLASSIC)
    await until(cluster, lambda: consumer.health().state == "running")
    answer = asyncio.Event()
    script = cluster.intercept(JoinGroupRequest, Hold(answer), times=1)
    cluster.groups.rebalance("g")
    await script.wait()
    assert consumer.health().state == "rebalancing"
    answer.set()
    await until(cluster, lambda: consumer.health().state == "running")


async def test_a_listener_is_replaced_before_the_start(cluster: FakeCluster) -> None:
    """As programs do that put one of their own between."""
    first, second = Log(), Log()
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **CLASSIC)
    assert consumer.rebalance_listener is None
    with pytest.raises(IllegalStateError, match="subscribe"):
        consumer.rebalance_listener = second
    consumer.subscribe(["t"], listener=first)
    assert consumer.rebalance_listener is first
    consumer.rebalance_listener = second
    async with consumer:
        assert consumer.subscription() == {"t"}
        assert second.calls[-1] == ("assigned", {0})
    assert not first.calls
