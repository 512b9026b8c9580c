"""Commits while the group rebalances, and of members that have left or were removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerState, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    ConsumerStoppedError,
    FencedInstanceId,
    GroupLoadInProgressError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, Hold, RequestContext
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import CONFIG
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, is_member, until

# == Commits of members that lose their membership =================================================


CLASSIC: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
CONSUMER: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}


# -- commits ---------------------------------------------------------------------------------------


async def test_a_commit_that_was_answered_without_a_word_is_made_again(
    filled: FakeCluster, start: Start
) -> None:
    consumer = await start(filled, assign=[T0], group_id="g", enable_auto_commit=False)
    filled.intercept(OffsetCommitRequest, OffsetCommitResponse(topics=[]), times=1)
    await consumer.commit({T0: 5})
    assert filled.groups.committed("g", "t") == 5


async def test_a_commit_does_not_wait_without_end_for_an_earlier_one(
    filled: FakeCluster, start: Start
) -> None:
    """That of auto-commit takes a second if it has to."""
    consumer = await start(
        filled, "t", auto_commit_interval_ms=10, default_api_timeout_ms=100, **CLASSIC
    )
    answer = asyncio.Event()
    script = filled.intercept(OffsetCommitRequest, Hold(answer), times=1)
    await read(consumer, 3)
    await script.wait()
    with pytest.raises(KafkaTimeoutError, match="an earlier commit of the same partitions"):
        async with timeout(10):
            await consumer.commit({T0: 1})
    answer.set()
    async with timeout(10):
        await consumer.commit({T0: 2})
    await until(filled, lambda: filled.groups.committed("g", "t") == 2)


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
    filled: FakeCluster, start: Start, request_type: Any, error: type[BrokerResponseError]
) -> None:
    """1. A commit, or a heartbeat, is under way. 2. The member gives up its partitions and joins
    again. 3. The request is refused: that is nothing against the member of now, and the commit is
    made again."""
    await filled.create_topic("u")
    answer = asyncio.Event()
    log = Leading(answer)
    consumer = await start(filled, enable_auto_commit=False, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(filled, lambda: consumer.assignment() == {T0})
    answer.clear()
    log.calls.clear()
    joins = filled.count(JoinGroupRequest)
    with filled.intercept(request_type, Hold(answer, Fail(error)), times=1) as script:
        commit = asyncio.get_running_loop().create_task(consumer.commit({T0: 5}))
        await script.wait()
        consumer.subscribe(["t", "u"], listener=log)
        async with timeout(10):
            await commit
    assert filled.groups.committed("g", "t") == 5
    await until(filled, lambda: len(consumer.assignment()) == 2)
    beats = filled.count(HeartbeatRequest)
    await until(filled, lambda: filled.count(HeartbeatRequest) > beats + 1)
    assert filled.count(JoinGroupRequest) == joins + 1
    assert [name for name, _ in log.calls] == ["revoked", "assigned"]


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def test_a_commit_does_not_outlive_the_membership_it_was_called_in(
    filled: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """Others may have read on meanwhile, though the partition has come back."""
    log = Log()
    consumer = await start(filled, enable_auto_commit=False, **options)
    consumer.subscribe(["t"], listener=log)
    await until(filled, lambda: log.calls[-1:] == [("assigned", {0})])
    with filled.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError)) as script:
        commit = asyncio.get_running_loop().create_task(consumer.commit({T0: 5}))
        await script.wait()
        filled.groups.expire("g", consumer.group_metadata().member_id)
        await until(filled, lambda: log.calls[-2:] == [("lost", {0}), ("assigned", {0})])
        await until(filled, lambda: consumer.health().state == "running")
    with pytest.raises(CommitFailedError):
        async with timeout(10):
            await commit
    assert filled.groups.committed("g", "t") is None


async def test_who_was_removed_does_not_commit_as_somebody_else(
    filled: FakeCluster, start: Start
) -> None:
    """The group has no members left: it takes commits of all clients that know its name."""
    consumer = await start(filled, "t", enable_auto_commit=False, **CLASSIC)
    await read(consumer, 3)
    answer = asyncio.Event()
    script = filled.intercept(JoinGroupRequest, Hold(answer), times=1)
    filled.groups.expire("g", consumer.group_metadata().member_id)
    await until(filled, lambda: not is_member(consumer))
    with pytest.raises((CommitFailedError, IllegalStateError)):
        await consumer.commit({T0: 3})
    assert filled.groups.committed("g", "t") is None
    await script.wait()
    answer.set()


# == Commits that a rebalance delays or rejects ====================================================


PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


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


# -- what a commit finds out -----------------------------------------------------------------------


async def test_a_commit_that_waits_too_long_for_a_rebalance(filled: FakeCluster) -> None:
    async with member(filled, "classic") as consumer:
        await read(consumer, 9)
        with filled.intercept(JoinGroupRequest, Fail(RebalanceInProgressError)) as script:
            joins = filled.count(JoinGroupRequest)
            filled.groups.rebalance("g")
            reader = asyncio.get_running_loop().create_task(consumer.getmany(timeout_ms=5000))
            await filled.wait_for(lambda: filled.count(JoinGroupRequest) > joins)
            with pytest.raises(KafkaTimeoutError, match="rebalanc"):
                await consumer.commit({T0: 3})
            assert script.hits
        await reader
    assert filled.groups.committed("g", "t") is None


async def test_a_commit_for_what_went_to_another_member_meanwhile(filled: FakeCluster) -> None:
    await filled.create_topic("u", partitions=2)
    loop = asyncio.get_running_loop()
    first, second = member(filled, "classic"), member(filled, "classic")
    for consumer in (first, second):
        consumer.subscribe(["u"])
    async with first:
        before = sorted(first.assignment())
        reader = loop.create_task(first.getone())
        go = asyncio.Event()
        with filled.intercept(SyncGroupRequest, Hold(go)) as script:
            starting = loop.create_task(second.start())
            # Both have joined; it is not known yet whose the partitions will be.
            await filled.wait_for(lambda: script.hits == 2)
            commits = [loop.create_task(first.commit({tp: 1})) for tp in before]
            go.set()
            await starting
        results = await asyncio.gather(*commits, return_exceptions=True)
        given = [tp for tp in before if tp in second.assignment()]
        assert len(given) == 1
        for tp, result in zip(before, results, strict=True):
            if tp in given:
                assert isinstance(result, CommitFailedError)
                assert "this member no longer owns u-" in str(result)
            else:
                assert result is None
        reader.cancel()
        await second.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_commit_of_what_was_unsubscribed_fails(
    filled: FakeCluster, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=filled.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=60_000,
        **PROTOCOLS[protocol],
    )
    async with consumer:
        await read(consumer, 3)
        await consumer.getmany()
        with filled.intercept(OffsetCommitRequest, Fail(InvalidGroupIdError)) as script:
            consumer.unsubscribe()
            await filled.wait_for(lambda: script.hits)
            await filled.wait_for(lambda: filled.groups.state_of("g") == "Empty")
        assert "auto-commit failed" in caplog.text
        # It is left all the same, and the records come again.
        consumer.subscribe(["t"])
        assert (await consumer.getone()).offset == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_commit_that_is_refused_for_good_ends_the_membership(
    filled: FakeCluster, protocol: str
) -> None:
    async with member(filled, protocol) as consumer:
        await read(consumer, 9)
        # The next reader lets other tasks run first: the membership ends just then.
        answer = Delay(0.05, Fail(FencedInstanceId))
        with filled.intercept(OffsetCommitRequest, answer):
            with pytest.raises(CommitFailedError) as caught:
                await consumer.commit({T0: 1})
        assert isinstance(caught.value.__cause__, FencedInstanceId)
        with pytest.raises(FencedInstanceId, match="group_instance_id"):
            async with timeout(10):
                await consumer.getone()
        assert consumer.health().state == "failed"


async def test_a_commit_learns_that_the_group_rebalances(filled: FakeCluster) -> None:
    async with member(filled, "classic") as consumer:
        await read(consumer, 9)
        joins = filled.count(JoinGroupRequest)
        # Not from a heartbeat: these tell nothing.
        filled.intercept(HeartbeatRequest, Fail(GroupLoadInProgressError))
        reader = asyncio.get_running_loop().create_task(consumer.getone())
        with filled.intercept(OffsetCommitRequest, Fail(RebalanceInProgressError), times=1):
            await consumer.commit({T0: 9})
        await filled.wait_for(lambda: filled.count(JoinGroupRequest) == joins + 1)
        assert filled.groups.committed("g", "t") == 9
        fill(filled, 0, 1)
        # An eager member begins again where it finds the group: before this commit, or after it.
        assert (await reader).offset in (0, 9)


# == Queued commits while the membership ends or the member joins ==================================


async def test_a_commit_that_waits_for_its_turn_does_not_outlive_the_membership(
    two_brokers: FakeCluster, start: Start
) -> None:
    fill(two_brokers, 0, 10)
    consumer = await start(
        two_brokers, "t", group_id="g", enable_auto_commit=False, heartbeat_interval_ms=20
    )
    await read(consumer, 3)
    refusals = two_brokers.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError))
    first = asyncio.create_task(consumer.commit({T0: 2}))
    await refusals.wait()
    second = asyncio.create_task(consumer.commit({T0: 3}))
    before = consumer.group_metadata().member_id
    two_brokers.groups.expire("g", before)

    def is_back() -> bool:
        try:
            return consumer.group_metadata().member_id not in (before, "") and bool(
                consumer.assignment()
            )
        except CommitFailedError:
            return False

    await two_brokers.wait_for(is_back)
    refusals.remove()
    for commit in (first, second):
        with pytest.raises(CommitFailedError):
            await commit
    assert two_brokers.groups.committed("g", "t") is None


async def test_commit_waits_for_a_join_that_takes_away_what_is_not_in_hand(
    start: Start,
) -> None:
    """A cooperative member reads on while it joins. Its commit was refused because of a partition
    of which it had nothing to commit, and what it had of the other one was not stored."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 1, 2)
        options: dict[str, Any] = {
            "group_id": "g",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 20,
            "partition_assignment_strategy": [CooperativeStickyAssignor],
        }
        first = await start(cluster, "t", client_id="first", **options)
        assert await read(first, 2) == [(1, 0), (1, 1)]
        await first.commit()
        fill(cluster, 0, 3)
        assert await read(first, 3) == [(0, 0), (0, 1), (0, 2)]
        committing = asyncio.Event()

        def hold(request: SyncGroupRequest, context: Any) -> Hold | None:
            return Hold(committing) if context.client_id == "first" else None

        syncs = cluster.intercept(SyncGroupRequest, hold)
        newcomer: Any = start(cluster, "t", client_id="second", **options)
        second = asyncio.create_task(newcomer)
        await cluster.wait_for(lambda: cluster.groups.state_of("g") == "CompletingRebalance")
        commit = asyncio.create_task(first.commit())
        asyncio.get_running_loop().call_soon(committing.set)
        await commit
        syncs.remove()
        assert cluster.groups.committed("g", "t", 0) == 3
        await second
        await cluster.wait_for(lambda: first.assignment() == {T0})


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
async def test_the_auto_commit_of_a_revocation_does_not_wait_for_what_was_unsubscribed(
    filled: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level(logging.INFO, "aiokafka")
    options: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 10}
    if protocol == "consumer":
        options["group_protocol"] = "consumer"
    else:
        options |= {"heartbeat_interval_ms": 20, "session_timeout_ms": 60_000}
        options["partition_assignment_strategy"] = [CooperativeStickyAssignor]
    await filled.create_topic("u")
    first = await start(filled, "t", "u", **options)
    with filled.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError)):
        await read(first, 9)
        await first.getmany()
        await until(filled, lambda: filled.count(OffsetCommitRequest) > 0)
        joining: Any = start(filled, "t", "u", **options)
        second = asyncio.create_task(joining)
        await until(filled, lambda: "Revoking" in caplog.text)
        first.unsubscribe()
    first.subscribe(["t", "u"])
    async with timeout(1):
        await second
        await until(filled, lambda: first.assignment() and second.result().assignment())


# == Commits of a removed member ===================================================================


PROTOCOL_OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("is_deleted", [False, True], ids=["removed", "group deleted"])
@pytest.mark.parametrize("protocol", PROTOCOL_OPTIONS)
def test_a_commit_is_told_once_that_the_member_was_removed(protocol: str, is_deleted: bool) -> None:
    """The next one, of the first record after that, was stored and raised CommitFailedError as
    well. Where the group had been deleted, as one without members may be, the first raised
    GroupIdNotFound, and the member went on until its next heartbeat."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            log = Log()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **PROTOCOL_OPTIONS[protocol],
            )
            consumer.subscribe(["t"], listener=log)
            async with consumer:
                await consumer.getmany(timeout_ms=10_000)
                cluster.groups.expire("g", consumer.group_metadata().member_id)
                if is_deleted:
                    assert cluster.groups.delete("g") == 0
                with pytest.raises(CommitFailedError):
                    await consumer.commit()
                assert (await consumer.getone()).offset == 0
                told = [call for call in log.calls if call[1]]
                assert told == [("assigned", {0}), ("lost", {0}), ("assigned", {0})]
                await consumer.commit()
                assert cluster.groups.committed("g", "t") == 1

    simulate(main)


# == Commits for an earlier assignment =============================================================


OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "auto_commit_interval_ms": 60_000,
    "partition_assignment_strategy": [CooperativeStickyAssignor],
}


async def test_an_assignment_that_was_over_is_not_committed_with_a_later_one(
    cluster: FakeCluster, start: Start
) -> None:
    """The member had left because of its application, which unsubscribed at that moment."""
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    idle = await start(cluster, "t", client_id="idle", max_poll_interval_ms=100, **OPTIONS)
    assert await read(idle, 1) == [(0, 0)]
    assert await read(idle, 1) == [(0, 1)]
    goes_on = asyncio.Event()
    with cluster.intercept(LeaveGroupRequest, Hold(goes_on)) as script:
        await script.wait()
        idle.unsubscribe()
        goes_on.set()
        await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    owner = await start(cluster, "t", **OPTIONS)
    assert await read(owner, 4) == [(0, n) for n in range(4)]
    await owner.commit()
    answer = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        return Hold(answer) if context.client_id == "idle" else None

    count = cluster.count(LeaveGroupRequest)
    with cluster.intercept(SyncGroupRequest, hold) as script:
        idle.subscribe(["t"])
        await until(cluster, lambda: script.hits)
        idle.unsubscribe()
        answer.set()
        # It commits before it leaves.
        await until(cluster, lambda: cluster.count(LeaveGroupRequest) > count)
    assert cluster.groups.committed("g", "t") == 4


async def test_an_offset_that_was_put_back_meanwhile_is_committed_again(
    cluster: FakeCluster, start: Start
) -> None:
    """What a member had committed in a former assignment says nothing about the next one."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **OPTIONS)
    assert len(await read(consumer, 3)) == 3
    await consumer.commit()
    consumer.unsubscribe()
    await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    other = await start(cluster, "t", **{**OPTIONS, "enable_auto_commit": False})
    await other.commit({T0: 1})
    await other.stop()
    consumer.subscribe(["t"])
    assert await read(consumer, 2) == [(0, 1), (0, 2)]
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    consumer.unsubscribe()
    await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    assert cluster.groups.committed("g", "t") == 3


async def test_a_commit_that_is_tried_again_puts_back_nothing_of_the_last_one(
    cluster: FakeCluster, start: Start
) -> None:
    """What `unsubscribe()` leaves to commit comes behind what was sent before."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    goes_on = asyncio.Event()

    class Slow(Log):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await goes_on.wait()

    delays: dict[str, Any] = {"retry_backoff_ms": 200, "retry_backoff_max_ms": 200}
    consumer = await start(cluster, **delays, **OPTIONS)
    consumer.subscribe(["t"], listener=Slow())
    assert len(await read(consumer, 3)) == 3
    assert await consumer.getmany() == {}
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError), times=1) as script:
        earlier = asyncio.ensure_future(consumer.commit({T0: 1}))
        await script.wait()
        consumer.unsubscribe()
        await earlier
        await until(cluster, lambda: cluster.count(OffsetCommitRequest) > 2)
        goes_on.set()
        await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    assert cluster.groups.committed("g", "t") == 3


# What members are told in the next ones: the kinds that keep their partitions, and the one that
# gives up everything for each join.
COOPERATIVE: dict[str, Any] = {**OPTIONS, "enable_auto_commit": False}
EAGER: dict[str, Any] = {**COOPERATIVE, "partition_assignment_strategy": [RangePartitionAssignor]}
BY_COORDINATOR = {"group_id": "g", "group_protocol": "consumer", "enable_auto_commit": False}


def of_first(action: Any) -> Any:
    """Do this with what the client named "first" requests."""

    def choose(request: Any, context: RequestContext) -> Any:
        return action() if context.client_id == "first" else None

    return choose


async def read_and_commit(owner: AIOKafkaConsumer) -> None:
    assert len(await read(owner, 4)) == 4
    await owner.commit()
    await owner.stop()


@pytest.mark.parametrize("options", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])
async def test_a_commit_ends_with_unsubscribe_though_its_partition_comes_back(
    cluster: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """Another member has had the partition meanwhile, and has committed more."""
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    first = await start(cluster, "t", client_id="first", **options)
    assert len(await read(first, 2)) == 2
    comes_back = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError), times=1) as script:
        commit = asyncio.ensure_future(first.commit({T0: 1}))
        await script.wait()
    with cluster.intercept(JoinGroupRequest, of_first(lambda: Hold(comes_back))) as script:
        first.unsubscribe()
        first.subscribe(["t"])
        await script.wait()
        await read_and_commit(await start(cluster, "t", **options))
        comes_back.set()
        with pytest.raises(CommitFailedError, match="this member no longer owns"):
            await commit
    assert cluster.groups.committed("g", "t") == 4


@pytest.mark.parametrize("passed", ["a skipped record", "a transaction marker"])
async def test_a_commit_after_a_rebalance_does_not_fail_for_offsets_that_no_record_was_returned_for(
    cluster: FakeCluster, start: Start, passed: str
) -> None:
    await cluster.create_topic("t")
    options = EAGER | {"value_deserializer": int, "on_deserialization_error": "skip"}
    first = await start(cluster, "t", **options)
    fill(cluster, 0, 2)
    assert len(await read(first, 2)) == 2
    await first.commit()
    if passed == "a skipped record":
        cluster.log("t").extend([(None, b"not a number", ())])
    else:
        cluster.log("t").add_marker(1, 0, commit=True)
    async with timeout(10):
        while await first.position(T0) < 3:
            assert await first.getmany(timeout_ms=10) == {}
    await start(cluster, "t", **options)
    await first.commit()


@pytest.mark.parametrize(
    "options", [COOPERATIVE, EAGER, BY_COORDINATOR], ids=["cooperative", "eager", "consumer"]
)
async def test_a_commit_ends_when_its_partition_goes_to_another_member(
    start: Start, options: dict[str, Any]
) -> None:
    """It is tried again until the partition has come back."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=2)
        for number in range(2):
            fill(cluster, number, 4)
        first = await start(cluster, "t", client_id="first", **options)
        assert len(await read(first, 8)) == 8
        refuse = of_first(lambda: Fail(GroupLoadInProgressError))
        with cluster.intercept(OffsetCommitRequest, refuse) as script:
            commit = asyncio.ensure_future(first.commit({T0: 1, T1: 1}))
            await script.wait()
            reader = asyncio.ensure_future(first.getone())
            owner = await start(cluster, "t", **options)
            await until(cluster, lambda: len(owner.assignment()) == len(first.assignment()) == 1)
            moved = min(owner.assignment())
            await read_and_commit(owner)
            await until(cluster, lambda: len(first.assignment()) == 2)
        with pytest.raises(CommitFailedError, match=f"this member no longer owns t-{moved[1]}"):
            await commit
        reader.cancel()
        assert cluster.groups.committed("g", "t", moved.partition) == 4


@pytest.mark.parametrize(
    "answers",
    [
        [Cut(handled=True)],
        [None],
        [Cut(handled=True), Fail(RebalanceInProgressError)],
    ],
    ids=["lost", "not wanted", "lost, then too late"],
)
async def test_a_commit_of_an_eager_member_ends_with_a_generation_that_it_misses(
    cluster: FakeCluster, start: Start, answers: list[Any]
) -> None:
    """The response to its SyncGroup is lost, or the application subscribes meanwhile."""
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        fill(cluster, number, 4)
    first = await start(cluster, "t", client_id="first", **EAGER)
    assert len(await read(first, 8)) == 8
    comes_back = asyncio.Event()
    missed: list[Any] = []

    def miss() -> Any:
        if len(missed) == len(answers):
            return None
        missed.append(answers[len(missed)])
        first.subscribe(["t"])
        return missed[-1]

    def hold() -> Any:
        return Hold(comes_back) if missed else None

    moved: set[TopicPartition] = set()
    refuse = of_first(lambda: Fail(GroupLoadInProgressError))
    with cluster.intercept(OffsetCommitRequest, refuse) as script:
        commit = asyncio.ensure_future(first.commit({T0: 1, T1: 1}))
        await script.wait()
        reader = asyncio.ensure_future(first.getone())
        cluster.intercept(SyncGroupRequest, of_first(miss))
        cluster.intercept(JoinGroupRequest, of_first(hold))
        owner = await start(cluster, "t", **EAGER)
        await until(cluster, owner.assignment)
        moved |= owner.assignment()
        await read_and_commit(owner)
        comes_back.set()
    with pytest.raises(CommitFailedError, match="this member no longer owns"):
        await commit
    reader.cancel()
    assert [cluster.groups.committed("g", "t", tp.partition) for tp in moved] == [4]


async def test_partitions_chosen_by_hand_are_not_lost_with_the_membership(
    cluster: FakeCluster, start: Start
) -> None:
    """The member leaves because of its application, which chooses others at that moment."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 1)
    fill(cluster, 1, 4)
    log = Log()
    consumer = await start(cluster, max_poll_interval_ms=100, **EAGER)
    consumer.subscribe(["t"], listener=log)
    await read(consumer, 1)
    goes_on = asyncio.Event()
    with cluster.intercept(LeaveGroupRequest, Hold(goes_on)) as script:
        await script.wait()
        consumer.unsubscribe()
        consumer.assign([T1])
        await read(consumer, 4)
        goes_on.set()
        await until(cluster, lambda: ("lost", {0, 1}) in log.calls or len(log.calls) > 3)
    await consumer.commit()
    assert [call for call in log.calls if call[0] == "lost"] == [("lost", {0, 1})]
    assert cluster.groups.committed("g", "t", 1) == 4


async def test_a_commit_outlasts_a_generation_that_an_eager_member_is_given_once_more(
    cluster: FakeCluster, start: Start
) -> None:
    """It does not lead the group, and its application subscribes to the same topics again."""
    await cluster.create_topic("t", partitions=2)
    leader = await start(cluster, "t", **EAGER)
    first = await start(cluster, "t", client_id="first", **EAGER)
    await until(cluster, lambda: len(leader.assignment()) == len(first.assignment()) == 1)
    (mine,) = first.assignment()
    goes_on = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(goes_on)) as script:
        first.subscribe(["t"])
        await script.wait()
        commit = asyncio.ensure_future(first.commit({mine: 0}))
        await asyncio.sleep(0)
        goes_on.set()
        await commit
    assert cluster.groups.committed("g", "t", mine.partition) == 0


async def test_a_commit_outlasts_an_assignment_that_an_eager_member_does_not_take_over(
    cluster: FakeCluster, start: Start
) -> None:
    """The application subscribes to more topics meanwhile. No other member was assigned what the
    member gets there, and gets again."""
    for topic in ("t", "u", "v"):
        await cluster.create_topic(topic)
    first = await start(cluster, "t", **EAGER)
    goes_on = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(goes_on), times=1) as script:
        first.subscribe(["t", "u"])
        await script.wait()
        commit = asyncio.ensure_future(first.commit({T0: 0}))
        await asyncio.sleep(0)
        first.subscribe(["t", "u", "v"])
        goes_on.set()
        await commit
    assert cluster.groups.committed("g", "t") == 0


class Busy(Log):
    """Is at work, when it hears of partitions, until it may go on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.is_called = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self._note("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        await self._note("assigned", assigned)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        await self._note("lost", lost)

    async def _note(self, kind: str, partitions: Set[TopicPartition]) -> None:
        self.calls.append((kind, {tp.partition for tp in partitions}))
        if kind == self._kind and partitions:
            self.is_called.set()
            await self.goes_on.wait()


@pytest.mark.parametrize("kind", ["assigned", "lost"])
@pytest.mark.parametrize("options", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])
async def test_partitions_chosen_by_hand_are_read_though_the_membership_has_failed_meanwhile(
    cluster: FakeCluster, start: Start, options: dict[str, Any], kind: str
) -> None:
    """The listener is at work when the application chooses them."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 4)
    log = Busy(kind)
    consumer = await start(cluster, **options)
    consumer.subscribe(["t"], listener=log)
    if kind == "assigned":
        await log.is_called.wait()
    with cluster.intercept(HeartbeatRequest, Fail(FencedInstanceId)) as script:
        await script.wait()
        await until(cluster, lambda: log.is_called.is_set() and not is_member(consumer))
    consumer.unsubscribe()
    consumer.assign([T1])
    log.goes_on.set()
    assert await read(consumer, 4) == [(1, n) for n in range(4)]
    assert consumer.health().state is ConsumerState.RUNNING
    assert [call for call in log.calls if call[0] == "lost"] == [("lost", {0, 1})]


async def test_commits_of_partitions_chosen_by_hand_wait_while_an_idle_member_leaves(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", max_poll_interval_ms=100, **EAGER)
    await read(consumer, 1)
    goes_on = asyncio.Event()
    with cluster.intercept(LeaveGroupRequest, Hold(goes_on)) as script:
        await script.wait()
        consumer.unsubscribe()
        consumer.assign([T1])
        commit = asyncio.ensure_future(consumer.commit({T1: 3}))
        await asyncio.sleep(0)
        goes_on.set()
        await commit
    assert cluster.groups.committed("g", "t", 1) == 3


@pytest.mark.parametrize("options", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])
async def test_a_commit_of_partitions_chosen_by_hand_outlasts_the_loss_of_the_membership(
    cluster: FakeCluster, start: Start, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It waits until the group is left, which removes the member at that moment."""
    caplog.set_level(logging.INFO, "aiokafka")
    await cluster.create_topic("t", partitions=2)
    log = Busy("revoked")
    consumer = await start(cluster, **options)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: ("assigned", {0, 1}) in log.calls)
    member_id = consumer.group_metadata().member_id
    consumer.unsubscribe()
    consumer.assign([T1])
    await log.is_called.wait()
    commit = asyncio.ensure_future(consumer.commit({T1: 3}))
    cluster.groups.expire("g", member_id)
    await until(cluster, lambda: "the group removed this member" in caplog.text)
    log.goes_on.set()
    await commit
    assert cluster.groups.committed("g", "t", 1) == 3


@pytest.mark.parametrize("options", [COOPERATIVE, EAGER], ids=["cooperative", "eager"])
async def test_stop_leaves_the_group_before_it_sends_commits_of_partitions_chosen_by_hand(
    cluster: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """They wait until the group is left, for which a listener keeps the member."""
    await cluster.create_topic("t", partitions=2)
    log = Busy("revoked")
    consumer = await start(cluster, **options)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: ("assigned", {0, 1}) in log.calls)
    consumer.unsubscribe()
    consumer.assign([T1])
    await log.is_called.wait()
    commit = asyncio.ensure_future(consumer.commit({T1: 3}))
    await asyncio.sleep(0)
    with cluster.intercept(LeaveGroupRequest, Delay(0.05)):
        await consumer.stop()
    await commit
    assert cluster.groups.committed("g", "t", 1) == 3


async def test_a_commit_ends_though_the_end_of_a_block_is_cancelled(
    cluster: FakeCluster, start: Start
) -> None:
    """It waits until the group is left, which is not to be seen any more."""
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, "t", **OPTIONS)
    goes_on = asyncio.Event()
    with cluster.intercept(LeaveGroupRequest, Hold(goes_on)) as script:
        consumer.unsubscribe()
        consumer.assign([T1])
        commit = asyncio.ensure_future(consumer.commit({T1: 3}))
        await script.wait()
        stopping = asyncio.ensure_future(consumer.__aexit__())
        await asyncio.sleep(0)
        stopping.cancel()
        async with timeout(10):
            with pytest.raises(ConsumerStoppedError):
                await commit
        goes_on.set()


async def test_a_commit_outlasts_an_assignment_that_an_eager_leader_brings_too_late(
    cluster: FakeCluster, start: Start
) -> None:
    """Another member joins meanwhile, so that the group goes on without this assignment."""
    await cluster.create_topic("t", partitions=2)
    first = await start(cluster, "t", client_id="first", **EAGER)
    goes_on = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, of_first(lambda: Hold(goes_on)), times=1) as script:
        first.subscribe(["t"])
        await script.wait()
        commits = {tp: asyncio.ensure_future(first.commit({tp: 1})) for tp in (T0, T1)}
        joining = asyncio.ensure_future(start(cluster, "t", **EAGER))
        await until(cluster, lambda: cluster.groups.state_of("g") == "PreparingRebalance")
        goes_on.set()
        await joining
    await until(cluster, lambda: len(first.assignment()) == 1)
    (kept,) = first.assignment()
    await commits.pop(kept)
    assert cluster.groups.committed("g", "t", kept.partition) == 1
    for commit in commits.values():
        with pytest.raises(CommitFailedError, match="this member no longer owns"):
            await commit


# Longer than the member that was removed takes to join again: all join the same generation then.
LATE = {"heartbeat_interval_ms": 3000}


@pytest.mark.parametrize("options", [COOPERATIVE, BY_COORDINATOR], ids=["cooperative", "consumer"])
async def test_what_a_removed_member_had_goes_to_others_though_it_unsubscribes_meanwhile(
    start: Start, options: dict[str, Any]
) -> None:
    """Its listener is at work when the group removes it, and the application subscribes to
    something else: what it claimed when it joined again, no member would read."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=2)
        await cluster.create_topic("u")
        other = await start(cluster, "t", **{**options, **LATE})
        consumer = await start(cluster, **options)
        log = Busy("assigned")
        consumer.subscribe(["t"], listener=log)
        await log.is_called.wait()
        await until(cluster, lambda: len(other.assignment()) == len(consumer.assignment()) == 1)
        cluster.groups.expire("g", consumer.group_metadata().member_id)
        await until(cluster, lambda: not is_member(consumer))
        consumer.unsubscribe()
        consumer.subscribe(["u"], listener=log)
        log.goes_on.set()
        await until(cluster, lambda: {tp.topic for tp in consumer.assignment()} == {"u"})
        await until(cluster, lambda: other.assignment() == {T0, T1})


async def test_what_a_removed_member_had_goes_to_others_though_it_unsubscribes_before_it_joins(
    cluster: FakeCluster, start: Start
) -> None:
    """It waits for its next attempt, and has no listener that has to hear of the end."""
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("u")
    other = await start(cluster, "t", **{**COOPERATIVE, **LATE})
    pause = {"retry_backoff_ms": 500}
    consumer = await start(cluster, "t", client_id="first", **pause, **COOPERATIVE)
    await until(cluster, lambda: len(other.assignment()) == len(consumer.assignment()) == 1)
    member_id = consumer.group_metadata().member_id
    expire = of_first(lambda: cluster.groups.expire("g", member_id))
    with cluster.intercept(JoinGroupRequest, expire, times=1) as script:
        cluster.groups.rebalance("g")
        await script.wait()
        await until(cluster, lambda: not is_member(consumer))
    consumer.unsubscribe()
    consumer.subscribe(["u"])
    await until(cluster, lambda: {tp.topic for tp in consumer.assignment()} == {"u"})
    await until(cluster, lambda: other.assignment() == {T0, T1})
