"""Rebalances, and what the application does meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Set
from typing import Any

import pytest

from aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupLoadInProgressError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokafka.health import ConsumerState
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, RequestContext, Silence
from tests.support.consumer_protocol import CONFIG, shares
from tests.support.consumers import T0, Start, client_of, fill, read
from tests.support.groups import Log, Loop, is_member, until

# == Calls of the application while the member joins or rebalances =================================


OPTIONS: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}


class Watched(Log):
    """Notes partitions that came here while another consumer still had them."""

    def __init__(self, other: AIOKafkaConsumer) -> None:
        super().__init__()
        self.shared: set[TopicPartition] = set()
        self._other = other

    def on_partitions_assigned(self, assigned: Any) -> None:
        super().on_partitions_assigned(assigned)
        self.shared |= self._other.assignment() & assigned


async def test_a_member_that_subscribes_while_it_joins_gives_up_before_others_get(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("u")
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = await start(cluster, "t", client_id="first", **options)
    last = asyncio.Event()
    syncs = 0

    def subscribe_meanwhile(request: SyncGroupRequest, context: RequestContext) -> Hold | None:
        nonlocal syncs
        if context.client_id != "first":
            return None
        syncs += 1
        if syncs == 1:
            # It gets one partition, and is to give up the other. It does not come to that.
            first.subscribe(["t", "u"])
            return None
        return Hold(last)

    cluster.intercept(SyncGroupRequest, subscribe_meanwhile)
    second = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
    watched = Watched(first)
    second.subscribe(["t"], listener=watched)
    loop = Loop(first)
    try:
        async with second:
            asyncio.get_running_loop().call_later(0.2, last.set)
            await until(cluster, lambda: second.assignment() and first.assignment())
            await until(cluster, lambda: len(first.assignment() | second.assignment()) == 3)
    finally:
        await loop.end()
    assert watched.shared == set()


async def test_who_was_removed_while_it_joins_loses_its_partitions_at_once(
    cluster: FakeCluster,
) -> None:
    """A cooperative member keeps them while it joins. Others have them when it was removed, and it
    returned records until the pause before its next join was over."""
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=3000, **options
    )
    log = Log()
    consumer.subscribe(["t"], listener=log)
    loop = asyncio.get_running_loop()
    async with consumer:
        await until(cluster, lambda: consumer.assignment())
        joins = cluster.intercept(JoinGroupRequest, Fail(UnknownMemberIdError), times=1)
        cluster.groups.rebalance("g")
        await joins.wait()
        refused_at = loop.time()
        await until(cluster, lambda: "lost" in [call for call, _ in log.calls])
        assert loop.time() - refused_at < 1.0
        assert not consumer.assignment()
        for member_id in list(cluster.groups.classic["g"].members):
            cluster.groups.expire("g", member_id)
        await until(cluster, lambda: consumer.assignment())


async def test_a_consumer_that_unsubscribes_during_its_first_join_leaves(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    other = await start(cluster, "t", **OPTIONS)
    await until(cluster, lambda: len(other.assignment()) == 2)
    consumer = await start(cluster, client_id="hasty", **OPTIONS)
    has_joined = False

    def unsubscribe(request: JoinGroupRequest, context: RequestContext) -> None:
        nonlocal has_joined
        if context.client_id == "hasty" and not has_joined:
            # The group has no name for it yet, so it takes itself for no member.
            has_joined = True
            consumer.unsubscribe()

    cluster.intercept(JoinGroupRequest, unsubscribe)
    consumer.subscribe(["t"])
    loop = Loop(other)
    try:
        await until(cluster, lambda: has_joined and cluster.count(SyncGroupRequest) >= 3)
        await until(cluster, lambda: cluster.count(LeaveGroupRequest) == 1)
        # A member that reads nothing would keep a partition from the other for good.
        await until(cluster, lambda: len(other.assignment()) == 2)
    finally:
        await loop.end()


async def test_a_member_that_is_stopped_while_it_joins_commits_what_it_has_finished(
    cluster: FakeCluster, start: Start
) -> None:
    """The broker keeps its JoinGroup until all others have joined, too."""
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    consumer = await start(cluster, "t", auto_commit_interval_ms=60_000, **options)
    answer = asyncio.Event()
    with cluster.intercept(JoinGroupRequest, Hold(answer)) as script:
        cluster.groups.rebalance("g")
        await script.wait()
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        await consumer.stop()
        assert cluster.groups.committed("g", "t") == 3
        answer.set()


@pytest.mark.parametrize("goes_on", [False, True], ids=["assigned", "joined again"])
async def test_a_member_that_is_stopped_when_all_have_joined_commits_in_the_next_generation(
    cluster: FakeCluster, start: Start, goes_on: bool
) -> None:
    """The group has begun it, whether the member gets its share in it, or is to join again."""
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    consumer = await start(cluster, "t", auto_commit_interval_ms=60_000, **options)
    answer = asyncio.Event()

    def go_on(request: OffsetCommitRequest, context: RequestContext) -> None:
        if goes_on and not answer.is_set():
            cluster.groups.rebalance("g")
        answer.set()

    with cluster.intercept(SyncGroupRequest, Hold(answer)) as script:
        cluster.groups.rebalance("g")
        await script.wait()
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        # The first commit is of the generation that is over.
        cluster.intercept(OffsetCommitRequest, go_on)
        await consumer.stop()
    assert cluster.groups.committed("g", "t") == 3


@pytest.mark.parametrize("goes_on", [False, True], ids=["assigned", "joined again"])
@pytest.mark.parametrize("has_joined", [False, True])
async def test_a_member_that_unsubscribes_and_is_stopped_while_it_joins_commits_as_well(
    cluster: FakeCluster, start: Start, has_joined: bool, goes_on: bool
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    consumer = await start(cluster, "t", auto_commit_interval_ms=60_000, **options)
    answer = asyncio.Event()

    def go_on(request: OffsetCommitRequest, context: RequestContext) -> None:
        if goes_on and not answer.is_set():
            cluster.groups.rebalance("g")
        answer.set()

    request = SyncGroupRequest if has_joined else JoinGroupRequest
    with cluster.intercept(request, Hold(answer)) as script:
        cluster.groups.rebalance("g")
        await script.wait()
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        cluster.intercept(OffsetCommitRequest, go_on)
        consumer.unsubscribe()
        await consumer.stop()
    assert cluster.groups.committed("g", "t") == 3
    assert cluster.groups.state_of("g") == "Empty"


@pytest.mark.parametrize("goes_on", [False, True], ids=["assigned", "joins again"])
async def test_an_eager_member_that_is_stopped_while_it_joins_puts_back_no_offset_of_another(
    cluster: FakeCluster, start: Start, goes_on: bool
) -> None:
    """The new owner of its partition has it already, and has committed more."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    await start(cluster, "t", client_id="z", **options)
    options["auto_commit_interval_ms"] = 60_000
    slow = await start(cluster, "t", client_id="m", rebalance_timeout_ms=200, **options)
    assert slow.assignment() == {T0}
    assert await read(slow, 1) == [(0, 0)]
    answer = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        return Hold(answer) if context.client_id == "m" else None

    with cluster.intercept(SyncGroupRequest, hold):
        # By the names, the first partition is the new member's.
        owner = await start(cluster, "t", client_id="a", **options)
        assert owner.assignment() == {T0}
        await read(owner, 4)
        await owner.commit()
    if goes_on:
        cluster.groups.rebalance("g")
        with cluster.intercept(JoinGroupRequest, hold) as joins:
            answer.set()
            await joins.wait()
            answer.clear()
            await slow.stop()
    else:
        cluster.intercept(OffsetCommitRequest, lambda *_: answer.set())
        await slow.stop()
    answer.set()
    assert cluster.groups.committed("g", "t") == 4


@pytest.mark.parametrize("comes_back", [False, True])
async def test_an_eager_member_that_unsubscribes_while_it_joins_puts_back_no_offset_of_another(
    cluster: FakeCluster, start: Start, comes_back: bool
) -> None:
    """What it finishes after it has given up its partition is for the new owner to commit."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    await start(cluster, "t", client_id="z", **options)
    options["auto_commit_interval_ms"] = 60_000
    slow = await start(cluster, "t", client_id="m", rebalance_timeout_ms=200, **options)
    assert await read(slow, 1) == [(0, 0)]
    answer = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        return Hold(answer) if context.client_id == "m" else None

    with cluster.intercept(SyncGroupRequest, hold):
        # By the names, the first partition is the new member's.
        owner = await start(cluster, "t", client_id="a", **options)
        assert await read(owner, 4) == [(0, n) for n in range(4)]
        await owner.commit()
        assert await slow.getmany() == {}
        slow.unsubscribe()
        if comes_back:
            slow.subscribe(["t"])
        answer.set()
        # It commits before it leaves.
        await until(cluster, lambda: cluster.count(LeaveGroupRequest))
    assert cluster.groups.committed("g", "t") == 4


async def test_committed_offsets_are_read_while_the_member_joins(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    consumer = await start(cluster, "t", enable_auto_commit=False, **options)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    await consumer.commit()
    opened = cluster.connections
    answer = asyncio.Event()
    with cluster.intercept(JoinGroupRequest, Hold(answer)) as script:
        cluster.groups.rebalance("g")
        await script.wait()
        async with timeout(10):
            assert await consumer.committed(T0) == 2
        assert cluster.connections == opened + 1
        answer.set()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_nothing_is_handed_out_by_a_member_that_leaves(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    options |= {"group_protocol": protocol, "max_poll_interval_ms": 300}
    consumer = await start(cluster, "t", **options)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    left = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        is_leaving = protocol == "classic" or request.member_epoch == -1
        return Hold(left) if is_leaving else None

    request = LeaveGroupRequest if protocol == "classic" else ConsumerGroupHeartbeatRequest
    script = cluster.intercept(request, hold)
    await until(cluster, lambda: consumer.health().state == ConsumerState.POLL_OVERDUE)
    await script.wait()
    with pytest.raises(asyncio.TimeoutError):
        async with timeout(0.1):
            await consumer.getone()
    left.set()
    script.remove()
    assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_a_listener_does_not_wait_for_itself(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    found: list[str] = []

    class Committing(Log):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await super().on_partitions_revoked(revoked)
            if revoked:
                try:
                    await consumer.commit({T0: 1})
                except IllegalStateError as error:
                    found.append(str(error))

    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)
    consumer.subscribe(["t"], listener=Committing())
    async with consumer:
        consumer.unsubscribe()
        consumer.assign([T0])
        await until(cluster, lambda: found)
        assert "rebalance listener" in found[0]
        # When the group was left it can be committed.
        await consumer.commit({T0: 1})
    assert cluster.groups.committed("g", "t") == 1


async def test_a_goodbye_that_is_being_said_is_not_cut_short_by_stop(
    cluster: FakeCluster, start: Start
) -> None:
    """The others would wait for the member until the end of its session."""
    await cluster.create_topic("t")
    consumer = await start(cluster, "t", group_id="g")
    # The next request on the connection of LeaveGroup waits.
    cluster.throttle(500)
    await consumer.topics()
    cluster.throttle(0)
    consumer.unsubscribe()
    for _ in range(20):
        await asyncio.sleep(0)
    await consumer.stop()
    assert cluster.count(LeaveGroupRequest) == 1
    assert cluster.groups.state_of("g") == "Empty"


@pytest.mark.parametrize("is_pattern", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
        {"partition_assignment_strategy": [CooperativeStickyAssignor]},
        {"group_protocol": "consumer"},
    ],
)
async def test_no_record_comes_of_what_was_subscribed_before(
    cluster: FakeCluster, start: Start, options: dict[str, Any], is_pattern: bool
) -> None:
    """The group has yet to agree: until then its partitions are still assigned."""
    await cluster.create_topic("t")
    await cluster.create_topic("u")
    fill(cluster, 0, 3)
    fill(cluster, 0, 1, topic="u")
    consumer = await start(cluster, "t", group_id="g", auto_offset_reset="earliest", **options)
    assert (await consumer.getone()).topic == "t"
    if is_pattern:
        consumer.subscribe(pattern="u.*")
    else:
        consumer.subscribe(["u"])
    assert await consumer.getmany() == {}
    assert (await consumer.getone()).topic == "u"
    consumer.subscribe(["t", "u"])
    assert (await consumer.getone()).topic == "t"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_records_come_again_of_what_is_subscribed_again(
    cluster: FakeCluster, start: Start, protocol: Any
) -> None:
    await cluster.create_topic("t")
    await cluster.create_topic("u")
    fill(cluster, 0, 3)
    consumer = await start(
        cluster, "t", group_id="g", auto_offset_reset="earliest", group_protocol=protocol
    )
    assert (await consumer.getone()).offset == 0
    consumer.subscribe(["u"])
    consumer.subscribe(["t"])
    assert [(await consumer.getone()).offset for _ in range(2)] == [1, 2]


class Leisurely(Log):
    """Takes its time over what is revoked first."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work, self.goes_on = asyncio.Event(), asyncio.Event()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await super().on_partitions_revoked(revoked)
        self.is_at_work.set()
        await self.goes_on.wait()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_what_was_unsubscribed_from_while_other_partitions_are_revoked_stays_given_up(
    start: Start, protocol: str
) -> None:
    """The application subscribes again before its listener returns: what it had kept belongs to the
    group, which it leaves."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        options: dict[str, Any] = {"group_id": "g", "group_protocol": protocol}
        if protocol == "classic":
            options["partition_assignment_strategy"] = [CooperativeStickyAssignor]
            options["heartbeat_interval_ms"] = 20
        log = Leisurely()
        consumer = await start(cluster, client_id="me", **options)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        joining = asyncio.ensure_future(start(cluster, "t", **options))
        await log.is_at_work.wait()
        consumer.unsubscribe()
        consumer.subscribe(["t"], listener=log)
        is_leaving, may_leave = asyncio.Event(), asyncio.Event()

        def hold(request: Any, context: RequestContext) -> Hold | None:
            is_goodbye = isinstance(request, LeaveGroupRequest) or request.member_epoch < 0
            if not is_goodbye or context.client_id != "me":
                return None
            is_leaving.set()
            return Hold(may_leave)

        for kind in (LeaveGroupRequest, ConsumerGroupHeartbeatRequest):
            cluster.intercept(kind, hold)
        log.goes_on.set()
        await is_leaving.wait()
        assert consumer.assignment() == set()
        may_leave.set()
        other = await joining
        await until(cluster, lambda: shares(consumer, other) == [2, 2])
        assert sum(len(numbers) for call, numbers in log.calls if call == "revoked") == 4


@pytest.mark.parametrize("how", ["sought", "made again"])
async def test_what_was_committed_further_on_finishes_nothing(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    """A rebalance waits for what the application has in hand, behind its last commit."""

    class Notes(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            if revoked:
                gone.set()

        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            pass

    gone = asyncio.Event()
    options = {**OPTIONS, "enable_auto_commit": False}
    await cluster.create_topic("t")
    fill(cluster, 0, 6)
    consumer = await start(cluster, **options)
    consumer.subscribe(["t"], listener=Notes())
    assert len(await read(consumer, 6)) == 6
    await consumer.commit()
    if how == "sought":
        consumer.seek(T0, 0)
    else:
        await cluster.delete_topic("t")
        await cluster.create_topic("t")
        fill(cluster, 0, 3)
    assert (await consumer.getone()).offset == 0
    joining = asyncio.create_task(start(cluster, "t", **options))
    await until(cluster, lambda: consumer.health().state is ConsumerState.REBALANCING)
    await asyncio.wait([asyncio.create_task(gone.wait())], timeout=0.1)
    assert not gone.is_set()
    await consumer.commit()
    await gone.wait()
    await joining
    assert cluster.groups.committed("g", "t") == 1


# == Calls, denied topics and malformed assignments during a rebalance =============================


CLASSIC: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
CONSUMER: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}

# Longer than any test waits.
NEVER_MS = 10**9


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
    filled: FakeCluster, start: Start
) -> None:
    log = Slow()
    consumer = await start(filled, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(filled, lambda: consumer.assignment() == {T0})
    joins = filled.count(JoinGroupRequest)
    filled.groups.rebalance("g")
    await until(filled, lambda: log.calls[-1] == ("revoked", {0}))
    consumer.unsubscribe()
    log.go.set()
    await until(filled, lambda: filled.groups.state_of("g") == "Empty")
    assert filled.count(JoinGroupRequest) == joins
    assert log.calls[-1] == ("revoked", {0})
    assert filled.count(LeaveGroupRequest) == 1


async def test_an_assignment_of_what_was_subscribed_before_is_not_taken(
    filled: FakeCluster, start: Start
) -> None:
    await filled.create_topic("u")
    log = Slow()
    log.go.set()
    consumer = await start(filled, **CLASSIC)
    answer = asyncio.Event()
    script = filled.intercept(SyncGroupRequest, Hold(answer), times=1)
    consumer.subscribe(["t"], listener=log)
    await script.wait()
    consumer.subscribe(["u"], listener=log)
    answer.set()
    await until(filled, lambda: {tp.topic for tp in consumer.assignment()} == {"u"})
    assert log.topics == {"u"}


async def test_the_failure_of_a_membership_that_has_ended_means_nothing(
    filled: FakeCluster, start: Start
) -> None:
    consumer = await start(filled, "t", enable_auto_commit=False, **CONSUMER)
    await read(consumer, 1)
    script = filled.intercept(
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
    filled: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    log = Slow()
    consumer = await start(filled, **CLASSIC)
    consumer.subscribe(["t"], listener=log)
    await until(filled, lambda: consumer.assignment() == {T0})
    consumer.unsubscribe()
    async with timeout(10):
        await consumer.stop(timeout=0.5)
    assert "Stopped before the rebalance listener had returned" in caplog.text
    assert filled.count(LeaveGroupRequest) == 1


async def test_stop_without_time_tells_the_group_nothing(filled: FakeCluster, start: Start) -> None:
    consumer = await start(filled, "t", auto_commit_interval_ms=NEVER_MS, **CLASSIC)
    await read(consumer, 3)
    async with timeout(10):
        await consumer.stop(timeout=0)
    assert filled.count(LeaveGroupRequest) == filled.count(OffsetCommitRequest) == 0


async def test_getmany_and_stop_at_once(filled: FakeCluster, start: Start) -> None:
    consumer = await start(filled, "t", **CLASSIC)
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


async def test_a_strategy_that_nobody_offered(filled: FakeCluster, start: Start) -> None:
    def strange(response: JoinGroupResponse) -> None:
        response.protocol_name = "by the moon"

    filled.intercept(JoinGroupRequest, Edit(strange))
    with pytest.raises(InconsistentGroupProtocolError, match="by the moon"):
        async with timeout(10):
            await start(filled, "t", **CLASSIC)


@pytest.mark.parametrize("strategy", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])
async def test_an_assignment_that_makes_no_sense_is_asked_for_again(
    filled: FakeCluster, start: Start, strategy: Any
) -> None:
    def cut_short(response: SyncGroupResponse) -> None:
        response.assignment = bytes(response.assignment)[:-1]

    filled.intercept(SyncGroupRequest, Edit(cut_short), times=2)
    async with timeout(10):
        consumer = await start(filled, "t", **CLASSIC, partition_assignment_strategy=[strategy])
    assert consumer.assignment() == {T0}
    assert filled.count(SyncGroupRequest) == 3


async def test_a_coordinator_too_old_for_patterns(filled: FakeCluster, start: Start) -> None:
    def older(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == ConsumerGroupHeartbeatRequest.API_KEY:
                api.max_version = 0

    filled.intercept(ApiVersionsRequest, Edit(older))
    consumer = await start(filled, **CONSUMER)
    consumer.subscribe(pattern=SubscriptionPattern("t"))
    with pytest.raises(UnsupportedVersionError, match="a str is matched by the client"):
        async with timeout(10):
            await consumer.getone()


async def test_names_of_topics_are_asked_for_until_they_are_known(
    filled: FakeCluster, start: Start
) -> None:
    def lose(request: Any, context: Any) -> Any:
        named_by_id = [topic for topic in request.topics or () if topic.topic_id != ZERO_UUID]
        return Cut() if named_by_id and script.hits < 20 else None

    script = filled.intercept(MetadataRequest, lose)
    consumer = await start(filled, **CONSUMER, reconnect_backoff_ms=10)
    consumer.subscribe(pattern=SubscriptionPattern("t"))
    async with timeout(10):
        assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_no_broker_answers_who_has_nothing_yet(filled: FakeCluster, start: Start) -> None:
    consumer = await start(
        filled, reconnect_backoff_max_ms=20, metadata_max_age_ms=50, request_timeout_ms=500
    )
    consumer.subscribe(pattern="nothing")
    assert consumer.health().state == "running"
    await filled.stop_broker(0)
    await until(filled, lambda: consumer.health().state == "unreachable")
    assert consumer.health().reason.startswith("No broker answers: ")
    await filled.start_broker(0)
    await until(filled, lambda: consumer.health().state == "running")


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
    filled: FakeCluster, start: Start, group: dict[str, Any]
) -> None:
    await filled.create_topic("secret")
    fill(filled, 0, 1, topic="secret")
    script = filled.intercept(MetadataRequest, hide("secret"))
    consumer = await start(filled, "t", "secret", metadata_max_age_ms=50, **group)
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
        looks = filled.count(MetadataRequest)
        await filled.wait_for(lambda: filled.count(MetadataRequest) > looks + 1)
        assert (await consumer.getone()).topic == "secret"


async def test_all_topics_are_denied(filled: FakeCluster, start: Start) -> None:
    filled.intercept(MetadataRequest, hide("t"))
    with pytest.raises(TopicAuthorizationFailedError, match="topic 't'"):
        async with timeout(10):
            await start(filled, "t", **CLASSIC)


async def test_the_position_in_a_denied_topic(filled: FakeCluster, start: Start) -> None:
    filled.intercept(MetadataRequest, hide("t"))
    consumer = await start(filled, default_api_timeout_ms=NEVER_MS)
    consumer.assign([T0])
    async with timeout(10):
        for _ in range(2):
            with pytest.raises(TopicAuthorizationFailedError) as caught:
                await consumer.position(T0)
            assert caught.value.args == ("t",)
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.seek_to_end(T0)


async def test_start_does_not_need_to_know_all_topics(
    filled: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Without topics they are looked up for `partitions_for_topic()` only."""

    def lose(request: Any, context: Any) -> Any:
        return Cut() if request.topics is None else None

    caplog.set_level(logging.WARNING, "aiokafka")
    script = filled.intercept(MetadataRequest, lose)
    consumer = await start(filled)
    assert "The topics of the cluster are not known yet" in caplog.text
    assert consumer.partitions_for_topic("t") is None
    script.remove()
    consumer.assign([T0])
    assert await read(consumer, 1) == [(0, 0)]


# -- listeners -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def test_what_is_finished_is_committed_before_the_listener_hears(
    filled: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    """It may go on to store what it has made of the records together with the position."""
    await filled.create_topic("u", partitions=2)
    fill(filled, 0, 3, topic="u")
    fill(filled, 1, 3, topic="u")
    committed: list[int | None] = []

    class Curious(Log):
        def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:  # type: ignore[override]
            committed.extend(filled.groups.committed("g", tp.topic, tp.partition) for tp in revoked)

    consumer = await start(filled, auto_commit_interval_ms=NEVER_MS, **options)
    consumer.subscribe(["u"], listener=Curious())
    await read(consumer, 6)
    joining = asyncio.get_running_loop().create_task(
        start(filled, "u", **options)  # type: ignore[arg-type]
    )
    async with timeout(10):
        while not committed:
            await consumer.getmany(timeout_ms=10)
    assert set(committed) == {3}
    consumer.unsubscribe()
    await joining


async def test_health_tells_of_a_join_that_takes_long(filled: FakeCluster, start: Start) -> None:
    consumer = await start(filled, "t", **CLASSIC)
    await until(filled, lambda: consumer.health().state == "running")
    answer = asyncio.Event()
    script = filled.intercept(JoinGroupRequest, Hold(answer), times=1)
    filled.groups.rebalance("g")
    await script.wait()
    assert consumer.health().state == "rebalancing"
    answer.set()
    await until(filled, lambda: consumer.health().state == "running")


async def test_a_listener_is_replaced_before_the_start(filled: FakeCluster) -> None:
    """As programs do that put one of their own between."""
    first, second = Log(), Log()
    consumer = AIOKafkaConsumer(bootstrap_servers=filled.bootstrap_servers, **CLASSIC)
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


# == The number of rebalances and of listener calls per event ======================================


BOTH = pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])


async def matching(
    cluster: FakeCluster, start: Start, log: Log, assignor: Any, **options: Any
) -> AIOKafkaConsumer:
    """Start a member with a pattern, whose metadata is refreshed only when something asks."""
    consumer = await start(
        cluster,
        metadata_max_age_ms=3_600_000,
        partition_assignment_strategy=[assignor],
        **OPTIONS,
        **options,
    )
    consumer.subscribe(pattern="t.*", listener=log)
    await until(cluster, lambda: is_member(consumer))
    return consumer


@BOTH
@pytest.mark.parametrize("finder", [0, 1])
async def test_a_new_topic_that_one_member_finds_is_shared_by_all_at_once(
    cluster: FakeCluster, start: Start, assignor: Any, finder: int
) -> None:
    """The others would get nothing of it until their own metadata is refreshed."""
    await cluster.create_topic("t1", partitions=2)
    logs = [Log(), Log()]
    members = [await matching(cluster, start, log, assignor) for log in logs]
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    await cluster.create_topic("t2", partitions=2)
    before = cluster.groups.classic["g"].generation
    await client_of(members[finder]).force_metadata_update()
    await until(cluster, lambda: all(len(member.assignment()) == 2 for member in members))
    assert cluster.groups.classic["g"].generation == before + 1
    assert all(member.subscription() == {"t1", "t2"} for member in members)


@BOTH
async def test_a_member_joins_though_no_broker_tells_the_topics(
    cluster: FakeCluster, start: Start, assignor: Any
) -> None:
    await cluster.create_topic("t1", partitions=2)
    members = [await matching(cluster, start, Log(), assignor, session_timeout_ms=6000)]
    with cluster.intercept(MetadataRequest, Silence()):
        cluster.groups.rebalance("g")
        before = cluster.count(SyncGroupRequest)
        await until(cluster, lambda: cluster.count(SyncGroupRequest) > before)
    await until(cluster, lambda: len(members[0].assignment()) == 2)


async def test_a_listener_hears_of_each_join_once(cluster: FakeCluster, start: Start) -> None:
    """`unsubscribe()` calls it, and the join that follows another subscription does not again."""
    await cluster.create_topic("t", partitions=2)
    logs = [Log(), Log()]
    members = []
    for log in logs:
        consumer = await start(cluster, **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) == 2)
        members.append(consumer)
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    second = {tp.partition for tp in members[1].assignment()}
    first = {0, 1} - second
    members[1].unsubscribe()
    await until(cluster, lambda: len(members[0].assignment()) == 2)
    members[1].subscribe(["t"], listener=logs[1])
    await until(cluster, lambda: all(len(member.assignment()) == 1 for member in members))
    assert logs[1].calls == [
        ("revoked", set()),
        ("assigned", second),
        ("revoked", second),
        ("assigned", {tp.partition for tp in members[1].assignment()}),
    ]
    await members[1].stop()
    await until(cluster, lambda: len(logs[0].calls) == 10)
    assert [name for name, _ in logs[0].calls] == ["revoked", "assigned"] * 5
    assert logs[0].calls[:4] == [
        ("revoked", set()),
        ("assigned", {0, 1}),
        ("revoked", {0, 1}),
        ("assigned", first),
    ]
    assert logs[0].calls[-1] == ("assigned", {0, 1})


async def test_a_listener_hears_of_a_join_with_nothing(cluster: FakeCluster, start: Start) -> None:
    """One of the members has no partition, and is called before each join like the other."""
    await cluster.create_topic("t")
    logs = [Log(), Log()]
    for log in logs:
        consumer = await start(cluster, **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) == 2)
    await until(cluster, lambda: len(logs[0].calls) == 4)
    cluster.groups.rebalance("g")
    await until(cluster, lambda: [len(log.calls) for log in logs] == [6, 4])
    for log in logs:
        assert [name for name, _ in log.calls] == ["revoked", "assigned"] * (len(log.calls) // 2)
        had = [partitions for _, partitions in log.calls]
        assert had[::2] == [set(), *had[1:-1:2]]


async def test_a_listener_hears_once_that_its_partitions_are_lost(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    log = Log()
    consumer = await start(cluster, **OPTIONS)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment())
    cluster.intercept(JoinGroupRequest, Fail(GroupLoadInProgressError), times=2)
    cluster.groups.expire("g", consumer.group_metadata().member_id)
    await until(cluster, lambda: len(log.calls) == 4)
    assert log.calls == [("revoked", set()), ("assigned", {0}), ("lost", {0}), ("assigned", {0})]


async def test_another_listener_hears_of_its_first_join(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    logs = [Log(), Log()]
    consumer = await start(cluster, **OPTIONS)
    for number, log in enumerate(logs):
        if number:
            consumer.unsubscribe()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda log=log: len(log.calls) >= 2)
    assert consumer.assignment() == {TopicPartition("t", 0)}
    assert logs[0].calls == [("revoked", set()), ("assigned", {0}), ("revoked", {0})]
    assert logs[1].calls == [("revoked", set()), ("assigned", {0})]
