"""What the application does while the group, or the member itself, is busy with something else."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import IllegalStateError, UnknownMemberIdError
from aiokafka.health import ConsumerState
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.script import RequestContext
from tests.support.consumer_protocol import CONFIG, shares
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, Loop, until

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
