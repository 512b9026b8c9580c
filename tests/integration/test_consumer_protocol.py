"""Groups of the next-generation protocol (KIP-848) on a real broker, alone and with other members:
another client's, and of the classic protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    SubscriptionPattern,
    TopicPartition,
)
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupIdNotFound,
    InconsistentGroupProtocolError,
    InvalidRegularExpression,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersionError,
)
from tests.kafka.fixtures import Kafka, MakeTopic, need_own_brokers
from tests.kafka.launcher import KafkaCluster

PARTITIONS = 4


async def until(condition: Callable[[], bool], seconds: float = 40) -> None:
    async with timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


def member(servers: str, *topics: str, group: str, **options: Any) -> AIOKafkaConsumer:
    options.setdefault("group_protocol", "consumer")
    if options["group_protocol"] == "classic":
        options.setdefault("heartbeat_interval_ms", 200)
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1000,
        **options,
    )


class Reader:
    """A member that reads and commits, one record after the other."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.seen: list[int] = []
        self.committed = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        with contextlib.suppress(ConsumerStoppedError):
            while True:
                found = await self.consumer.getmany(timeout_ms=100, max_records=20)
                for tp, records in found.items():
                    self.seen += [int(record.value) for record in records]
                    await self.consumer.commit({tp: records[-1].offset + 1})
                    self.committed += len(records)

    @property
    def owned(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}

    def check(self) -> None:
        """Raise what ended it."""
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        await self.consumer.stop()
        await self._task


@contextlib.asynccontextmanager
async def reading(consumer: AIOKafkaConsumer) -> AsyncIterator[Reader]:
    await consumer.start()
    reader = Reader(consumer)
    try:
        yield reader
    finally:
        await reader.stop()


async def fill(servers: str, topic: str, count: int, first: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def have_seen(readers: list[Reader], count: int) -> Callable[[], bool]:
    """Whether the readers together have seen the first `count` numbers."""
    return lambda: {number for reader in readers for number in reader.seen} == set(range(count))


def are_shared(*readers: Reader) -> bool:
    """Whether each partition has one owner and the shares are even."""
    for reader in readers:
        reader.check()
    sizes = [len(reader.owned) for reader in readers]
    everything = set().union(*(reader.owned for reader in readers))
    return sum(sizes) == len(everything) == PARTITIONS and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
async def test_members_share_the_work(
    kafka: Kafka, make_topic: MakeTopic, assignor: str | None
) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers
    options = {"group": topic, "group_remote_assignor": assignor, "enable_auto_commit": False}
    await fill(servers, topic, 200)
    async with reading(member(servers, topic, **options)) as first:
        await until(lambda: are_shared(first) and len(first.seen) >= 100)
        async with reading(member(servers, topic, **options)) as second:
            await until(lambda: are_shared(first, second))
            await fill(servers, topic, 200, first=200)
            await until(lambda: set(first.seen + second.seen) == set(range(400)))
            assert sorted(first.seen + second.seen) == list(range(400))
        await until(lambda: are_shared(first))
        committed = [await first.consumer.committed(TopicPartition(topic, n)) for n in range(4)]
    assert committed == [100] * 4


async def test_a_static_member_keeps_its_partitions(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers
    names = {"group": topic, "group_instance_id": "one"}
    async with reading(member(servers, topic, group=topic)) as other:
        async with reading(member(servers, topic, **names)) as first:
            await until(lambda: are_shared(other, first))
            owned = first.owned
            # While it lives, no other member takes its name.
            rival = member(servers, topic, **names)
            with pytest.raises(UnreleasedInstanceId, match="group_instance_id"):
                await rival.start()
            assert first.owned == owned
        async with reading(member(servers, topic, **names)) as second:
            await until(lambda: bool(second.owned))
            assert second.owned == owned
            assert len(other.owned) == 2


async def test_the_group_is_described(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        async with reading(member(servers, topic, group=topic, client_id="me")) as reader:
            await until(lambda: are_shared(reader))
            (answer,) = await admin.describe_consumer_groups([topic])
        (group,) = answer.groups
        assert (group.error_code, group.group, group.protocol_type) == (0, topic, "consumer")
        assert group.protocol == "uniform"
        (found,) = group.members
        assert found.client_id == "me"
        assert ConsumerProtocolMemberMetadata.decode(found.member_metadata).topics == [topic]
        share = ConsumerProtocolMemberAssignment.decode(found.member_assignment)
        assert {tp.partition for tp in share.partitions()} == set(range(PARTITIONS))
        (answer,) = await admin.describe_consumer_groups([topic])
        assert (answer.groups[0].state, answer.groups[0].members) == ("Empty", [])


async def test_the_broker_matches_a_pattern(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers
    consumer = member(servers, group=topic)
    consumer.subscribe(pattern=SubscriptionPattern(f"{topic[:-1]}[{topic[-1]}]"))
    await fill(servers, topic, 40)
    async with reading(consumer) as reader:
        await until(lambda: sorted(reader.seen) == list(range(40)))
        assert consumer.subscription() == {topic}
        await until(lambda: are_shared(reader))
        consumer.subscribe([topic])
        await fill(servers, topic, 4, first=40)
        await until(lambda: sorted(reader.seen) == list(range(44)))


async def test_the_client_matches_a_pattern(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    consumer = member(kafka.bootstrap_servers, group=topic)
    consumer.subscribe(pattern=f"^{topic}$")
    await fill(kafka.bootstrap_servers, topic, 8)
    async with reading(consumer) as reader:
        await until(lambda: sorted(reader.seen) == list(range(8)))


async def test_what_the_broker_refuses(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    servers = kafka.bootstrap_servers
    consumer = member(servers, topic, group=topic, group_remote_assignor="fair")
    with pytest.raises(UnsupportedAssignor, match="uniform"):
        await consumer.start()
    consumer = member(servers, group=topic)
    consumer.subscribe(pattern=SubscriptionPattern("(?<=a)b"))  # no look-behind in RE2
    with pytest.raises(InvalidRegularExpression, match=r"[Rr]egular"):
        await consumer.start()


async def test_a_member_that_does_not_ask_for_records(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    consumer = member(kafka.bootstrap_servers, topic, group=topic, max_poll_interval_ms=1000)
    await fill(kafka.bootstrap_servers, topic, 4)
    async with consumer:
        assert len(consumer.assignment()) == PARTITIONS
        await until(lambda: not consumer.assignment())
        seen = [int((await consumer.getone()).value) for _ in range(4)]
        assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_with_confluent_kafka(kafka: Kafka, make_topic: MakeTopic, protocol: str) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    async with reading(member(kafka.bootstrap_servers, topic, group=topic)) as ours:
        settings: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "group.protocol": protocol,
        }
        if protocol == "classic":
            settings["heartbeat.interval.ms"] = 200
        theirs = confluent_kafka.Consumer(settings)
        theirs.subscribe([topic])
        async with timeout(40):
            while not len(ours.owned) == len(theirs.assignment()) == 2:
                await asyncio.to_thread(theirs.poll, 0.2)
        assert not ours.owned & {tp.partition for tp in theirs.assignment()}
        await asyncio.to_thread(theirs.close)
        await until(lambda: are_shared(ours))


@pytest.mark.parametrize("way", ["classic-consumer", "consumer-classic"])
async def test_a_live_group_moves_to_the_other_protocol(
    kafka: Kafka, make_topic: MakeTopic, way: str
) -> None:
    """One member after the other, while records flow (group.consumer.migration.policy)."""
    old, new = way.split("-")
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers
    options = {"group": topic, "enable_auto_commit": False}
    readers: list[Reader] = []
    sent = 0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            consumer = member(servers, topic, group_protocol=old, **options)
            readers.append(await stack.enter_async_context(reading(consumer)))
        await until(lambda: are_shared(*readers))
        living = list(readers)
        for leaver in list(readers):
            consumer = member(servers, topic, group_protocol=new, **options)
            readers.append(await stack.enter_async_context(reading(consumer)))
            living.append(readers[-1])
            await until(lambda: are_shared(*living))
            await fill(servers, topic, 40, first=sent)
            sent += 40
            await until(have_seen(readers, sent))
            # Kafka may refuse what a classic member commits in the moment in which its group is
            # made a classic one again: the generation is another one before the member joins.
            await until(lambda: all(r.committed == len(r.seen) for r in readers))
            await leaver.stop()
            living.remove(leaver)
            await until(lambda: are_shared(*living))
        await fill(servers, topic, 40, first=sent)
        sent += 40
        await until(have_seen(readers, sent))
    # No member was removed, nothing had to be read again.
    assert sorted(n for reader in readers for n in reader.seen) == list(range(sent))


async def test_new_partitions_after_a_static_member_came_back(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    """It makes the group a classic one again, and the coordinator tells nobody to be the leader."""
    topic = await make_topic(partitions=PARTITIONS)
    servers = kafka.bootstrap_servers

    def static(name: str, protocol: str) -> AIOKafkaConsumer:
        return member(servers, topic, group=topic, group_instance_id=name, group_protocol=protocol)

    async with reading(static("one", "classic")) as one:
        async with reading(static("two", "consumer")) as two:
            await until(lambda: are_shared(one, two))
            owned = two.owned
        async with reading(static("two", "classic")) as two:
            await until(lambda: are_shared(one, two))
            assert two.owned == owned
            async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
                await admin.create_partitions({topic: NewPartitions(2 * PARTITIONS)})
            await until(lambda: len(one.owned | two.owned) == 2 * PARTITIONS)


async def test_a_member_that_comes_during_the_first_rebalance_of_a_classic_group() -> None:
    """Kafka answers with an unexpected error until that is over."""
    need_own_brokers()
    with KafkaCluster(config={"group.initial.rebalance.delay.ms": "1500"}) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"0")
        old = member(servers, "t", group="g", group_protocol="classic")
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
            starting = asyncio.create_task(old.start())
            async with timeout(40):
                while ("g", "consumer") not in await admin.list_consumer_groups():
                    await asyncio.sleep(0.05)
            async with member(servers, "t", group="g") as new:
                await starting
                await until(lambda: len(old.assignment() | new.assignment()) == 1)
                await old.stop()


async def test_a_broker_without_the_feature() -> None:
    need_own_brokers()
    config = {"group.coordinator.rebalance.protocols": "classic"}
    with KafkaCluster(config=config) as cluster:
        consumer = member(cluster.bootstrap_servers, "t", group="g")
        with pytest.raises(UnsupportedVersionError, match=r"node 1.*group_protocol='classic'"):
            await consumer.start()


async def test_a_broker_that_does_not_convert_groups() -> None:
    need_own_brokers()
    with KafkaCluster(config={"group.consumer.migration.policy": "disabled"}) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"0")
        async with member(servers, "t", group="g", group_protocol="classic") as old:
            with pytest.raises(GroupIdNotFound, match=r"group\.consumer\.migration\.policy"):
                await member(servers, "t", group="g").start()
            assert len(old.assignment()) == 1
        async with member(servers, "t", group="g") as new:
            assert len(new.assignment()) == 1
            with pytest.raises(InconsistentGroupProtocolError, match=r"migration\.policy"):
                await member(servers, "t", group="g", group_protocol="classic").start()
