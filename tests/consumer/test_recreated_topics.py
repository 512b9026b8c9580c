"""Topics that are deleted and created again: positions and commits by topic id (KIP-516)."""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.fetch.fetcher import TopicIds
from aiokafka.consumer.position.committed import FormerTopicOffsets
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import (
    CommitFailedError,
    GroupLoadInProgressError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest, ListOffsetsResponse
from aiokafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest, SyncGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, RequestContext
from aiokafka.testing.groups import CommittedOffset
from aiokafka.testing.simulation import Faults, Simulation, simulate
from tests.support.consumer_protocol import CONFIG, listening
from tests.support.consumers import T0, Start, client_of, fill, read
from tests.support.groups import Log, until

# == Positions in recreated topics (KIP-516) =======================================================


NO_WAIT = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": False}
EAGER: dict[str, Any] = {"group_id": "g"}
COOPERATIVE = {**EAGER, "partition_assignment_strategy": [CooperativeStickyAssignor]}
KIP_848 = {**EAGER, "group_protocol": "consumer"}


async def make_again(cluster: FakeCluster, partitions: int = 1) -> None:
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions)


@pytest.mark.parametrize(
    ("version", "options"), [("4.3", EAGER), ("3.9", COOPERATIVE), ("4.3", KIP_848)]
)
async def test_a_member_that_knew_the_former_topic_goes_on_where_the_group_is(
    version: str, options: dict[str, Any], start: Start
) -> None:
    """It takes the partition over with metadata of before, and a position of after."""
    async with FakeCluster(as_version=version, config=NO_WAIT) as cluster:
        await cluster.create_topic("t")
        first = await start(cluster, "t", **options)
        second = await start(cluster, "t", **options)
        await until(cluster, lambda: first.assignment() ^ second.assignment() == {T0})
        owner, idle = (first, second) if first.assignment() else (second, first)
        waiting = asyncio.ensure_future(idle.getone())
        fill(cluster, 0, 10)
        assert len(await read(owner, 10)) == 10
        await make_again(cluster)
        fill(cluster, 0, 100)
        assert await read(owner, 100) == [(0, n) for n in range(100)]
        await owner.commit()
        await owner.stop()
        fill(cluster, 0, 1)
        assert (await asyncio.wait_for(waiting, 60)).offset == 100


class Past(Edit):
    """A broker that lags behind: it goes on to name the first of the topics called "t"."""

    def __init__(self) -> None:
        super().__init__(self._change)
        self._first: Any = None
        self.left = 0

    def _change(self, response: MetadataResponse) -> None:
        for place, topic in enumerate(response.topics):
            if topic.name == "t" and not topic.error_code:
                self._first = self._first or copy.deepcopy(topic)
                if self.left:
                    self.left -= 1
                    response.topics[place] = copy.deepcopy(self._first)


@pytest.mark.parametrize("options", [{}, EAGER, KIP_848])
async def test_a_broker_that_lags_behind_does_not_reset_positions(
    options: dict[str, Any], start: Start
) -> None:
    async with FakeCluster(brokers=3, config=NO_WAIT) as cluster:
        await cluster.create_topic("t", 1, 3)
        past = Past()
        cluster.intercept(MetadataRequest, past)
        consumer = await start(cluster, "t", metadata_max_age_ms=10_000, **options)
        await until(cluster, lambda: consumer.assignment() == {T0})
        await make_again(cluster)
        fill(cluster, 0, 100)
        assert await read(consumer, 100) == [(0, n) for n in range(100)]
        past.left = 1
        await client_of(consumer).force_metadata_update()
        assert not past.left
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 100)]


@pytest.mark.parametrize("count", [1, 3, 6])
async def test_members_read_another_topic_of_the_name_as_it_is_assigned(
    count: int, start: Start
) -> None:
    """The coordinator assigns its partitions as those of another topic, by its id (KIP-848). What a
    member has of the former one gives it none of these."""
    async with FakeCluster(config=NO_WAIT) as cluster:
        await cluster.create_topic("t", 3)
        members = [await start(cluster, "t", **KIP_848) for _ in range(2)]
        await until(cluster, lambda: sum(len(m.assignment()) for m in members) == 3)
        seen: defaultdict[bytes | None, list[int]] = defaultdict(list)

        async def keep_reading(number: int, member: AIOKafkaConsumer[Any, Any]) -> None:
            async for record in member:
                seen[record.value].append(number)

        tasks = [asyncio.create_task(keep_reading(*each)) for each in enumerate(members)]
        await make_again(cluster, count)
        for number in range(100):
            for partition in range(count):
                cluster.log("t", partition).append(b"%d-%d" % (partition, number))
            await asyncio.sleep(0.1)
        await until(cluster, lambda: len(seen) == 100 * count)
        assert {value: who for value, who in seen.items() if len(who) > 1} == {}
        for member in members:
            await member.stop()
        await asyncio.gather(*tasks)


async def test_no_position_is_stored_by_name_for_another_topic(start: Start) -> None:
    """Before Kafka 4.1 commits name topics: a member that has only the former one must not send a
    position in it."""
    async with FakeCluster(as_version="4.0", config=NO_WAIT) as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 3)
        consumer = await start(cluster, "t", enable_auto_commit=False, **KIP_848)
        assert len(await read(consumer, 3)) == 3
        still = asyncio.Event()
        with cluster.intercept(FetchRequest, Hold(still)) as fetches:
            await until(cluster, lambda: fetches.hits)
            await make_again(cluster)
            await client_of(consumer).force_metadata_update()
            cluster.forget_requests()
            with pytest.raises(UnknownTopicOrPartitionError, match="t-0: the topic was deleted"):
                await consumer.commit()
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id="id"
            )
            async with producer:
                await producer.begin_transaction()
                with pytest.raises(CommitFailedError, match="t-0"):
                    await producer.send_offsets_to_transaction({T0: 3}, consumer.group_metadata())
                await producer.abort_transaction()
            assert not cluster.count(OffsetCommitRequest)
            still.set()
        fill(cluster, 0, 2)
        assert await read(consumer, 2) == [(0, 0), (0, 1)]
        await consumer.commit()
        assert await consumer.committed(T0) == 2


@pytest.mark.parametrize(("version", "protocol"), [("4.0", "consumer"), ("4.3", "consumer")])
@pytest.mark.parametrize("how", ["commit", "stop"])
async def test_what_a_lagging_broker_says_does_not_refuse_a_commit(
    version: str, protocol: str, how: str, start: Start
) -> None:
    async with FakeCluster(brokers=3, as_version=version, config=NO_WAIT) as cluster:
        await cluster.create_topic("t", 1, 3)
        past = Past()
        cluster.intercept(MetadataRequest, past)
        consumer = await start(cluster, "t", **EAGER, group_protocol=protocol)
        await until(cluster, lambda: consumer.assignment() == {T0})
        await make_again(cluster)
        fill(cluster, 0, 20)
        assert await read(consumer, 20) == [(0, n) for n in range(20)]
        past.left = 1
        await client_of(consumer).force_metadata_update()
        if how == "commit":
            await consumer.commit()
        else:
            await consumer.getmany()
            await consumer.stop()
        assert cluster.groups.committed("g", "t") == 20


async def test_each_topic_is_doubted_on_its_own(start: Start) -> None:
    """Metadata names the first topic wrongly once, and the second topic once after that."""
    async with FakeCluster(brokers=3, as_version="4.0", config=NO_WAIT) as cluster:
        names = ("t", "u")
        for name in names:
            await cluster.create_topic(name)
        consumer = await start(cluster, *names, **{**KIP_848, "enable_auto_commit": False})
        await until(cluster, lambda: len(consumer.assignment()) == 2)
        wrong = ["t", "u"]

        def change(response: MetadataResponse) -> None:
            name = wrong.pop(0) if wrong else None
            for topic in response.topics:
                if topic.name == name:
                    topic.topic_id = bytes([1]) * 16

        cluster.intercept(MetadataRequest, Edit(change))
        await client_of(consumer).force_metadata_update()
        await consumer.commit({TopicPartition(name, 0): 0 for name in names})
        assert [cluster.groups.committed("g", name) for name in names] == [0, 0]
        assert not wrong


async def test_the_former_leader_is_not_asked_where_the_next_topic_begins(start: Start) -> None:
    """Metadata lags behind the coordinator for longer than the member waits for it."""
    config = NO_WAIT | {"group.consumer.heartbeat.interval.ms": 1000}
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 10)
        past = Past()
        cluster.intercept(MetadataRequest, past)
        consumer = await start(cluster, "t", **KIP_848, metadata_max_age_ms=20_000)
        assert len(await read(consumer, 10)) == 10
        past.left = 10_000
        with cluster.intercept(ListOffsetsRequest, Edit(lambda answer: say(answer, 6))):
            await make_again(cluster)
            fill(cluster, 0, 20)
            record = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(15)
        past.left = 0
        assert (await asyncio.wait_for(record, 60)).offset == 0


def say(response: ListOffsetsResponse, offset: int) -> None:
    """Answer as the leader of the former topic did, whose log began there."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.offset = offset


@pytest.mark.parametrize("options", [{}, EAGER])
async def test_a_position_that_was_sought_in_the_next_topic_stays(
    options: dict[str, Any], start: Start
) -> None:
    """The topic was read before, and is made again while another one is read."""
    async with FakeCluster(config=NO_WAIT) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("u")
        fill(cluster, 0, 3)
        consumer = await start(cluster, assign=[T0], auto_offset_reset="latest", **options)
        consumer.seek(T0, 0)
        assert len(await read(consumer, 3)) == 3
        consumer.assign([TopicPartition("u", 0)])
        await make_again(cluster)
        fill(cluster, 0, 20)
        await client_of(consumer).force_metadata_update()
        consumer.assign([T0])
        consumer.seek(T0, 5)
        assert await read(consumer, 2) == [(0, 5), (0, 6)]


class Snapshot:
    """The ids that metadata names."""

    def __init__(self, **ids: bytes) -> None:
        self.topic_id = ids.get


def test_ids_are_known_for_the_moment_in_which_nothing_is_assigned() -> None:
    ids = TopicIds()
    for names, snapshot in (("t", Snapshot(t=b"a")), ("t", Snapshot(t=b"b")), ("", Snapshot())):
        list(ids.update(names, {}, snapshot))  # type: ignore[arg-type]
    assert list(ids.update("t", {}, Snapshot(t=b"a"))) == []  # type: ignore[arg-type]
    found = list(ids.update("t", {}, Snapshot(t=b"c")))  # type: ignore[arg-type]
    assert [(each.name, each.now, each.is_new) for each in found] == [("t", b"c", True)]
    found = list(ids.update("t", {}, Snapshot(t=b"b")))  # type: ignore[arg-type]
    assert [(each.name, each.now, each.is_new) for each in found] == [("t", b"b", False)]


def test_ids_of_topics_that_nobody_reads_are_forgotten_in_time() -> None:
    ids = TopicIds()
    list(ids.update("t", {}, Snapshot(t=b"a")))  # type: ignore[arg-type]
    for number in range(2000):
        list(ids.update([f"{number}"], {}, Snapshot(**{f"{number}": b"x"})))  # type: ignore[arg-type]
    assert list(ids.update("t", {}, Snapshot(t=b"b"))) == []  # type: ignore[arg-type]


def test_an_id_of_the_assignment_goes_before_that_of_the_metadata() -> None:
    ids = TopicIds()
    assert list(ids.update("t", {"t": b"a"}, Snapshot(t=b"b"))) == []  # type: ignore[arg-type]
    assert ids.current == {"t": b"a"}
    assert list(ids.update("t", {"t": b"b"}, Snapshot(t=b"a"))) == []  # type: ignore[arg-type]
    assert ids.current == {"t": b"b"}


@pytest.mark.parametrize("is_member", [True, False], ids=["member", "assigned"])
def test_as_many_records_as_before_are_committed_once_more(is_member: bool) -> None:
    """The offset had gone with the former topic, and for auto-commit it was stored already."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
            )
            if is_member:
                consumer.subscribe(["t"])
            else:
                consumer.assign([T0])
            async with consumer:
                await read(consumer, 5)
                assert await consumer.getmany(timeout_ms=10_000) == {}
                assert cluster.groups.committed("g", "t") == 5
                await cluster.delete_topic("t")
                await cluster.create_topic("t")
                fill(cluster, 0, 5)
                assert cluster.groups.committed("g", "t") is None
                await read(consumer, 5)
                assert await consumer.getmany(timeout_ms=10_000) == {}
                assert cluster.groups.committed("g", "t") == 5

    simulate(main)


def test_what_is_stored_late_of_the_former_topic_is_not_stored_of_the_next() -> None:
    """The response is under way when the topic is made again, from a coordinator far away."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(2) as cluster:
            near, far = 0, 1
            cluster.move_coordinator("group", "g", far)
            faults = Faults(simulation, cluster)

            async def make() -> None:
                await cluster.create_topic("t")
                cluster.move_leader(("t", 0), near)
                fill(cluster, 0, 5)

            await make()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.address(near),
                group_id="g",
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
            )
            consumer.assign([T0])
            async with consumer:
                await read(consumer, 5)
                assert await consumer.getmany(timeout_ms=100) == {}
                faults.slow(far, 2, 2)
                await cluster.wait_for(lambda: cluster.groups.committed("g", "t") == 5)
                await cluster.delete_topic("t")
                await make()
                await read(consumer, 5)
                assert cluster.groups.committed("g", "t") is None
                assert await consumer.getmany(timeout_ms=30_000) == {}
                assert cluster.groups.committed("g", "t") == 5

    simulate(main)


async def test_offsets_of_the_former_topic_at_a_coordinator_with_old_metadata(
    start: Start,
) -> None:
    """The coordinator keeps them until it hears of the deletion. They are none in the new topic."""
    async with FakeCluster(brokers=2, config=NO_WAIT) as cluster:
        cluster.move_coordinator("group", "g", 1)
        await cluster.create_topic("t", assignment={0: [0]})
        fill(cluster, 0, 5)
        first = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
        await read(first, 5)
        cluster.faults.mislead(1)
        await cluster.delete_topic("t")
        await cluster.create_topic("t", assignment={0: [0]})
        fill(cluster, 0, 8)
        await first.commit()  # as it knows no other topic, either
        await first.stop()
        assert cluster.groups.committed("g", "t") == 5
        cluster.intercept(
            MetadataRequest, lambda _, context: None if context.node_id == 0 else Cut()
        )
        second = await start(cluster, "t", auto_offset_reset="earliest", **KIP_848)
        assert await read(second, 8) == [(0, n) for n in range(8)]


class Disagreement:
    """The topic was made again. Broker 1 shows the former one, and leads it, as far as it knows;
    metadata comes from the broker `told_by`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.told_by = 0
        self._cluster = cluster
        cluster.intercept(MetadataRequest, self._answer)

    def _answer(self, request: object, context: RequestContext) -> Cut | None:
        return None if context.node_id == self.told_by else Cut()

    async def begin(self) -> None:
        self._cluster.faults.mislead(1)
        await self._cluster.delete_topic("t")
        await self._cluster.create_topic("t", assignment={0: [0]})


@asynccontextmanager
async def collecting(
    cluster: FakeCluster, **options: Any
) -> AsyncIterator[tuple[AIOKafkaConsumer, list[bytes]]]:
    """A consumer that looks at metadata each second, and the values that it gives."""
    got: list[bytes] = []
    options |= {"auto_offset_reset": "earliest", "metadata_max_age_ms": 1000}
    async with AIOKafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, **options
    ) as consumer:

        async def read_all() -> None:
            async for record in consumer:
                got.append(record.value)

        reading = asyncio.ensure_future(read_all())
        yield consumer, got
        reading.cancel()


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("is_slow", [True, False], ids=["looked up meanwhile", "read meanwhile"])
def test_a_broker_shows_the_former_topic_again(
    release: str, group: str | None, is_slow: bool
) -> None:
    """What stands in each of the two comes once."""

    async def main(_: Simulation) -> None:
        def write(name: str, start: int, end: int) -> None:
            written = [b"%s%d" % (name.encode(), number) for number in range(start, end)]
            cluster.log("t").extend([(None, value, ()) for value in written])
            wanted.extend(written)

        def late(request: object, context: RequestContext) -> Delay | None:
            return Delay(3.0) if is_slow and context.node_id == 0 else None

        wanted: list[bytes] = []
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            cluster.move_coordinator("group", "g", 0)
            await cluster.create_topic("t", assignment={0: [1, 0]})
            write("A", 0, 6)
            async with collecting(cluster, group_id=group, enable_auto_commit=False) as (_, got):
                await asyncio.sleep(3)
                brokers = Disagreement(cluster)
                await brokers.begin()
                write("B", 0, 3)
                with cluster.intercept(ListOffsetsRequest, late):
                    await asyncio.sleep(2)
                    brokers.told_by = 1
                    await asyncio.sleep(4)
                    brokers.told_by = 0
                    await asyncio.sleep(10)
                brokers.told_by = 1
                await asyncio.sleep(4)
                brokers.told_by = 0
                write("B", 3, 20)
                await asyncio.sleep(10)
            assert got == wanted

    simulate(main)


def test_the_former_topic_that_is_shown_again_has_more_partitions() -> None:
    """Those that the new one lacks are read on as well, and not from their beginning."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [1, 0], 1: [1, 0]})
            cluster.log("t", 1).extend([(None, b"A", ())])
            async with collecting(cluster) as (consumer, got):
                await asyncio.sleep(3)
                brokers = Disagreement(cluster)
                await brokers.begin()
                cluster.log("t").extend([(None, b"B", ())])
                for brokers.told_by in (0, 1, 0, 1, 0):
                    await asyncio.sleep(4)
                    assert len(consumer.assignment()) == brokers.told_by + 1
            assert got == [b"A", b"B"]

    simulate(main)


@pytest.mark.parametrize("how", ["seek", "committed", "beginning"])
def test_a_seek_while_the_former_topic_is_shown_counts(how: str) -> None:
    """The application may mean either; what it has asked for comes."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [1, 0]})
            cluster.move_coordinator("group", "g", 0)
            fill(cluster, 0, 4)
            async with collecting(cluster, group_id="g", enable_auto_commit=False) as (
                consumer,
                got,
            ):
                await asyncio.sleep(3)
                brokers = Disagreement(cluster)
                await brokers.begin()
                fill(cluster, 0, 4)
                await asyncio.sleep(4)
                await consumer.commit({T0: 2})
                brokers.told_by = 1
                await asyncio.sleep(4)
                assert len(got) == 8
                consumer.pause(T0)
                if how == "seek":
                    consumer.seek(T0, 2)
                elif how == "committed":
                    assert await consumer.seek_to_committed(T0) == {T0: 2}
                else:
                    await consumer.seek_to_beginning(T0)
                brokers.told_by = 0
                await asyncio.sleep(4)
                consumer.resume(T0)
                await asyncio.sleep(4)
                assert len(got) == (12 if how == "beginning" else 10)

    simulate(main)


# == Commits that reach the coordinator after a topic was recreated ================================


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


async def make_again_with(cluster: FakeCluster, count: int) -> None:
    """Delete the topic; make another one with so many records in its first partition."""
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=4)
    fill(cluster, 0, count)


async def test_a_position_in_the_former_topic_is_not_one_in_the_next(
    by_name: FakeCluster, start: Start
) -> None:
    member = Unaware(by_name)
    consumer = await member.start(start)
    await make_again_with(by_name, 5)
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
    await make_again_with(by_name, 5)
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
        await make_again_with(cluster, 5)
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
            await make_again_with(cluster, 5)
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
    commits, cluster = FormerTopicOffsets(), ClusterMetadata()
    before, now = bytes(16), bytes([1] * 16)
    tps = [TopicPartition(f"t{number}", 0) for number in range(10_001)]
    for tp in tps:
        commits.add(tp, before, 5)
        assert commits.contains(tp, now, 5)
    commits.update(cluster)
    kept = [tp for tp in tps if commits.contains(tp, now, 5)]
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
            await make_again_with(cluster, 5)
            await client_of(consumer).force_metadata_update()
            released.set()
            await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
        assert cluster.count(OffsetCommitRequest) == 1
        assert cluster.groups.committed("g", "t") is None
