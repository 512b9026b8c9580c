"""Members of classic groups: joining, assignments, leaving, assignors, racks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerState,
    TopicPartition,
    errors,
)
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    CommitFailedError,
    FencedInstanceId,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InvalidRequestError,
    KafkaTimeoutError,
    UnknownMemberIdError,
)
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, RequestContext, Silence
from aiokafka.testing.actions import Action
from aiokafka.testing.simulation import Simulation, simulate
from tests.kafka.fixtures import Scale
from tests.support.churn import PARTITIONS, TPS, Group, in_time
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, Loop, coordinator, until

# == Members of a classic group ====================================================================


ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]

OPTIONS: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}


@pytest.fixture(params=ASSIGNORS, ids=lambda assignor: assignor.name)
def strategy(request: pytest.FixtureRequest) -> list[Any]:
    return [request.param]


@pytest.fixture
async def four(cluster: FakeCluster) -> AsyncIterator[FakeCluster]:
    await cluster.create_topic("t", partitions=4)
    yield cluster


def shares(*consumers: AIOKafkaConsumer) -> list[int]:
    """Sizes of the assignments, when they are a partition of all four; else nothing."""
    sets = [consumer.assignment() for consumer in consumers]
    is_whole = len(frozenset().union(*sets)) == sum(map(len, sets)) == 4
    return sorted(map(len, sets)) if is_whole else []


async def test_members_share(four: FakeCluster, start: Start, strategy: list[Any]) -> None:
    options = {**OPTIONS, "partition_assignment_strategy": strategy}
    first = await start(four, "t", **options)
    assert shares(first) == [4]
    second = await start(four, "t", **options)
    await until(four, lambda: shares(first, second) == [2, 2])
    third = await start(four, "t", **options)
    await until(four, lambda: shares(first, second, third) == [1, 1, 2])
    await second.stop()
    await until(four, lambda: shares(first, third) == [2, 2])
    await first.stop()
    await until(four, lambda: shares(third) == [4])
    await third.stop()
    assert four.groups.state_of("g") == "Empty"


async def test_a_plain_loop_never_fails_because_of_rebalances(
    four: FakeCluster, start: Start, strategy: list[Any]
) -> None:
    for partition in range(4):
        fill(four, partition, 60)
    options = {
        **OPTIONS,
        "partition_assignment_strategy": strategy,
        "enable_auto_commit": False,
    }
    loops = [Loop(await start(four, "t", **options), 0.01)]
    for _ in range(2):
        loops.append(Loop(await start(four, "t", **options), 0.01))
        four.groups.rebalance("g")
        await asyncio.sleep(0.05)
    leaver = loops.pop()
    await leaver.end()
    await leaver.consumer.stop()
    await until(
        four,
        lambda: all(four.groups.committed("g", "t", partition) == 60 for partition in range(4)),
    )
    for loop in loops:
        await loop.end()
    seen = [record for loop in (*loops, leaver) for record in loop.seen]
    assert set(seen) == {(partition, n) for partition in range(4) for n in range(60)}


async def test_takeover_of_an_expired_member(four: FakeCluster, start: Start) -> None:
    log = Log()
    first = AIOKafkaConsumer(bootstrap_servers=four.bootstrap_servers, **OPTIONS)
    first.subscribe(["t"], listener=log)
    await first.start()
    try:
        second = await start(four, "t", **OPTIONS)
        await until(four, lambda: shares(first, second) == [2, 2])
        lost = {tp.partition for tp in first.assignment()}
        four.groups.expire("g", first.group_metadata().member_id)
        await until(four, lambda: ("lost", lost) in log.calls)
        await until(four, lambda: shares(first, second) == [2, 2])
        assert log.calls[:2] == [("revoked", set()), ("assigned", {0, 1, 2, 3})]
        assert log.calls[2] == ("revoked", {0, 1, 2, 3})
    finally:
        await first.stop()


async def test_cooperative_members_keep_what_stays(four: FakeCluster, start: Start) -> None:
    for partition in range(4):
        fill(four, partition, 5)
    log = Log()
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = AIOKafkaConsumer(
        bootstrap_servers=four.bootstrap_servers, auto_offset_reset="earliest", **options
    )
    first.subscribe(["t"], listener=log)
    await first.start()
    try:
        assert len(await read(first, 20)) == 20
        first.pause(*first.assignment())
        await first.getmany()
        second = await start(four, "t", **options)
        await until(four, lambda: shares(first, second) == [2, 2])
        assert first.paused() == first.assignment()
        given = {tp.partition for tp in second.assignment()}
        assert log.calls[:2] == [("assigned", {0, 1, 2, 3}), ("revoked", given)]
        # What was finished was committed before it was given up, what stayed keeps its position.
        for tp in second.assignment():
            assert await second.position(tp) == 5
        for tp in first.assignment():
            assert await first.position(tp) == 5
    finally:
        await first.stop()


async def test_unfinished_records_can_be_committed_before_they_are_given_up(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 4)
    first = await start(four, "t", enable_auto_commit=False, **OPTIONS)
    batch = await first.getmany(timeout_ms=5000)
    joined = asyncio.get_running_loop().create_task(
        start(four, "t", enable_auto_commit=False, **OPTIONS)  # type: ignore[arg-type]
    )
    joins = four.count(JoinGroupRequest)
    await until(four, lambda: four.count(JoinGroupRequest) > joins)
    await four.wait_for(lambda: four.groups.state_of("g") == "PreparingRebalance")
    beats = four.count(HeartbeatRequest)
    await until(four, lambda: four.count(HeartbeatRequest) > beats + 2)
    assert not joined.done()
    await first.commit({T0: batch[T0][-1].offset + 1})
    second = await joined
    await until(four, lambda: shares(first, second) == [2, 2])
    assert four.groups.committed("g", "t", 0) == 4


async def test_records_held_too_long_are_refused(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 4)
    options = {**OPTIONS, "enable_auto_commit": False, "rebalance_timeout_ms": 400}
    first = await start(four, "t", **options)
    await first.getmany(timeout_ms=5000)
    for _ in range(3):
        await start(four, "t", **options)
    for tp in {T0, T1} - first.assignment():
        with pytest.raises((CommitFailedError, IllegalStateError)):
            await first.commit({tp: 4})
    assert four.groups.committed("g", "t", 0) is None


async def test_the_coordinator_moves(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2)
        consumer = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: cluster.count(HeartbeatRequest))
        old = coordinator(cluster)
        cluster.move_coordinator("group", "g", 1 - old)
        await until(cluster, lambda: coordinator(cluster) == 1 - old)
        fill(cluster, 0, 2)
        assert await read(consumer, 2) == [(0, 0), (0, 1)]
        await consumer.commit()
        assert consumer.assignment() == {T0, T1}
        await consumer.stop()


async def test_the_coordinator_crashes_and_comes_back(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2)
        first = await start(cluster, "t", **OPTIONS)
        second = await start(cluster, "t", **OPTIONS)
        loops = [Loop(first), Loop(second)]
        await until(cluster, lambda: cluster.count(HeartbeatRequest))
        node = coordinator(cluster)
        await cluster.stop_broker(node)
        await cluster.start_broker(node)
        beats = cluster.count(HeartbeatRequest)
        await until(cluster, lambda: cluster.count(HeartbeatRequest) > beats + 4)
        fill(cluster, 0, 3)
        fill(cluster, 1, 3)
        await until(cluster, lambda: len(loops[0].seen + loops[1].seen) >= 6)
        for loop in loops:
            await loop.end()
        assert len(first.assignment() | second.assignment()) == 2
        await first.stop()
        await second.stop()


async def test_lost_heartbeats_are_sent_again(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", retry_backoff_ms=10, **OPTIONS)
    with four.intercept(HeartbeatRequest, Cut(), times=3) as script:
        await until(four, lambda: script.hits == 3)
    beats = four.count(HeartbeatRequest)
    await until(four, lambda: four.count(HeartbeatRequest) > beats + 1)
    assert shares(consumer) == [4]
    assert four.count(JoinGroupRequest) == 2


async def test_joining_is_retried(four: FakeCluster, start: Start) -> None:
    four.intercept(FindCoordinatorRequest, Cut(), times=1)
    four.intercept(JoinGroupRequest, Fail(UnknownMemberIdError), times=1)
    four.intercept(JoinGroupRequest, Cut(), times=1)
    four.intercept(SyncGroupRequest, Cut(handled=True), times=1)
    assert shares(await start(four, "t", **OPTIONS)) == [4]


async def test_one_join_names_all_assignors(four: FakeCluster, start: Start) -> None:
    strategies = [CooperativeStickyAssignor(), RangePartitionAssignor]
    await start(four, "t", partition_assignment_strategy=strategies, **OPTIONS)
    joins = four.requests(JoinGroupRequest)
    assert len(joins) == 2  # the first one to get a member id (KIP-394)
    for seen in joins:
        names = [protocol.name for protocol in seen.request.protocols]
        assert names == ["cooperative-sticky", "range"]


async def test_a_static_member_comes_back(four: FakeCluster, start: Start) -> None:
    options = {**OPTIONS, "group_instance_id": "one"}
    first = await start(four, "t", **options)
    generation = first.group_metadata().generation_id
    await first.stop()
    assert four.count(LeaveGroupRequest) == 0
    second = await start(four, "t", **options)
    assert shares(second) == [4]
    assert second.group_metadata().generation_id == generation
    await until(four, lambda: four.requests(HeartbeatRequest))
    assert four.requests(HeartbeatRequest)[-1].request.group_instance_id == "one"


async def test_a_second_member_of_the_same_instance_fences_the_first(
    four: FakeCluster, start: Start
) -> None:
    options = {**OPTIONS, "group_instance_id": "one"}
    log = Log()
    first = await start(four, **options)
    first.subscribe(["t"], listener=log)
    await until(four, lambda: shares(first) == [4])
    await start(four, "t", **options)
    with pytest.raises(FencedInstanceId):
        async with timeout(10):
            await first.getone()
    with pytest.raises(FencedInstanceId):
        await first.commit({T0: 1})
    assert log.calls[1:] == [("assigned", {0, 1, 2, 3}), ("lost", {0, 1, 2, 3})]


async def test_no_permission(four: FakeCluster, start: Start) -> None:
    four.intercept(JoinGroupRequest, Fail(GroupAuthorizationFailedError))
    with pytest.raises(GroupAuthorizationFailedError):
        await start(four, "t", **OPTIONS)


async def test_no_coordinator_in_time(four: FakeCluster, start: Start) -> None:
    four.intercept(FindCoordinatorRequest, Cut())
    with pytest.raises(KafkaTimeoutError):
        await start(four, "t", request_timeout_ms=300, **OPTIONS)


async def test_new_partitions_and_topics_are_shared_out(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("ta")
    consumer = await start(cluster, metadata_max_age_ms=50, **OPTIONS)
    consumer.subscribe(pattern="^t.*")
    await until(cluster, lambda: len(consumer.assignment()) == 1)
    await cluster.create_topic("tb", partitions=2)
    await until(cluster, lambda: len(consumer.assignment()) == 3)
    assert consumer.subscription() == {"ta", "tb"}


async def test_a_leader_asks_for_topics_that_others_have_found(
    cluster: FakeCluster, start: Start
) -> None:
    """Its own metadata is minutes old."""
    await cluster.create_topic("ta")
    leader = await start(cluster, **OPTIONS)
    leader.subscribe(pattern="^t.*")
    await until(cluster, lambda: len(leader.assignment()) == 1)
    other = await start(cluster, metadata_max_age_ms=50, **OPTIONS)
    other.subscribe(pattern="^t.*")
    await until(cluster, lambda: len(cluster.groups.classic["g"].members) == 2)
    await cluster.create_topic("tb", partitions=2)
    await until(cluster, lambda: len(leader.assignment() | other.assignment()) == 3)
    assert leader.subscription() == {"ta", "tb"}


async def test_members_with_different_topics(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("a", partitions=2)
    await cluster.create_topic("b", partitions=2)
    first = await start(cluster, "a", **OPTIONS)
    second = await start(cluster, "b", **OPTIONS)
    assert {tp.topic for tp in second.assignment()} == {"b"}
    second.subscribe(["a", "b"])
    await until(cluster, lambda: len(first.assignment() | second.assignment()) == 4)
    second.unsubscribe()
    await until(cluster, lambda: len(first.assignment()) == 2)
    await until(cluster, lambda: len(cluster.groups.classic["g"].members) == 1)


async def test_a_member_that_does_not_poll_leaves_and_comes_back(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 2)
    consumer = await start(four, "t", max_poll_interval_ms=500, **OPTIONS)
    for _ in range(12):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.getone(T1), 0.05)  # a cancelled poll is one
    assert four.count(LeaveGroupRequest) == 0
    await until(four, lambda: four.count(LeaveGroupRequest) == 1 and not consumer.assignment())
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    assert shares(consumer) == [4]


async def test_a_static_member_does_not_leave(four: FakeCluster, start: Start) -> None:
    options = {**OPTIONS, "group_instance_id": "one", "max_poll_interval_ms": 50}
    consumer = await start(four, "t", **options)
    await until(four, lambda: not consumer.assignment())
    fill(four, 0, 1)
    assert await read(consumer, 1) == [(0, 0)]
    assert shares(consumer) == [4]
    # As one that unsubscribes it is missed at the end of its session.
    beats = four.count(HeartbeatRequest)
    consumer.unsubscribe()
    await asyncio.sleep(0.2)
    assert four.count(HeartbeatRequest) <= beats + 1
    assert four.count(LeaveGroupRequest) == 0


async def test_from_a_group_to_partitions_chosen_by_hand(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", enable_auto_commit=False, **OPTIONS)
    consumer.unsubscribe()
    consumer.assign([T0])
    fill(four, 0, 9)
    await consumer.commit({T0: 7})
    assert four.groups.committed("g", "t", 0) == 7
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    await until(four, lambda: shares(consumer) == [4])
    assert await consumer.position(T0) == 7


async def test_unsubscribing(four: FakeCluster, start: Start, strategy: list[Any]) -> None:
    fill(four, 0, 3)
    log, later = Log(), Log()
    consumer = await start(four, partition_assignment_strategy=strategy, **OPTIONS)
    consumer.subscribe(["t"], listener=log)
    await read(consumer, 2)
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    consumer.subscribe(["t"], listener=later)
    # Asking for more says that the first two are finished, so they were committed.
    assert await read(consumer, 1) == [(0, 2)]
    assert [call for call in log.calls if call[1]] == [
        ("assigned", {0, 1, 2, 3}),
        ("revoked", {0, 1, 2, 3}),
    ]
    assert [call for call in later.calls if call[1]] == [("assigned", {0, 1, 2, 3})]
    assert four.count(LeaveGroupRequest) == 1


@pytest.mark.parametrize("reads_one", [True, False])
def test_a_call_finishes_what_was_returned_before_others_run(reads_one: bool) -> None:
    """A call lets other tasks run first if they have not for a while; one of them commits."""

    async def main(simulation: Simulation) -> list[int]:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 3)
            address = cluster.bootstrap_servers
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=address, auto_offset_reset="earliest", **OPTIONS
            ) as consumer:
                seen = [(await consumer.getone()).offset for _ in range(2)]
                await asyncio.sleep(0.02)
                consumer.unsubscribe()
                consumer.subscribe(["t"])
                if reads_one:
                    seen.append((await consumer.getone()).offset)
                else:
                    records = await consumer.getmany(timeout_ms=10_000)
                    seen += [record.offset for found in records.values() for record in found]
                return seen

    assert simulate(main) == [0, 1, 2]


async def test_after_an_error_that_stays_the_application_can_subscribe_again(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 2)
    log = Log()
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(["t"], listener=log)
    await until(four, lambda: shares(consumer) == [4])
    member = consumer.group_metadata().member_id
    four.intercept(HeartbeatRequest, Fail(FencedInstanceId), times=1)
    with pytest.raises(FencedInstanceId):
        async with timeout(10):
            while True:
                await consumer.getone()
    with pytest.raises(FencedInstanceId):
        await consumer.commit({T0: 1})
    assert log.calls[-1] == ("lost", {0, 1, 2, 3})
    # Else the group waits for it to the end of its session.
    four.groups.expire("g", member)
    consumer.subscribe(["t"], listener=log)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    assert log.calls[-1] == ("assigned", {0, 1, 2, 3})


async def test_an_assignor_that_raises(four: FakeCluster, start: Start) -> None:
    class Broken(RoundRobinPartitionAssignor):
        name = "broken"

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            raise LookupError("cannot share")

    with pytest.raises(LookupError, match="cannot share"):
        await start(four, "t", partition_assignment_strategy=[Broken], **OPTIONS)
    # The group does not wait for it to the end of its session.
    await until(four, lambda: not four.groups.classic["g"].members)


async def test_many_rebalances_while_committing(
    four: FakeCluster, start: Start, strategy: list[Any]
) -> None:
    options = {**OPTIONS, "partition_assignment_strategy": strategy, "enable_auto_commit": False}
    first = await start(four, "t", **options)
    second = await start(four, "t", **options)
    await until(four, lambda: shares(first, second) == [2, 2])
    loops = [Loop(first), Loop(second)]
    for number in range(10):
        for partition in range(4):
            fill(four, partition, 5)
        joins = four.count(JoinGroupRequest)
        four.groups.rebalance("g")
        await until(four, lambda seen=joins: four.count(JoinGroupRequest) >= seen + 2)
        assert all(not loop.task.done() for loop in loops), number
    await until(
        four,
        lambda: all(four.groups.committed("g", "t", partition) == 50 for partition in range(4)),
    )
    for loop in loops:
        await loop.end()
    seen = loops[0].seen + loops[1].seen
    assert sorted(seen) == [(partition, n) for partition in range(4) for n in range(50)]


async def test_what_listeners_raise_reaches_the_application(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 2)

    class Bad(Log):
        def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            raise LookupError("no state")

    consumer = await start(four, **OPTIONS)
    consumer.subscribe(["t"], listener=Bad())
    with pytest.raises(LookupError, match="no state"):
        await consumer.getone()
    assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_calls_inside_a_listener(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)

    class Busy(Log):
        refused: Exception | None = None

        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            try:
                await consumer.getmany()
            except IllegalStateError as error:
                self.refused = error
            assert await consumer.position(T0) == 0
            await consumer.commit({T0: 2})
            consumer.seek(T0, 3)

    listener = Busy()
    consumer = await start(four, enable_auto_commit=False, **OPTIONS)
    consumer.subscribe(["t"], listener=listener)
    assert await read(consumer, 2) == [(0, 3), (0, 4)]
    assert listener.refused is not None
    assert four.groups.committed("g", "t", 0) == 2


async def test_stop_commits_what_is_finished_and_leaves(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)
    consumer = await start(four, "t", **OPTIONS)
    await read(consumer, 3)
    await consumer.stop()
    assert four.groups.committed("g", "t", 0) == 3
    member = four.requests(LeaveGroupRequest)[-1].request.members[0]
    assert member.reason


async def test_stop_without_a_coordinator(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)
    consumer = await start(four, "t", request_timeout_ms=300, **OPTIONS)
    await read(consumer, 3)
    fetches = four.count(FetchRequest)
    assert fetches
    await four.stop_broker(0)
    async with timeout(30):
        await consumer.stop()


async def test_a_cancelled_start_leaves_nothing_behind(four: FakeCluster, start: Start) -> None:
    four.intercept(SyncGroupRequest, Silence(), times=1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(start(four, "t", **OPTIONS), 0.3)
    assert shares(await start(four, "t", **OPTIONS)) == [4]


@pytest.mark.parametrize("version", ["0.9", "0.11", "2.1", "2.8", "3.9"])
async def test_every_release(start: Start, version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t", partitions=4)
        first = await start(cluster, "t", **OPTIONS)
        second = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: shares(first, second) == [2, 2])
        await first.stop()
        await until(cluster, lambda: shares(second) == [4])
        await second.stop()
        assert cluster.failures == []


# == Many members, and members with different assignors ============================================


MANY_MEMBERS, MANY_PARTITIONS = 40, 400


def partition_counts(consumers: list[AIOKafkaConsumer]) -> list[int]:
    """How many partitions each has; fails if two have the same one. One that joins is left out: it
    shows what it had, and reads nothing of it."""
    settled = [each for each in consumers if each.health().state is ConsumerState.RUNNING]
    owned = [consumer.assignment() for consumer in settled]
    sizes = [len(some) for some in owned]
    assert len(frozenset[TopicPartition]().union(*owned)) == sum(sizes)
    return sizes


def has_shares(consumers: list[AIOKafkaConsumer], wanted: list[int]) -> bool:
    return sorted(partition_counts(consumers)) == wanted


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
async def test_a_large_group_settles_in_one_rebalance(assignor: Any) -> None:
    """As Kafka does, the cluster gives the members of a new group time to come together."""
    settings = {"group.initial.rebalance.delay.ms": 1000}
    async with FakeCluster(config=settings) as cluster:
        await cluster.create_topic("t", partitions=MANY_PARTITIONS)
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                partition_assignment_strategy=[assignor],
            )
            for _ in range(MANY_MEMBERS)
        ]
        try:
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            assert partition_counts(consumers) == [MANY_PARTITIONS // MANY_MEMBERS] * MANY_MEMBERS
            assert cluster.groups.classic["g"].generation == 1
            # Each asks twice: for its member id, then with it (KIP-394).
            assert cluster.count(JoinGroupRequest) == 2 * MANY_MEMBERS
            assert cluster.count(SyncGroupRequest) == MANY_MEMBERS
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))


async def test_eager_members_with_a_cooperative_assignor(
    cluster: FakeCluster, start: Start
) -> None:
    """With assignors of both kinds a member is eager: it must not claim what it has given up, or
    no other member gets it."""
    await cluster.create_topic("t", partitions=6)
    options = {
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "partition_assignment_strategy": [CooperativeStickyAssignor, RangePartitionAssignor],
    }
    consumers = []
    for count in (1, 2, 3):
        consumers.append(await start(cluster, "t", **options))
        wanted = [6 // count] * count
        await cluster.wait_for(lambda wanted=wanted: partition_counts(consumers) == wanted)


class OtherAssignor(CooperativeStickyAssignor):
    """A program's own, to which a group moves from the one of this library."""

    name = "other"


class NaiveAssignor(RangePartitionAssignor):
    """One that does not know of two steps."""

    name = "naive"
    supports_cooperative = True


class Duck:
    """One that has only the methods that it needs."""

    name = "duck"
    supports_cooperative = True

    def metadata(self, topics: Any) -> Any:
        return RangePartitionAssignor.metadata(topics)

    def assign(self, cluster: Any, members: Any) -> Any:
        return RangePartitionAssignor.assign(cluster, members)

    def on_assignment(self, assignment: Any) -> None:
        pass


class Slow(ConsumerRebalanceListener):
    """Gives nothing up before the newcomer has heard of its first assignment."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self.gate.wait()

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        pass


class Newcomer(ConsumerRebalanceListener):
    """Notes what it is assigned while another consumer has it."""

    def __init__(self, others: list[AIOKafkaConsumer], gate: asyncio.Event) -> None:
        self.shared: set[TopicPartition] = set()
        self._others = others
        self._gate = gate

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        for other in self._others:
            self.shared |= other.assignment() & assigned
        self._gate.set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([CooperativeStickyAssignor, OtherAssignor], [OtherAssignor]),
        2 * ([NaiveAssignor],),
        2 * ([Duck],),
    ],
)
async def test_a_newcomer_gets_nothing_that_another_cooperative_member_has(
    cluster: FakeCluster, start: Start, before: list[Any], after: list[Any]
) -> None:
    """Only the assignor that was chosen hears of an assignment. A leader that asked the other one
    gave partitions to a newcomer that their owners had not given up yet, and so did one whose
    assignor is a program's own."""
    await cluster.create_topic("t", partitions=4)
    options: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
    slow = Slow()
    consumers = []
    for count in (1, 2):
        consumer = await start(cluster, partition_assignment_strategy=before, **options)
        consumer.subscribe(["t"], listener=slow)
        consumers.append(consumer)
        await cluster.wait_for(partial(has_shares, consumers, [4 // count] * count))
    slow.gate.clear()
    third = await start(cluster, partition_assignment_strategy=after, **options)
    newcomer = Newcomer(consumers, slow.gate)
    third.subscribe(["t"], listener=newcomer)
    await cluster.wait_for(partial(has_shares, [*consumers, third], [1, 1, 2]))
    assert newcomer.shared == set()


# == The rack of a member (KIP-881) ================================================================


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("rack", [None, "", "here"])
async def test_the_leader_learns_the_rack(
    cluster: FakeCluster, start: Start, assignor: Any, rack: str | None
) -> None:
    """It is read from version 3 of the metadata on, and not at all from older ones."""
    await cluster.create_topic("t")
    options = {"partition_assignment_strategy": [assignor], "client_rack": rack}
    await start(cluster, "t", group_id="g", **options)
    request = cluster.requests(JoinGroupRequest)[-1].request
    (protocol,) = request.protocols
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.topics) == (rack or None, ["t"])


async def test_members_get_partitions_in_their_racks(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [1], 1: [0], 2: [1], 3: [0]})
        options = {"partition_assignment_strategy": [RangePartitionAssignor], "group_id": "g"}
        members = await asyncio.gather(
            *(start(cluster, "t", client_rack=rack, **options) for rack in "ab")
        )

        def numbers() -> list[set[int]]:
            return [{tp.partition for tp in member.assignment()} for member in members]

        await cluster.wait_for(lambda: numbers() == [{1, 3}, {0, 2}])


def refuse_empty_racks(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Fail | None:
    return Fail(InvalidRequestError) if request.rack_id == "" else None


@pytest.mark.parametrize("rack", [None, "", "here"])
async def test_the_coordinator_learns_the_rack(
    cluster: FakeCluster, start: Start, rack: str | None
) -> None:
    await cluster.create_topic("t")
    cluster.intercept(ConsumerGroupHeartbeatRequest, refuse_empty_racks)
    await start(cluster, "t", group_id="g", group_protocol="consumer", client_rack=rack)
    request = cluster.requests(ConsumerGroupHeartbeatRequest)[0].request
    assert request.rack_id == (rack or None)


# == Property test: members join, leave and fail in any order ======================================
#
# Members join, leave, are removed, seek, pause, fetch, commit and cancel in any order, while
# responses are lost and leaders move. The model knows the record that must be returned next: the
# following one, the committed one after an assignment, the sought one after a seek. It runs in
# simulated time.


PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "sticky": {"partition_assignment_strategy": [StickyPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}

APIS = [
    FetchRequest,
    HeartbeatRequest,
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
]

ANSWERS = [Cut(), Cut(handled=True), Delay(0.01), Delay(0.02, Cut(handled=True))]
COORDINATOR_ERRORS = [
    errors.NotCoordinatorForGroupError,
    errors.GroupLoadInProgressError,
    errors.GroupCoordinatorNotAvailableError,
]

members = st.integers(0, 2)
partitions = st.integers(0, PARTITIONS - 1)
turns = st.integers(0, 40)
Step = tuple[Any, ...]
"""The name of a method of `Churn`, and what it is called with."""


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


STEPS = st.one_of(
    step("join", turns),
    step("leave", members),
    step("expire", members, turns),
    step("rebalance", turns),
    step("poll", members, st.integers(1, 9), st.sampled_from([0, 0, 10])),
    step("cancel", members, turns, st.booleans()),
    step("commit", members, turns),
    step("seek", members, partitions, st.integers(0, 30)),
    step("pause", members, partitions, st.booleans()),
    step("write", partitions, st.integers(1, 12)),
    step("move_leader", partitions, st.integers(0, 1)),
    step("move_coordinator", st.integers(0, 1)),
    step("drop_connections", turns),
    step("fault", st.sampled_from(APIS), st.sampled_from(ANSWERS), st.integers(1, 3)),
    step(
        "fault",
        st.sampled_from(APIS[1:]),
        st.sampled_from([Fail(error) for error in COORDINATOR_ERRORS]),
        st.integers(1, 3),
    ),
    step("let_time_pass", st.sampled_from([0.001, 0.01, 0.03])),
)


class Churn:
    """What may happen to a group, step by step."""

    def __init__(self, group: Group) -> None:
        self.group = group

    # -- the group ---------------------------------------------------------------------------------

    async def join(self, count: int) -> None:
        self.group.join()
        await self.group.turn(count)

    async def leave(self, index: int) -> None:
        await self.group.leave(index)

    async def expire(self, index: int, count: int) -> None:
        self.group.expire(index)
        await self.group.turn(count)

    async def rebalance(self, count: int) -> None:
        self.group.rebalance()
        await self.group.turn(count)

    # -- the application ---------------------------------------------------------------------------

    async def poll(self, index: int, limit: int, wait: int) -> None:
        member = self.group.member(index)
        if member is not None:
            await member.poll(limit, wait)

    async def cancel(self, index: int, count: int, one: bool) -> None:
        member = self.group.member(index)
        if member is not None:
            await member.ask_and_cancel(count, one=one)

    async def commit(self, index: int, count: int) -> None:
        member = self.group.member(index)
        if member is not None:
            member.begin_commit()
            await self.group.turn(count)

    async def seek(self, index: int, number: int, offset: int) -> None:
        member = self.group.member(index)
        if member is not None:
            member.seek(number, offset)

    async def pause(self, index: int, number: int, on: bool) -> None:
        member = self.group.member(index)
        if member is not None:
            member.set_paused(number, on)

    # -- the cluster -------------------------------------------------------------------------------

    async def write(self, number: int, count: int) -> None:
        self.group.write(number, count)

    async def move_leader(self, number: int, broker: int) -> None:
        self.group.cluster.move_leader(TPS[number], broker)

    async def move_coordinator(self, broker: int) -> None:
        self.group.cluster.move_coordinator("group", "g", broker)

    async def drop_connections(self, count: int) -> None:
        self.group.cluster.drop_connections()
        await self.group.turn(count)

    async def fault(self, api: Any, answer: Action, times: int) -> None:
        self.group.fault(api, answer, times)

    async def let_time_pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def play(group: Group, counts: list[int], steps: list[Step]) -> None:
    churn = Churn(group)
    await group.start()
    try:
        for number, count in enumerate(counts):
            group.write(number, count)
        group.join()
        await asyncio.wait([group.members[0].starting])
        for name, *arguments in steps:
            await in_time(getattr(churn, name)(*arguments))
            group.check_commits()
        await group.finish()
    finally:
        await group.close()


# An auto-commit waits for the commit before a revocation. Meanwhile the application seeks, and the
# partition is revoked, and assigned to the same member again: the auto-commit is void.
OUTLIVED: dict[str, Any] = {
    "seed": 211222,
    "counts": [0, 29, 22, 18],
    "steps": [
        ("move_coordinator", 0),
        ("move_coordinator", 0),
        ("rebalance", 32),
        ("cancel", 0, 33, True),
        ("move_coordinator", 1),
        ("commit", 0, 2),
        ("commit", 0, 0),
        ("fault", FetchRequest, Delay(seconds=0.02, then=Cut(handled=True)), 2),
        ("rebalance", 0),
        ("rebalance", 29),
        ("join", 14),
        ("seek", 0, 0, 26),
        ("seek", 0, 2, 27),
        ("pause", 1, 1, True),
        ("poll", 2, 3, 10),
        ("cancel", 1, 2, True),
        ("poll", 0, 3, 0),
        ("move_leader", 3, 0),
        ("move_coordinator", 1),
        ("write", 1, 4),
        ("seek", 2, 2, 1),
        ("poll", 2, 7, 10),
        ("expire", 1, 2),
        ("rebalance", 24),
        ("cancel", 0, 7, True),
        ("leave", 1),
        ("rebalance", 6),
        ("rebalance", 2),
        ("commit", 1, 20),
        ("poll", 1, 5, 0),
        ("rebalance", 13),
        ("seek", 1, 3, 7),
        ("move_leader", 3, 0),
        ("rebalance", 26),
        ("move_leader", 1, 1),
        ("pause", 1, 3, False),
        ("fault", ConsumerGroupHeartbeatRequest, Cut(handled=False), 1),
        ("join", 16),
        ("fault", SyncGroupRequest, Delay(seconds=0.02, then=Cut(handled=True)), 3),
        ("write", 3, 5),
        ("rebalance", 34),
        ("rebalance", 30),
        ("poll", 1, 1, 0),
        ("cancel", 1, 33, True),
        ("move_coordinator", 0),
        ("rebalance", 2),
        ("poll", 0, 3, 0),
        ("fault", JoinGroupRequest, Fail(error=errors.GroupLoadInProgressError), 2),
        ("move_coordinator", 0),
    ],
}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_automatic", [False, True], ids=["manual", "auto"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_skipped_or_repeated(protocol: str, is_automatic: bool, scale: Scale) -> None:
    options = {**PROTOCOLS[protocol], "enable_auto_commit": is_automatic}

    @example(**OUTLIVED)
    @settings(
        max_examples=scale(10, 1000),
        deadline=None,
        derandomize=not scale.is_long,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        seed=st.integers(0, 2**20),
        counts=st.lists(st.integers(0, 30), min_size=PARTITIONS, max_size=PARTITIONS),
        steps=st.lists(STEPS, min_size=scale(15, 30), max_size=scale(30, 60)),
    )
    def run(seed: int, counts: list[int], steps: list[Step]) -> None:
        Simulation(seed).run(play(Group(options), counts, steps))

    run()
