"""Static members (KIP-345), and what a leader exchanges with members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    FencedInstanceId,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    InvalidSessionTimeoutError,
)
from aiokafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.groups import DescribeGroupsRequest, DescribeGroupsResponse
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import (
    Cut,
    Edit,
    Fail,
    FakeCluster,
    Hold,
    Interception,
    RequestContext,
    Silence,
)
from tests.support.consumers import Start, fill, read
from tests.support.groups import until

OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "metadata_max_age_ms": 50,
}


async def grow(cluster: FakeCluster, count: int) -> None:
    """Have more partitions of t."""
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_partitions({"t": NewPartitions(count)})


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
async def test_a_static_leader_that_was_restarted_notices_new_partitions(
    start: Start, release: str
) -> None:
    """Brokers before 3.2 do not tell it that it is the leader (KIP-814)."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        await first.stop()
        joins = cluster.count(JoinGroupRequest)
        second = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        assert len(second.assignment()) == 1
        assert cluster.count(JoinGroupRequest) == joins + 1  # Its share stood.
        await grow(cluster, 3)
        await until(cluster, lambda: len(second.assignment()) == 3)
        await second.stop()


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
async def test_a_static_leader_notices_partitions_that_were_added_while_it_was_away(
    start: Start, release: str, others: int
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t", partitions=2)
        first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        rest = [
            await start(cluster, "t", group_instance_id=f"other {number}", **OPTIONS)
            for number in range(others)
        ]
        await until(cluster, lambda: len(first.assignment()) == 2 - others)
        await first.stop()
        await grow(cluster, 4)
        members = [await start(cluster, "t", group_instance_id="one", **OPTIONS), *rest]
        await until(cluster, lambda: sum(len(m.assignment()) for m in members) == 4)
        for member in members:
            await member.stop()


class Interrupted(ConsumerRebalanceListener):
    """Keeps the member "one" from joining again after it has given something up."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.interception: asyncio.Future[Interception] = asyncio.get_running_loop().create_future()

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        if revoked and not self.interception.done():
            interception = self._cluster.intercept(JoinGroupRequest, self._swallow)
            self.interception.set_result(interception)

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        pass

    def _swallow(self, request: JoinGroupRequest, context: RequestContext) -> Silence | None:
        return Silence() if request.group_instance_id == "one" else None


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
@pytest.mark.parametrize("leads", [True, False])
async def test_what_a_static_member_gave_up_before_it_was_restarted_finds_a_reader(
    start: Start, release: str, leads: bool
) -> None:
    """It goes after it has given up a partition for a new member (KIP-429), and before it joins
    again, so that no member is given it."""
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t", partitions=2)
        await cluster.create_topic("u")
        rest = [] if leads else [await start(cluster, "u", group_instance_id="zero", **options)]
        first = await start(cluster, group_instance_id="one", **options)
        listener = Interrupted(cluster)
        first.subscribe(["t"], listener=listener)
        await until(cluster, lambda: len(first.assignment()) == 2)
        newcomer = asyncio.create_task(start(cluster, "t", group_instance_id="two", **options))
        interception = await listener.interception
        await first.stop()
        interception.remove()
        members = [
            await start(cluster, "t", group_instance_id="one", **options),
            await newcomer,
            *rest,
        ]
        await until(cluster, lambda: sum(len(m.assignment()) for m in members) == 2 + len(rest))
        for member in members:
            await member.stop()


@pytest.mark.parametrize("strategy", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("topics", [["u"], ["t", "u"], ["v"]])
async def test_a_static_member_is_back_with_other_topics(
    start: Start, release: str, strategy: Any, topics: list[str]
) -> None:
    """The group gives it what it had, and to one that does not lead that again if it asks."""
    options = {**OPTIONS, "partition_assignment_strategy": [strategy]}
    async with FakeCluster(as_version=release) as cluster:
        for topic in ("t", "u", "v"):
            await cluster.create_topic(topic, partitions=2)
        leader = await start(cluster, "t", "v", group_instance_id="one", **options)
        former = await start(cluster, "t", group_instance_id="two", **options)
        members = [leader, former]
        await until(cluster, lambda: sum(len(m.assignment()) for m in members) == 4)
        await former.stop()
        members = [leader, await start(cluster, *topics, group_instance_id="two", **options)]
        names = {"t", "v", *topics}
        all_of_them = sorted(TopicPartition(name, number) for name in names for number in (0, 1))

        def is_all_read() -> bool:
            found = [tp for m in members for tp in m.assignment() if tp.topic in m.subscription()]
            return sorted(found) == all_of_them

        await until(cluster, is_all_read)
        joins = cluster.count(JoinGroupRequest)
        beats = cluster.count(HeartbeatRequest)
        await cluster.wait_for(lambda: cluster.count(HeartbeatRequest) > beats + 4)
        assert cluster.count(JoinGroupRequest) == joins
        for member in members:
            await member.stop()


def refuse_long_texts(request: JoinGroupRequest, context: RequestContext) -> Cut | None:
    """Close the connection on which more than 32,767 bytes come as one text, as Kafka does."""
    return Cut() if len(request.reason or "") > 32_767 else None


async def test_a_static_member_is_back_with_more_topics_than_it_can_tell(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    many = [f"{number}-".ljust(249, "x") for number in range(150)]
    for topic in many:
        await cluster.create_topic(topic)
    leader = await start(cluster, "t", group_instance_id="one", **OPTIONS)
    former = await start(cluster, "t", group_instance_id="two", **OPTIONS)
    await until(cluster, lambda: len(leader.assignment()) + len(former.assignment()) == 1)
    await former.stop()
    with cluster.intercept(JoinGroupRequest, refuse_long_texts):
        member = await start(cluster, *many, group_instance_id="two", **OPTIONS)
        await until(cluster, lambda: len(member.assignment()) == len(many))


async def test_a_static_member_that_is_back_disturbs_nobody(
    cluster: FakeCluster, start: Start
) -> None:
    """It looks at the assignments once, and nothing was left out."""
    options = {**OPTIONS, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    await cluster.create_topic("t", partitions=2)
    first = await start(cluster, "t", group_instance_id="one", **options)
    second = await start(cluster, "t", group_instance_id="two", **options)
    await until(cluster, lambda: len(first.assignment()) == len(second.assignment()) == 1)
    for member in ("one", "two"):
        await (first if member == "one" else second).stop()
        looks, joins = cluster.count(DescribeGroupsRequest), cluster.count(JoinGroupRequest)
        await start(cluster, "t", group_instance_id=member, **options)
        await cluster.wait_for(
            lambda looks=looks: cluster.count(DescribeGroupsRequest) == looks + 1
        )
        beats = cluster.count(HeartbeatRequest)
        await cluster.wait_for(lambda beats=beats: cluster.count(HeartbeatRequest) > beats + 4)
        assert cluster.count(JoinGroupRequest) == joins + 1
        assert cluster.count(DescribeGroupsRequest) == looks + 1


def malformed(response: DescribeGroupsResponse) -> None:
    """Have members that subscribe to nothing that can be read."""
    for group in response.groups:
        for member in group.members:
            member.member_metadata = b"\xff"


@pytest.mark.parametrize(
    ("answer", "looks"),
    [
        (Fail(GroupAuthorizationFailedError), 1),
        (Fail(GroupLoadInProgressError), 3),
        (Edit(malformed), 1),
    ],
)
async def test_assignments_that_a_static_member_may_not_see(
    cluster: FakeCluster, start: Start, answer: Fail | Edit, looks: int
) -> None:
    """It goes on without them, or asks again with the next heartbeat."""
    await cluster.create_topic("t")
    with cluster.intercept(DescribeGroupsRequest, answer, times=looks):
        member = await start(cluster, "t", group_instance_id="one", **OPTIONS)
        await cluster.wait_for(lambda: cluster.count(DescribeGroupsRequest) == looks)
        beats = cluster.count(HeartbeatRequest)
        await cluster.wait_for(lambda: cluster.count(HeartbeatRequest) > beats + 4)
    assert cluster.count(DescribeGroupsRequest) == (looks if looks == 1 else looks + 1)
    assert cluster.count(JoinGroupRequest) == 1
    assert member.health().state == "running"


@pytest.mark.parametrize(
    "strategy",
    [
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    ],
)
async def test_members_tell_their_rack(cluster: FakeCluster, start: Start, strategy: Any) -> None:
    await cluster.create_topic("t", partitions=2)
    options = {**OPTIONS, "partition_assignment_strategy": [strategy]}
    consumer = await start(cluster, "t", client_rack="north", **options)
    assert len(consumer.assignment()) == 2
    protocol = cluster.requests(JoinGroupRequest)[-1].request.protocols[0]
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.version) == ("north", 3)
    assert metadata.subscription == ["t"]


@pytest.mark.parametrize(
    ("strategy", "records"), [(RoundRobinPartitionAssignor, 1), (CooperativeStickyAssignor, 0)]
)
@pytest.mark.parametrize("unsubscribes", [False, True])
async def test_a_static_leader_that_is_stopped_while_it_joins_assigns_first(
    cluster: FakeCluster, start: Start, strategy: Any, records: int, unsubscribes: bool
) -> None:
    """It says no goodbye, so that the others would wait for it. An eager one does not commit in the
    next generation what it had given up."""
    await cluster.create_topic("t")
    await cluster.create_topic("u")
    fill(cluster, 0, records)
    options = {"group_id": "g", "heartbeat_interval_ms": 20, "auto_commit_interval_ms": 60_000}
    options |= {"partition_assignment_strategy": [strategy]}
    hasty = {"group_instance_id": "one", "client_id": "first", "rebalance_timeout_ms": 400}
    first = await start(cluster, "t", **hasty, **options)
    if not records:
        # So that it has no other reason to wait for the join.
        await first.commit({TopicPartition("t", 0): 0})
    assert len(await read(first, records)) == records
    answer = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        return Hold(answer) if context.client_id == "first" else None

    with cluster.intercept(MetadataRequest, hold):
        newcomer = asyncio.create_task(start(cluster, "u", group_instance_id="two", **options))
        # It has no metadata of the other's topic yet.
        await cluster.wait_for(lambda: cluster.groups.state_of("g") == "CompletingRebalance")
        assert await first.getmany() == {}
        if unsubscribes:
            first.unsubscribe()
        stopping = asyncio.create_task(first.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        answer.set()
        await stopping
    async with timeout(5):
        second = await newcomer
    assert second.assignment() == {TopicPartition("u", 0)}
    assert cluster.groups.committed("g", "t") == 0


async def test_without_a_rack_members_say_what_they_always_said(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    await start(cluster, "t", **OPTIONS)
    protocol = cluster.requests(JoinGroupRequest)[-1].request.protocols[0]
    metadata = ConsumerProtocolMemberMetadata.decode(bytes(protocol.metadata))
    assert (metadata.rack, metadata.version) == (None, 0)


async def test_a_member_that_was_replaced_says_by_what(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    first = await start(cluster, "t", group_instance_id="one", **OPTIONS)
    await start(cluster, "t", group_instance_id="one", **OPTIONS)
    with pytest.raises(
        FencedInstanceId, match="another member joined with group_instance_id='one'"
    ):
        await first.getone()


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_member_that_was_replaced_returns_no_buffered_records(
    cluster: FakeCluster, start: Start, call: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 100, batch=100)
    first = await start(cluster, "t", group_instance_id="one", **OPTIONS)

    async def read_more() -> object:
        return await (first.getone() if call == "getone" else first.getmany(max_records=1))

    await first.getone()
    for _ in range(10):
        await read_more()
    await start(cluster, "t", group_instance_id="one", **OPTIONS)
    await until(cluster, lambda: first.health().state == "failed")
    with pytest.raises(FencedInstanceId):
        await read_more()


async def test_a_session_timeout_that_the_broker_refuses_is_named(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    with pytest.raises(
        InvalidSessionTimeoutError,
        match=r"(?s)session_timeout_ms=5000.*group.min.session.timeout.ms.*group.max.session",
    ):
        await start(cluster, "t", session_timeout_ms=5000, **OPTIONS)


class Short(ConsumerProtocolMemberMetadata):
    """What older releases of kafka-go write: version 1, without what that has more."""

    def encode(self) -> bytes:
        return b"\0\1" + ConsumerProtocolMemberMetadata(0, self.subscription).encode()[2:]


class ShortRoundRobin(RoundRobinPartitionAssignor):
    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return Short(0, sorted(topics))


async def test_a_member_that_claims_a_newer_version_than_it_writes(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    leader = await start(cluster, "t", **OPTIONS)
    other = await start(cluster, "t", **OPTIONS, partition_assignment_strategy=[ShortRoundRobin])
    await until(cluster, lambda: len(leader.assignment()) == len(other.assignment()) == 1)


class Garbled(AbstractPartitionAssignor):
    """What it says, as a member or as the leader, is nothing that others can use."""

    name = "roundrobin"
    said = b""

    def metadata(self, topics: Iterable[str]) -> Any:
        return self.said

    def assign(self, cluster: Any, members: Any) -> Any:
        return dict.fromkeys(members, self.said)

    def on_assignment(self, assignment: Any) -> None:
        pass


@pytest.mark.parametrize("said", [b"", b"\0\1\0\0", b"\0\0\0\0\0\1\0\0\xff\xff\xff\xff"])
async def test_a_member_that_cannot_be_read_does_not_keep_the_others_from_reading(
    cluster: FakeCluster,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
) -> None:
    """The bytes are cut off, or name a topic without a name. The group rebalanced for as long as
    this member was there, and no application was told why."""
    monkeypatch.setattr(Garbled, "said", said)
    await cluster.create_topic("t", partitions=2)
    members = [await start(cluster, "t", **OPTIONS) for _ in range(2)]
    other = await start(cluster, "t", **OPTIONS, partition_assignment_strategy=[Garbled])
    await until(cluster, lambda: [len(each.assignment()) for each in members] == [1, 1])
    assert other.assignment() == set()
    assert ("its metadata is malformed" in caplog.text) == (len(said) < 10)


async def test_a_leader_that_cannot_be_read_is_in_the_log(
    cluster: FakeCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Garbled, "said", b"\0\0\0")
    await cluster.create_topic("t", partitions=2)
    leader, other = (
        AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            partition_assignment_strategy=[strategy],
            client_id=strategy.__name__,
            **OPTIONS,
        )
        for strategy in (Garbled, RoundRobinPartitionAssignor)
    )
    starts = [asyncio.create_task(leader.start())]
    await until(cluster, lambda: cluster.count(SyncGroupRequest))
    starts.append(asyncio.create_task(other.start()))
    name = RoundRobinPartitionAssignor.__name__
    text = (
        f"Consumer {name} of group g: Join failed, trying again: KafkaProtocolError: group metadata"
    )
    await until(cluster, lambda: text in caplog.text)
    for each in starts:
        each.cancel()
    await asyncio.wait(starts)
