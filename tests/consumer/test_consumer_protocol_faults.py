"""Members of the consumer protocol (KIP-848) with faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerState, SubscriptionPattern, TopicPartition
from aiokafka._compat import timeout
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._health import NodeHealth
from aiokafka._log import SubjectLog
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer._context import ConsumerMeter
from aiokafka.consumer.group.group import log
from aiokafka.consumer.group.kip848 import Interest, Kip848Member, MemberState
from aiokafka.consumer.group.membership import GroupCoordinatorClient
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    GroupMaxSizeReached,
    IllegalStateError,
    InvalidRegularExpression,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    StaleMemberEpoch,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.actions import Action
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import CONFIG, OPTIONS, beats, listening, shares
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, Loop, coordinator, is_member, until

# == Lost responses, removed members, moved coordinators, interrupted applications =================


ALL = {0, 1, 2, 3}


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two brokers."""
    async with FakeCluster(brokers=2, config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        yield cluster
        assert cluster.failures == []


# -- removed by the group ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["expire", "fence"])
async def test_a_member_that_is_removed_loses_everything_and_joins_again(
    four: FakeCluster, start: Start, way: str
) -> None:
    fill(four, 0, 2)
    log = Log()
    consumer = await listening(four, start, log)
    await read(consumer, 1)
    member_id = consumer.group_metadata().member_id
    getattr(four.groups, way)("g", member_id)
    await until(four, lambda: len(log.calls) == 3)
    assert log.calls == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]
    assert consumer.group_metadata().member_id == member_id  # KIP-1082
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    await consumer.commit()
    assert four.groups.committed("g", "t", 0) == 2


async def test_a_member_that_is_removed_in_its_listener(four: FakeCluster, start: Start) -> None:
    entered, released = asyncio.Event(), asyncio.Event()

    class Slow(Log):
        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            entered.set()
            await released.wait()

    log = Slow()
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(["t"], listener=log)
    await entered.wait()
    four.groups.expire("g", consumer.group_metadata().member_id)
    await until(four, lambda: not is_member(consumer))
    released.set()
    await until(four, lambda: len(log.calls) == 3)
    assert log.calls == [("assigned", ALL), ("lost", ALL), ("assigned", ALL)]


async def test_a_member_that_is_removed_while_its_application_does_not_poll(
    four: FakeCluster, start: Start
) -> None:
    """The membership task first sees that the application does not poll, because the listener ends
    after both events."""
    fill(four, 0, 1)
    entered, released = asyncio.Event(), asyncio.Event()

    class Slow(Log):
        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            entered.set()
            await released.wait()

    log = Slow()
    consumer = await start(four, **OPTIONS, max_poll_interval_ms=200)
    consumer.subscribe(["t"], listener=log)
    await entered.wait()
    four.groups.expire("g", consumer.group_metadata().member_id)
    await until(four, lambda: not is_member(consumer))
    await until(four, lambda: consumer.health().state is ConsumerState.POLL_OVERDUE)
    released.set()
    await until(four, lambda: len(log.calls) == 2)
    assert log.calls == [("assigned", ALL), ("lost", ALL)]
    assert await read(consumer, 1) == [(0, 0)]
    assert log.calls[2:] == [("assigned", ALL)]


async def test_a_commit_finds_out_that_the_member_was_removed(
    four: FakeCluster, start: Start
) -> None:
    consumer = await start(four, "t", enable_auto_commit=False, **OPTIONS)
    # Not from a heartbeat: these tell nothing.
    script = four.intercept(ConsumerGroupHeartbeatRequest, Fail(GroupLoadInProgressError))
    four.groups.expire("g", consumer.group_metadata().member_id)
    with pytest.raises(CommitFailedError):
        await consumer.commit({T0: 1})
    assert not is_member(consumer)
    script.remove()
    await until(four, lambda: shares(consumer) == [4])


async def test_a_heartbeat_of_a_membership_that_has_ended_does_not_count(
    four: FakeCluster, start: Start
) -> None:
    """The coordinator still counts the member when the heartbeat arrives. The member joins again
    nevertheless: it has dropped its partitions."""
    log = Log()
    consumer = await listening(four, start, log, enable_auto_commit=False)
    released = asyncio.Event()
    with four.intercept(ConsumerGroupHeartbeatRequest, Hold(released)) as script:
        await script.wait()
        four.intercept(OffsetCommitRequest, Fail(UnknownMemberIdError), times=1)
        with pytest.raises(CommitFailedError):
            await consumer.commit({T0: 1})
        await until(four, lambda: ("lost", ALL) in log.calls)
    released.set()
    await until(four, lambda: log.calls[-2:] == [("lost", ALL), ("assigned", ALL)])
    assert [beat.member_epoch for beat in beats(four)].count(0) == 2


# -- lost answers, coordinators that move ----------------------------------------------------------


@pytest.mark.parametrize("skip", [0, 1, 2], ids=["join", "acknowledgement", "third"])
async def test_a_lost_answer_does_no_harm(four: FakeCluster, start: Start, skip: int) -> None:
    log = Log()
    consumer = await start(four, **OPTIONS)
    count = four.count(ConsumerGroupHeartbeatRequest)

    def cut(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
        seen = four.count(ConsumerGroupHeartbeatRequest) - count
        return Cut(handled=True) if seen == skip + 1 else None

    four.intercept(ConsumerGroupHeartbeatRequest, cut)
    consumer.subscribe(["t"], listener=log)
    await until(four, lambda: len(beats(four)) > count + skip + 4)
    again = beats(four)[count + skip + 1]
    # The member cannot know what arrived, so it says all again.
    assert again.subscribed_topic_names == ["t"]
    assert again.topic_partitions is not None
    assert log.calls == [("assigned", ALL)]
    assert shares(consumer) == [4]


async def test_lost_answers_while_partitions_move(four: FakeCluster, start: Start) -> None:
    for partition in range(4):
        fill(four, partition, 50)
    options = {**OPTIONS, "enable_auto_commit": False}
    first = await start(four, "t", **options)
    second = await start(four, "t", **options)
    loops = [Loop(first), Loop(second)]
    await until(four, lambda: shares(first, second) == [2, 2])

    number = 0

    def cut(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
        nonlocal number
        number += 1
        return Cut(handled=number % 2 == 0) if number % 3 == 0 else None

    with four.intercept(ConsumerGroupHeartbeatRequest, cut):
        for _ in range(3):
            four.groups.rebalance("g")
            count = four.count(ConsumerGroupHeartbeatRequest)
            await until(four, lambda n=count: len(beats(four)) > n + 12)
    await until(four, lambda: shares(first, second) == [2, 2])
    await until(four, lambda: len({*loops[0].seen, *loops[1].seen}) == 200)
    for loop in loops:
        await loop.end()


@pytest.mark.parametrize(
    "error",
    [GroupLoadInProgressError, GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError],
)
async def test_what_passes_is_retried(
    four: FakeCluster, start: Start, error: type[BrokerResponseError]
) -> None:
    four.intercept(ConsumerGroupHeartbeatRequest, Fail(error), times=2)
    consumer = await start(four, "t", **OPTIONS)
    assert shares(consumer) == [4]
    script = four.intercept(ConsumerGroupHeartbeatRequest, Fail(error), times=3)
    await until(four, lambda: script.hits == 3)
    count = len(beats(four))
    await until(four, lambda: len(beats(four)) > count + 2)
    assert shares(consumer) == [4]
    assert sum(beat.member_epoch == 0 for beat in beats(four)) == 3


async def test_the_coordinator_moves(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, "t", **OPTIONS)
    old = coordinator(two)
    two.move_coordinator("group", "g", 1 - old)
    await until(two, lambda: coordinator(two) == 1 - old)
    fill(two, 0, 2)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    await consumer.commit()
    assert shares(consumer) == [4]
    await consumer.stop()
    assert two.groups.state_of("g") == "Empty"


async def test_the_coordinator_crashes_and_comes_back(two: FakeCluster, start: Start) -> None:
    first = await start(two, "t", **OPTIONS)
    second = await start(two, "t", **OPTIONS)
    await until(two, lambda: shares(first, second) == [2, 2])
    owned = first.assignment()
    node = coordinator(two)
    await two.stop_broker(node)
    await two.start_broker(node)
    count = len(beats(two))
    await until(two, lambda: len(beats(two)) > count + 4)
    # Their sessions have outlived it.
    assert first.assignment() == owned
    assert shares(first, second) == [2, 2]


async def test_the_coordinator_is_gone_for_good(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, "t", **OPTIONS)
    node = coordinator(two)
    await two.stop_broker(node)
    count = len(beats(two))
    await until(two, lambda: len(beats(two)) > count + 2)
    assert coordinator(two) == 1 - node
    assert shares(consumer) == [4]


# -- errors that stay ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (UnreleasedInstanceId, "another member has this group_instance_id"),
        (FencedInstanceId, "group 'g'"),
        (UnsupportedAssignor, "group 'g'"),
        (GroupMaxSizeReached, "group 'g'"),
        (InvalidRegularExpression, "group 'g'"),
        (UnsupportedVersionError, "group_protocol='classic' works with every broker"),
        (GroupIdNotFound, "group.consumer.migration.policy"),
    ],
)
async def test_an_error_that_no_retry_mends(
    four: FakeCluster, start: Start, error: type[BrokerResponseError], hint: str
) -> None:
    four.intercept(ConsumerGroupHeartbeatRequest, Fail(error), times=1)
    with pytest.raises(error, match=hint):
        await start(four, "t", **OPTIONS)
    assert len(beats(four)) == 1


@pytest.mark.parametrize("error", [UnsupportedAssignor, FencedInstanceId])
async def test_after_such_an_error_the_application_can_subscribe_again(
    four: FakeCluster, start: Start, error: type[BrokerResponseError]
) -> None:
    fill(four, 0, 2)
    log = Log()
    consumer = await listening(four, start, log)
    four.intercept(ConsumerGroupHeartbeatRequest, Fail(error), times=1)
    for _ in range(2):
        with pytest.raises(error):
            async with timeout(10):
                while True:
                    await consumer.getone()
    with pytest.raises(error):
        await consumer.commit({T0: 1})
    assert log.calls == [("assigned", ALL), ("lost", ALL)]
    consumer.subscribe(["t"], listener=log)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    assert log.calls[2:] == [("assigned", ALL)]


async def test_the_broker_has_no_such_protocol(start: Start) -> None:
    async with FakeCluster(as_version="2.8") as cluster:
        await cluster.create_topic("t")
        with pytest.raises(UnsupportedVersionError, match=r"node 0.*group_protocol='classic'"):
            await start(cluster, "t", **OPTIONS)


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError, TopicAuthorizationFailedError])
async def test_what_an_administrator_may_mend(
    four: FakeCluster, start: Start, error: type[BrokerResponseError]
) -> None:
    fill(four, 0, 1)
    with four.intercept(ConsumerGroupHeartbeatRequest, Fail(error)), pytest.raises(error):
        await start(four, "t", **OPTIONS)
    consumer = await start(four, "t", **OPTIONS)
    assert await read(consumer, 1) == [(0, 0)]
    with four.intercept(ConsumerGroupHeartbeatRequest, Fail(error)), pytest.raises(error):
        await consumer.getone()
    count = len(beats(four))
    await until(four, lambda: len(beats(four)) > count + 2)
    assert shares(consumer) == [4]


async def test_no_coordinator_in_time(four: FakeCluster, start: Start) -> None:
    four.intercept(FindCoordinatorRequest, Cut())
    with pytest.raises(KafkaTimeoutError):
        await start(four, "t", request_timeout_ms=300, **OPTIONS)


@pytest.mark.parametrize("field", ["epoch", "partition"])
async def test_answers_that_make_no_sense(four: FakeCluster, start: Start, field: str) -> None:
    def spoil(response: ConsumerGroupHeartbeatResponse) -> None:
        if field == "epoch":
            response.member_epoch = 0
        elif response.assignment is not None:
            response.assignment.topic_partitions[0].partitions = [-1]

    four.intercept(ConsumerGroupHeartbeatRequest, Edit(spoil), times=2)
    assert shares(await start(four, "t", **OPTIONS)) == [4]
    # Whatever we made of them, we say everything again.
    assert [beat.subscribed_topic_names for beat in beats(four)[:3]] == [["t"]] * 3


# -- commits ---------------------------------------------------------------------------------------


async def test_a_stale_epoch_in_a_commit(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", enable_auto_commit=False, **OPTIONS)
    script = four.intercept(OffsetCommitRequest, Fail(StaleMemberEpoch), times=2)
    await consumer.commit({T0: 3})
    assert script.hits == 2
    assert four.groups.committed("g", "t", 0) == 3


@pytest.mark.parametrize("ends_by", ["stop", "unsubscribe", "unsubscribe, stop"])
async def test_the_last_commit_knows_the_epoch(
    four: FakeCluster, start: Start, ends_by: str
) -> None:
    """The response with a new one is lost, and nothing waits for the next heartbeat."""
    for partition in range(4):
        fill(four, partition, 1)
    first = await start(four, "t", **OPTIONS, retry_backoff_ms=5000)
    await read(first, 4)
    member_id = first.group_metadata().member_id

    def lose(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
        # It acknowledges that it has given up two partitions.
        owned = [number for topic in request.topic_partitions or () for number in topic.partitions]
        if request.member_id != member_id or len(owned) != 2 or lost.is_set():
            return None
        lost.set()
        return Cut(handled=True)

    lost = asyncio.Event()
    four.intercept(ConsumerGroupHeartbeatRequest, lose)
    epoch = first.group_metadata().generation_id
    second = await start(four, "t", **OPTIONS)
    assert await first.getmany() == {}  # what it has is finished
    await lost.wait()
    await until(four, lambda: four.groups.consumer["g"].members[member_id].epoch > epoch)
    owned = first.assignment()
    assert first.group_metadata().generation_id == epoch
    assert len(owned) == 2
    kept = min(owned).partition
    fill(four, kept, 1)
    assert await read(first, 1) == [(kept, 1)]
    assert await first.getmany() == {}
    if "unsubscribe" in ends_by:
        first.unsubscribe()
    if "stop" in ends_by:
        await first.stop()
    await until(four, lambda: shares(second) == [4])
    assert four.groups.committed("g", "t", kept) == 2


async def test_the_commit_behind_unsubscribe_waits_for_the_heartbeat_that_is_out(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 1)
    consumer = await start(four, "t", auto_commit_interval_ms=60_000, **OPTIONS)
    assert await read(consumer, 1) == [(0, 0)]
    assert await consumer.getmany() == {}
    released = asyncio.Event()
    with four.intercept(ConsumerGroupHeartbeatRequest, Hold(released)) as script:
        await script.wait()
        # With more partitions comes another epoch.
        async with AIOKafkaAdminClient(bootstrap_servers=four.bootstrap_servers) as admin:
            await admin.create_partitions({"t": NewPartitions(5)})
        consumer.unsubscribe()
        released.set()
        await until(four, lambda: four.groups.state_of("g") == "Empty")
    assert four.groups.committed("g", "t", 0) == 1


async def test_an_epoch_that_stays_stale_ends_a_commit_in_time(
    four: FakeCluster, start: Start
) -> None:
    options = {**OPTIONS, "enable_auto_commit": False, "default_api_timeout_ms": 200}
    consumer = await start(four, "t", **options)
    four.intercept(OffsetCommitRequest, Fail(StaleMemberEpoch))
    with pytest.raises(KafkaTimeoutError):
        await consumer.commit({T0: 3})
    assert shares(consumer) == [4]


@pytest.mark.parametrize("error", [StaleMemberEpoch, UnknownMemberIdError, FencedMemberEpoch])
async def test_reading_offsets_while_the_group_goes_on(
    four: FakeCluster, start: Start, error: type[BrokerResponseError]
) -> None:
    fill(four, 0, 1)
    four.intercept(OffsetFetchRequest, Fail(error), times=2)
    consumer = await start(four, "t", **OPTIONS)
    assert await read(consumer, 1) == [(0, 0)]


# -- topics that others do not know ----------------------------------------------------------------


async def test_an_unknown_topic_id(four: FakeCluster, start: Start) -> None:
    """The coordinator may know a new topic before the broker that is asked for its name does."""
    await four.create_topic("u", partitions=1)
    known = asyncio.Event()

    def forget(request: MetadataRequest, context: Any) -> Any:
        by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics or ())
        return Fail(UnknownTopicId) if by_id and not known.is_set() else None

    with four.intercept(MetadataRequest, forget) as script:
        consumer = await start(four, **OPTIONS)
        consumer.subscribe(pattern=SubscriptionPattern("t"))
        await until(four, lambda: script.hits >= 3)
        assert consumer.assignment() == frozenset()
        known.set()
        await until(four, lambda: shares(consumer) == [4])


async def test_what_has_a_name_is_assigned_already(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(pattern=SubscriptionPattern("t.*"))
    await until(four, lambda: shares(consumer) == [4])

    def forget(request: MetadataRequest, context: Any) -> Any:
        by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics or ())
        return Fail(UnknownTopicId) if by_id else None

    with four.intercept(MetadataRequest, forget) as script:
        await four.create_topic("tu", partitions=1)
        await until(four, lambda: script.hits >= 4)
        assert shares(consumer) == [4]
        # The group's heartbeats go on, with what we have.
        count = len(beats(four))
        await until(four, lambda: len(beats(four)) > count + 2)
    await until(four, lambda: len(consumer.assignment()) == 5)


async def test_a_topic_that_is_created_again(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 3)
    log = Log()
    consumer = await listening(four, start, log, enable_auto_commit=False)
    assert len(await read(consumer, 3)) == 3
    await consumer.commit()
    await four.delete_topic("t")
    await four.create_topic("t", partitions=4)
    fill(four, 0, 2)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    # Fetches may meet the new topic before the group does, which then waits for the commit.
    await consumer.commit()
    await until(four, lambda: len(log.calls) >= 4)
    assert [call for call, _ in log.calls] == ["assigned", "revoked", "assigned", "assigned"]


# -- stopping in the middle ------------------------------------------------------------------------


async def test_a_cancelled_start_leaves_nothing_behind(four: FakeCluster, start: Start) -> None:
    four.intercept(ConsumerGroupHeartbeatRequest, Silence(handled=True), times=1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(start(four, "t", **OPTIONS), 0.3)
    await until(four, lambda: four.groups.state_of("g") == "Empty")
    assert shares(await start(four, "t", **OPTIONS)) == [4]


async def test_leaving_cannot_be_overtaken_by_joining(four: FakeCluster, start: Start) -> None:
    released = asyncio.Event()
    four.intercept(ConsumerGroupHeartbeatRequest, Hold(released), times=1)
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(["t"])
    await until(four, lambda: len(beats(four)) == 1)
    consumer.unsubscribe()
    released.set()
    await until(four, lambda: len(beats(four)) == 2)
    await until(four, lambda: four.groups.state_of("g") == "Empty")
    assert [beat.member_epoch for beat in beats(four)] == [0, -1]
    assert consumer.assignment() == frozenset()


async def test_stop_without_a_coordinator(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)
    consumer = await start(four, "t", request_timeout_ms=300, **OPTIONS)
    await read(consumer, 3)
    await four.stop_broker(0)
    async with timeout(10):
        await consumer.stop()


async def test_every_step_may_be_cancelled(four: FakeCluster, start: Start) -> None:
    """Stop a member after any number of heartbeats: the group is always left in order."""
    for steps in range(6):
        consumer = AIOKafkaConsumer(bootstrap_servers=four.bootstrap_servers, **OPTIONS)
        await consumer.start()
        consumer.subscribe(["t"])
        count = len(beats(four)) + steps
        await until(four, lambda n=count: len(beats(four)) >= n)
        await consumer.stop()
        assert four.groups.state_of("g") in ("Empty", "Dead")


# -- the states ------------------------------------------------------------------------------------


async def make_membership() -> Kip848Member:
    config = ConsumerConfig.from_options(group_id="g", group_protocol="consumer")
    client = AIOKafkaClient(config.client)
    health = NodeHealth("coordinator", log)
    meter = ConsumerMeter(SubjectLog(log, "Consumer"), config)
    return Kip848Member(config, GroupCoordinatorClient(client, config, "g", health, meter))


async def test_what_cannot_be_is_refused() -> None:
    member = await make_membership()
    assert member.state is MemberState.UNSUBSCRIBED
    for wrong in (member.fence, lambda: member.reconciled(frozenset())):
        with pytest.raises(IllegalStateError, match="from unsubscribed"):
            wrong()
    member.begin()
    assert member.is_member
    assert member.is_urgent(Interest(frozenset()))
    with pytest.raises(IllegalStateError, match="from joining to joining"):
        member.begin()


async def test_every_life_ends_where_the_next_begins() -> None:
    member = await make_membership()
    for end in (member.fence, member.fail, member.forget_member):
        member.begin()
        end()
        assert not member.is_member
        assert member.generation == -1
        member.forget_member()
        assert member.state is MemberState.UNSUBSCRIBED
    member.become_stale()
    member.begin()
    assert member.state is MemberState.JOINING


async def test_a_member_that_has_said_nothing_does_not_join_in_stop(
    four: FakeCluster, start: Start
) -> None:
    """It says goodbye only: its application has subscribed just before."""
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(["t"])
    await asyncio.sleep(0)
    await consumer.stop()
    assert [beat.member_epoch for beat in beats(four)] == [-1]


# == Heartbeats that arrive although their response is lost ========================================


U0 = TopicPartition("u", 0)


@pytest.mark.parametrize("handled", [True, False])
async def test_a_static_member_joins_again_after_no_response(start: Start, handled: bool) -> None:
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(handled=handled), times=2)
        consumer = await start(cluster, "t", group_instance_id="me", **OPTIONS)
        await until(cluster, lambda: shares(consumer) == [4])
        # The name is still taken, for others.
        with pytest.raises(UnreleasedInstanceId):
            await start(cluster, "t", group_instance_id="me", **OPTIONS)
        assert shares(consumer) == [4]


@pytest.mark.parametrize("lost", [Cut(), Delay(4, Cut())], ids=["cut", "silence"])
def test_a_static_member_joins_again_after_a_goodbye_without_a_response(lost: Action) -> None:
    """The coordinator counts it still, and would refuse it its own name."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(config=CONFIG) as cluster:
            await cluster.create_topic("t", partitions=4)
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_instance_id="me", **OPTIONS
            ) as consumer:
                refusals = cluster.intercept(
                    ConsumerGroupHeartbeatRequest,
                    lambda request, _: lost if request.member_epoch < 0 else None,
                )
                consumer.unsubscribe()
                await refusals.wait()
                refusals.remove()
                # Simulated time, in which a goodbye is given up.
                await asyncio.sleep(5)
                consumer.subscribe(["t"])
                await until(cluster, lambda: shares(consumer) == [4])

    simulate(main, limit_s=60)


async def test_a_static_member_of_an_epoch_that_is_over_joins_again(start: Start) -> None:
    """The coordinator has not removed it."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        log = Log()
        consumer = await start(cluster, group_instance_id="me", **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        cluster.intercept(ConsumerGroupHeartbeatRequest, Fail(FencedMemberEpoch), times=1)
        await until(cluster, lambda: len(log.calls) == 3)
        assert [call for call, _ in log.calls] == ["assigned", "lost", "assigned"]
        assert shares(consumer) == [4]


async def test_a_join_that_comes_behind_the_next_one(start: Start) -> None:
    """The coordinator assigns in a response that is lost, and would not say it again."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        first = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: shares(first) == [4])
        released, let_go, was_handled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        joins: list[ConsumerGroupHeartbeatRequest] = []

        def hold(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if context.client_id != "second":
                return None
            if request.member_epoch:
                return Hold(released)
            joins.append(request)
            return Hold(let_go, Edit(lambda _: was_handled.set())) if len(joins) == 1 else None

        cluster.intercept(ConsumerGroupHeartbeatRequest, hold)
        second = await start(cluster, "t", client_id="second", request_timeout_ms=300, **OPTIONS)
        # The first one gives up what is the second's, and says so.
        await until(cluster, lambda: len(first.assignment()) == 2)
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 2)
        assert not second.assignment()
        let_go.set()
        await was_handled.wait()
        released.set()
        await until(cluster, lambda: shares(first, second) == [2, 2])


class Slow(Log):
    """A listener that takes its time when it hears of partitions, if there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work, self.goes_on = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:  # type: ignore[override]
        super().on_partitions_assigned(assigned)
        if assigned:
            self.is_at_work.set()
            await self.goes_on.wait()


async def check_nothing_is_given_up(
    cluster: FakeCluster, log: Slow, first: AIOKafkaConsumer, second: AIOKafkaConsumer
) -> None:
    """The second member gets its share once the listener of the first has returned."""
    count = len(beats(cluster))
    await until(cluster, lambda: len(beats(cluster)) > count + 6)
    assert not second.assignment()
    log.goes_on.set()
    await until(cluster, lambda: shares(first, second) == [2, 2])
    assert [call for call, _ in log.calls] == ["assigned", "revoked", "assigned"]


async def test_what_a_listener_works_on_is_not_given_up(start: Start) -> None:
    """Told everything again, the coordinator would assign to others what is left out."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        log = Slow()
        first = await start(cluster, **OPTIONS)
        first.subscribe(["t"], listener=log)
        await log.is_at_work.wait()
        refusals = cluster.intercept(
            ConsumerGroupHeartbeatRequest, Fail(NotCoordinatorForGroupError)
        )
        await until(cluster, lambda: refusals.hits)
        refusals.remove()
        second = await start(cluster, "t", client_id="second", **OPTIONS)
        await check_nothing_is_given_up(cluster, log, first, second)


class Names:
    """Brokers that do not know a topic, for the client "first", until they are to."""

    def __init__(self, topic_id: bytes) -> None:
        self.are_known = False
        self.refused = 0
        self._topic_id = topic_id

    def __call__(self, request: MetadataRequest, context: Any) -> Action | None:
        is_hidden = context.client_id == "first" and not self.are_known
        return Edit(self._hide) if is_hidden else None

    def _hide(self, response: MetadataResponse) -> None:
        known = [topic for topic in response.topics if topic.topic_id != self._topic_id]
        self.refused += known != response.topics
        response.topics = known


@pytest.mark.parametrize("arrives", ["late", "never"])
@pytest.mark.parametrize("instance_id", [None, "me"])
async def test_a_goodbye_that_comes_behind_the_next_join(
    start: Start, instance_id: str | None, arrives: str
) -> None:
    """It does not remove the member that has joined again."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        let_go, was_handled = asyncio.Event(), asyncio.Event()
        if arrives == "late":
            stray: Action = Hold(let_go, Edit(lambda _: was_handled.set()))
        else:
            stray = Hold(let_go, Cut())
            was_handled.set()
        goodbyes: list[ConsumerGroupHeartbeatRequest] = []

        def hold(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if request.member_epoch >= 0:
                return None
            goodbyes.append(request)
            return stray if len(goodbyes) == 1 else None

        cluster.intercept(ConsumerGroupHeartbeatRequest, hold)
        options = {**OPTIONS, "group_instance_id": instance_id}
        consumer = await start(cluster, "t", request_timeout_ms=300, **options)
        await until(cluster, lambda: shares(consumer) == [4])
        consumer.unsubscribe()
        await until(cluster, lambda: goodbyes)
        log = Log()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        let_go.set()
        await was_handled.wait()
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 2)
        assert [call for call, _ in log.calls] == ["assigned"]
        assert len(cluster.groups.consumer["g"].members) == 1
        assert shares(consumer) == [4]


async def test_a_member_whose_epoch_is_refused_comes_back_though_it_is_still_counted(
    start: Start,
) -> None:
    """Brokers refuse the epoch of a join, too, from a member that they count (KAFKA-19233)."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: shares(consumer) == [4])
        group = cluster.groups.consumer["g"]

        refused: list[str] = []

        def refuse(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if request.member_epoch or request.member_id not in group.members:
                return None
            refused.append(request.member_id)
            return Fail(FencedMemberEpoch)

        cluster.intercept(ConsumerGroupHeartbeatRequest, refuse)
        cluster.groups.fence("g", consumer.group_metadata().member_id)
        await until(cluster, lambda: refused)
        # The session would end much later.
        await until(cluster, lambda: shares(consumer) == [4])
        assert len(group.members) == 1


async def test_a_fenced_member_comes_back_at_a_later_epoch(start: Start) -> None:
    """At its former one, offsets of a transaction that arrive late would be taken."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer, log = await start(cluster, **OPTIONS), Log()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        before = consumer.group_metadata()
        cluster.groups.fence("g", before.member_id)
        await until(cluster, lambda: "lost" in dict(log.calls) and shares(consumer) == [4])
        after = consumer.group_metadata()
        assert after.member_id == before.member_id
        assert after.generation_id > before.generation_id


async def test_what_was_assigned_a_moment_ago_is_not_given_up(start: Start) -> None:
    """The response took longer than an interval, so that the next heartbeat is due with it. That
    one says everything, for an earlier join had no response."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        is_due, released = asyncio.Event(), asyncio.Event()
        answers: list[Action | None] = [Cut(), Delay(0.1), Hold(released)]

        def answer(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if context.client_id != "first" or not answers:
                return None
            if len(answers) == 1:
                is_due.set()
            return answers.pop(0)

        cluster.intercept(ConsumerGroupHeartbeatRequest, answer)
        log = Slow()
        first = await start(cluster, client_id="first", **OPTIONS)
        first.subscribe(["t"], listener=log)
        await is_due.wait()
        second = await start(cluster, "t", client_id="second", **OPTIONS)
        released.set()
        await log.is_at_work.wait()
        await check_nothing_is_given_up(cluster, log, first, second)


async def test_a_topic_whose_name_comes_late_may_be_another_members_by_then(start: Start) -> None:
    """Its partition was left out of a heartbeat whose response is lost: the coordinator takes it
    for given up, and assigns it to another member. It is not taken over on an older word."""
    async with FakeCluster(config=CONFIG) as cluster:
        for name in ("t", "u"):
            await cluster.create_topic(name)
        unknown = cluster.state.topics["u"].topic_id
        answered, names = asyncio.Event(), Names(unknown)
        cluster.intercept(MetadataRequest, names)
        # From here on each heartbeat says everything: the first one may arrive again.
        cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(), times=1)
        first = await start(cluster, "t", client_id="first", **OPTIONS)
        log = Log()
        first.subscribe(["t", "u"], listener=log)
        await until(cluster, lambda: names.refused)
        second = await start(cluster, client_id="second", **OPTIONS)
        second.subscribe(["u"])
        await until(cluster, lambda: len(cluster.groups.consumer["g"].members) == 2)
        lost: list[ConsumerGroupHeartbeatRequest] = []

        def lose(request: ConsumerGroupHeartbeatRequest, context: Any) -> Action | None:
            if context.client_id != "first":
                return None
            if lost:
                return Hold(answered)
            if unknown not in {topic.topic_id for topic in request.topic_partitions or ()}:
                lost.append(request)
                return Cut(handled=True)
            return None

        cluster.intercept(ConsumerGroupHeartbeatRequest, lose)
        await until(cluster, lambda: second.assignment() == {U0})
        names.are_known = True
        # Simulated time, in which the name is asked for again.
        await asyncio.sleep(2)
        assert first.assignment() == {T0}
        answered.set()
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 6)
        assert [first.assignment(), second.assignment()] == [{T0}, {U0}]
        assert all(call == "assigned" for call, _ in log.calls)
