"""What a consumer with assigned partitions does on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
)
from tests.kafka.fixtures import Kafka, MakeTopic

Start = Callable[..., Awaitable[AIOKafkaConsumer]]


@pytest.fixture
async def start(kafka: Kafka) -> AsyncIterator[Start]:
    """`await start(*topics, **options)`: a started consumer that reads from the beginning."""
    consumers: list[AIOKafkaConsumer] = []

    async def make(*topics: str, assign: Any = (), **options: Any) -> AIOKafkaConsumer:
        options.setdefault("auto_offset_reset", "earliest")
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=kafka.bootstrap_servers, **options)
        consumers.append(consumer)
        if assign:
            consumer.assign(assign)
        await consumer.start()
        return consumer

    yield make
    for consumer in consumers:
        await consumer.stop()


async def write(kafka: Kafka, topic: str, partition: int, numbers: range) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    async with producer:
        for number in numbers:
            await producer.send(
                topic, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number
            )


async def read(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int]]:
    """(partition, value) of the next `count` records."""
    async with timeout(30):
        records = [await consumer.getone() for _ in range(count)]
    return [(record.partition, int(record.value)) for record in records]


async def test_positions(kafka: Kafka, make_topic: MakeTopic, start: Start) -> None:
    name = await make_topic(partitions=2)
    tp = TopicPartition(name, 0)
    await write(kafka, name, 0, range(100))
    consumer = await start(name)
    assert await read(consumer, 100) == [(0, n) for n in range(100)]
    assert (await consumer.position(tp), consumer.highwater(tp)) == (100, 100)
    consumer.seek(tp, 40)
    assert await read(consumer, 1) == [(0, 40)]
    assert await consumer.seek_to_beginning(tp)
    assert await read(consumer, 1) == [(0, 0)]
    assert await consumer.seek_to_end()
    assert await consumer.position(tp) == 100
    await write(kafka, name, 0, range(100, 103))
    assert await read(consumer, 3) == [(0, n) for n in range(100, 103)]
    assert await consumer.beginning_offsets([tp]) == {tp: 0}
    assert await consumer.end_offsets([tp, TopicPartition(name, 1)]) == {
        tp: 103,
        TopicPartition(name, 1): 0,
    }
    found = await consumer.offsets_for_times({tp: 1_000_050, TopicPartition(name, 1): 0})
    assert found == {tp: (50, 1_000_050), TopicPartition(name, 1): None}


async def test_the_reset_policy(kafka: Kafka, make_topic: MakeTopic, start: Start) -> None:
    name = await make_topic(partitions=1)
    tp = TopicPartition(name, 0)
    await write(kafka, name, 0, range(5))
    consumer = await start(name, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.getone()
    consumer.seek(tp, 1000)
    with pytest.raises(OffsetOutOfRangeError):
        await consumer.getone()
    consumer.seek(tp, 3)
    assert await read(consumer, 2) == [(0, 3), (0, 4)]
    for policy, position in (("by_duration:PT1H", 5), ("latest", 5), ("earliest", 0)):
        other = await start(name, auto_offset_reset=policy)
        assert await other.position(tp) == position


async def test_many_partitions_are_read_fairly(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic(partitions=50)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    async with producer:
        for number in range(5000):
            await producer.send(name, b"%d" % number, partition=number % 50)
    consumer = await start(name)
    counts = dict.fromkeys(range(50), 0)
    seen: set[int] = set()
    async with timeout(30):
        while len(seen) < 5000:
            for tp, records in (await consumer.getmany(timeout_ms=1000, max_records=70)).items():
                counts[tp.partition] += len(records)
                seen.update(int(record.value) for record in records)
    assert counts == dict.fromkeys(range(50), 100)


async def test_committed_transactions_only(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic(partitions=1)
    tp = TopicPartition(name, 0)

    def write_transactions() -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{name}"}
        )
        producer.init_transactions(30)
        for turn in range(6):
            producer.begin_transaction()
            for number in range(10):
                producer.produce(name, b"%d" % (turn * 10 + number), partition=0)
            producer.flush(30)
            if turn < 5:
                (producer.abort_transaction if turn % 2 else producer.commit_transaction)(30)
        return producer

    producer = await asyncio.to_thread(write_transactions)
    consumer = await start(name, isolation_level="read_committed")
    expected = [(0, turn * 10 + number) for turn in (0, 2, 4) for number in range(10)]
    assert await read(consumer, 30) == expected
    assert await consumer.getmany(timeout_ms=300) == {}
    assert consumer.last_stable_offset(tp) == await consumer.position(tp)
    await asyncio.to_thread(producer.commit_transaction, 30)
    assert await read(consumer, 10) == [(0, n) for n in range(50, 60)]
    everything = await start(name)
    assert await read(everything, 60) == [(0, n) for n in range(60)]


async def test_commits_for_partitions_chosen_by_hand(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic(partitions=1)
    tp = TopicPartition(name, 0)
    await write(kafka, name, 0, range(10))
    group = f"group-{name}"
    first = await start(assign=[tp], group_id=group)
    await read(first, 4)
    await first.commit()
    assert await first.committed(tp) == 4
    await read(first, 2)
    await first.stop()
    second = await start(assign=[tp], group_id=group, enable_auto_commit=False)
    assert await read(second, 4) == [(0, n) for n in range(6, 10)]


async def test_a_topic_made_while_reading(kafka: Kafka, start: Start) -> None:
    prefix = f"made-{time.time_ns()}"
    consumer = await start(metadata_max_age_ms=300)
    consumer.subscribe(pattern=f"^{prefix}")
    waiting = asyncio.create_task(read(consumer, 3))
    await write(kafka, f"{prefix}-a", 0, range(3))
    assert await waiting == [(0, n) for n in range(3)]
    assert consumer.subscription() == {f"{prefix}-a"}


@pytest.mark.parametrize("way", ["subscribed", "group", "consumer protocol", "assigned"])
async def test_the_record_that_makes_the_topic_is_read(
    kafka: Kafka, start: Start, way: str
) -> None:
    """By "latest" as well: start() had returned when it was sent."""
    name = f"made-{time.time_ns()}"
    options: dict[str, Any] = {"auto_offset_reset": "latest"}
    if way in ("group", "consumer protocol"):
        protocol = "classic" if way == "group" else "consumer"
        options.update(group_id=f"g-{name}", group_protocol=protocol)
    if way == "assigned":
        # With it the broker makes the topic.
        consumer = await start(assign=[TopicPartition(name, 0)], **options)
    else:
        consumer = await start(name, **options)
    partition = min(consumer.assignment()).partition
    await write(kafka, name, partition, range(3))
    assert await read(consumer, 3) == [(partition, n) for n in range(3)]


async def test_latest_and_partitions_that_are_added(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic(partitions=1)
    await write(kafka, name, 0, range(3))
    options: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 500}
    consumers = [
        await start(name, **options),
        await start(name, group_id=f"g-{name}", **options),
        await start(name, group_id=f"h-{name}", group_protocol="consumer", **options),
    ]
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    async with admin:
        await admin.create_partitions({name: NewPartitions(2)})
    await write(kafka, name, 1, range(3, 6))
    for consumer in consumers:
        assert await read(consumer, 3) == [(1, 3), (1, 4), (1, 5)]
    await write(kafka, name, 0, range(6, 7))
    for consumer in consumers:
        assert await read(consumer, 1) == [(0, 6)]


async def test_latest_and_a_topic_made_anew(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic()
    await write(kafka, name, 0, range(5))
    consumer = await start(name, auto_offset_reset="latest", metadata_max_age_ms=500)
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.delete_topics([name])
        async with timeout(30):
            while True:
                try:
                    await admin.create_topics([NewTopic(name, 1, 1)])
                    break
                except TopicAlreadyExistsError:
                    await asyncio.sleep(0.1)
    await write(kafka, name, 0, range(10, 18))
    assert await read(consumer, 8) == [(0, n) for n in range(10, 18)]


async def test_commits_carry_the_leader_epoch(
    kafka: Kafka, make_topic: MakeTopic, start: Start
) -> None:
    name = await make_topic()
    tp = TopicPartition(name, 0)
    await write(kafka, name, 0, range(5))
    group = f"g-{name}"
    consumer = await start(name, group_id=group, enable_auto_commit=False)
    await read(consumer, 3)
    epochs = []
    for offsets in (None, {tp: 2}):
        await consumer.commit(offsets)
        epochs.append((await consumer.committed_offsets([tp]))[tp])
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=group)
    async with producer, producer.transaction():
        await producer.send_offsets_to_transaction({tp: 1}, consumer)
    epochs.append((await consumer.committed_offsets([tp]))[tp])
    assert [entry and (entry.offset, entry.leader_epoch) for entry in epochs] == [
        (3, 0),
        (2, 0),
        (1, 0),
    ]
