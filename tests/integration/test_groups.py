"""Groups on a real broker, with another client's member among ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import ConsumerStoppedError
from tests.kafka.fixtures import Kafka, MakeTopic

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


async def until(condition: Callable[[], bool]) -> None:
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
