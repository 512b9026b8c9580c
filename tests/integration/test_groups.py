"""Groups on a real broker, with another client's member among ours."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import ConsumerStoppedError
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.kafka.topics import create_topic

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


async def until(condition: Callable[..., bool]) -> None:
    async with timeout(40):
        while not condition():
            await asyncio.sleep(0.05)


def member(kafka: Kafka, topic: str, assignor: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[ASSIGNORS[assignor]],
    )


async def read_all(consumer: AIOKafkaConsumer, seen: list[int]) -> None:
    try:
        while True:
            seen.append(int((await consumer.getone()).value))
    except ConsumerStoppedError:
        pass


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_members_share_the_work(kafka: Kafka, make_topic: MakeTopic, assignor: str) -> None:
    topic = await make_topic(partitions=4)
    seen: list[int] = []
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(400):
            await producer.send(topic, b"%d" % number, partition=number % 4)
    loop = asyncio.get_running_loop()
    async with member(kafka, topic, assignor) as first:
        readers = [loop.create_task(read_all(first, seen))]
        async with member(kafka, topic, assignor) as second:
            readers.append(loop.create_task(read_all(second, seen)))
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            await until(lambda: len(set(seen)) == 400)
        await until(lambda: len(first.assignment()) == 4)
    await asyncio.gather(*readers)
    async with member(kafka, topic, assignor) as third:
        committed = [await third.committed(tp) for tp in sorted(third.assignment())]
    assert committed == [100] * 4


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_with_confluent_kafka(kafka: Kafka, make_topic: MakeTopic, assignor: str) -> None:
    topic = await make_topic(partitions=4)
    async with member(kafka, topic, assignor) as ours:
        assert len(ours.assignment()) == 4
        settings: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10000,
        }
        theirs = confluent_kafka.Consumer(settings)
        theirs.subscribe([topic])
        async with timeout(40):
            while not len(ours.assignment()) == len(theirs.assignment()) == 2:
                await asyncio.to_thread(theirs.poll, 0.2)
        await asyncio.to_thread(theirs.close)
        await until(lambda: len(ours.assignment()) == 4)


class Calls(ConsumerRebalanceListener):
    """Counts the calls of a listener."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.names.append("revoked")

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.names.append("assigned")


async def test_a_new_topic_is_shared_in_one_rebalance(kafka: Kafka) -> None:
    """As in aiokafka's own tests: members with a pattern find a topic at different times."""
    prefix = f"topics-{uuid.uuid4().hex[:10]}"
    calls = [Calls(), Calls()]
    async with contextlib.AsyncExitStack() as members:
        consumers = []
        # Only the first one looks for topics by itself.
        for number, age in enumerate((200, 3_600_000)):
            consumer = AIOKafkaConsumer(
                bootstrap_servers=kafka.bootstrap_servers,
                group_id=prefix,
                metadata_max_age_ms=age,
                heartbeat_interval_ms=100,
            )
            consumer.subscribe(pattern=f"^{prefix}-.*$", listener=calls[number])
            consumers.append(await members.enter_async_context(consumer))
        await until(lambda: [len(each.names) for each in calls] == [4, 2])
        for count in (1, 2):
            name = f"{prefix}-{count}"
            await create_topic(kafka.bootstrap_servers, name, partitions=2)
            await until(
                lambda count=count: all(len(each.assignment()) == count for each in consumers)
            )
            assert all(len(each.subscription()) == count for each in consumers)
        assert [len(each.names) for each in calls] == [8, 6]


async def test_a_member_that_goes_and_comes_back_causes_one_rebalance_each_time(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    """As in aiokafka's own tests of dynamic members."""
    topic = await make_topic(partitions=2)
    calls = [Calls(), Calls()]
    async with contextlib.AsyncExitStack() as members:
        consumers = []
        for each in calls:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=kafka.bootstrap_servers, group_id=topic, heartbeat_interval_ms=200
            )
            consumer.subscribe([topic], listener=each)
            consumers.append(await members.enter_async_context(consumer))
        await until(lambda: len(calls[0].names) == 4)
        consumers[1].unsubscribe()
        await until(lambda: len(consumers[0].assignment()) == 2)
        consumers[1].subscribe([topic], listener=calls[1])
        await until(lambda: all(len(each.assignment()) == 1 for each in consumers))
        await consumers[1].stop()
        await until(lambda: len(consumers[0].assignment()) == 2)
    assert calls[1].names == ["revoked", "assigned"] * 2
    assert calls[0].names == ["revoked", "assigned"] * 5
