"""The producer on a real Kafka."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, RecordMetadata
from tests.integration.support import numbers, read
from tests.kafka.fixtures import Kafka, MakeTopic, Scale
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic


async def test_batches_without_a_partition_are_spread(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        sent = []
        for number in range(30):
            batch = producer.create_batch()
            for value in (b"%d" % number, b"more"):
                batch.append(key=None, value=value, timestamp=None, headers=iter([("h", b"1")]))
            sent.append(await producer.send_batch(batch, topic))
        told = await asyncio.gather(*sent)
    assert {metadata.partition for metadata in told} == {0, 1, 2}
    found = await read(kafka.bootstrap_servers, topic, 60, partitions=3)
    places = {(record.partition, record.offset): record for record in found}
    assert len(found) == len(places) == 60
    for number, metadata in enumerate(told):
        record = places[metadata.partition, metadata.offset]
        assert (record.value, record.headers) == (b"%d" % number, (("h", b"1"),))


async def test_records_arrive_as_they_were_sent(kafka: Kafka, topic: str) -> None:
    headers = [("one", b"1"), ("none", None)]
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        first = await producer.send_and_wait(topic, b"v", b"k", 0, 1_700_000_000_000, headers)
        second = await producer.send_and_wait(topic, None, b"k")
    assert (first.offset, first.timestamp, first.timestamp_type) == (0, 1_700_000_000_000, 0)
    assert second.offset == 1
    one, two = await read(kafka.bootstrap_servers, topic, 2)
    assert (one.key, one.value, one.timestamp) == (b"k", b"v", 1_700_000_000_000)
    assert one.headers == tuple(headers)
    assert (two.key, two.value, two.timestamp) == (b"k", None, second.timestamp)


async def test_append_time(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(config={"message.timestamp.type": "LogAppendTime"})
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        metadata = await producer.send_and_wait(topic, b"v", timestamp_ms=1)
    assert metadata.timestamp_type == 1
    (record,) = await read(kafka.bootstrap_servers, topic, 1)
    assert record.timestamp == metadata.timestamp


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_order(kafka: Kafka, topic: str, acks: int | str, scale: Scale) -> None:
    payloads = numbers(scale(20_000, 500_000))
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks=acks) as producer:
        for payload in payloads:
            await producer.send(topic, payload)
    found = await read(kafka.bootstrap_servers, topic, len(payloads))
    assert [record.value for record in found] == payloads


async def test_a_batch_too_large_is_split(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(config={"max.message.bytes": "2000"})
    payloads = [b"%05d" % number * 10 for number in range(1000)]
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        futures = [await producer.send(topic, payload) for payload in payloads]
        offsets = [metadata.offset for metadata in await asyncio.gather(*futures)]
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 3000)
    assert offsets == list(range(1000))
    found = await read(kafka.bootstrap_servers, topic, 1000)
    assert [record.value for record in found] == payloads


@pytest.mark.parametrize("codec", [None, "lz4"])
async def test_batches_that_have_grown_are_split(
    kafka: Kafka, make_topic: MakeTopic, codec: str | None
) -> None:
    """Several of them in a row, and the first that the leader gets from this producer."""
    topic = await make_topic(config={"max.message.bytes": "50000"})
    source = random.Random(1)
    payloads = [b"%05d" % number + source.randbytes(495) for number in range(10_000)]
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, compression_type=codec
    ) as producer:
        futures = [await producer.send(topic, payload) for payload in payloads]
        offsets = [metadata.offset for metadata in await asyncio.gather(*futures)]
    assert offsets == list(range(10_000))
    found = await read(kafka.bootstrap_servers, topic, 10_000)
    assert [record.value for record in found] == payloads


async def test_stop_is_bounded_without_brokers() -> None:
    cluster = await asyncio.to_thread(started, KafkaCluster())
    try:
        await create_topic(cluster.bootstrap_servers, "topic", 1, 1, {})
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            delivery_timeout_ms=8000,
            request_timeout_ms=7000,
        )
        await producer.start()
        await producer.send_and_wait("topic", b"v")
        await asyncio.to_thread(cluster.kill, 1)
        future = await producer.send("topic", b"w")
        await producer.stop()
        assert isinstance(future.exception(), KafkaTimeoutError)
    finally:
        await asyncio.to_thread(cluster.stop)


def started(cluster: KafkaCluster) -> KafkaCluster:
    cluster.start()
    return cluster


# -- transactions


async def check_transactions(servers: str, topic: str, rounds: int) -> None:
    """Commit two of three transactions, each with an offset."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=f"id-{topic}", max_batch_size=200
    )
    expected: list[bytes] = []
    async with producer:
        for number in range(rounds):
            payloads = [b"%d-%d" % (number, index) for index in range(20)]
            await producer.begin_transaction()
            for payload in payloads:
                await producer.send(topic, payload, partition=0)
            await producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(number, "")}, group
            )
            if number % 3 == 1:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                expected += payloads
    found = await read(servers, topic, len(expected))
    assert [record.value for record in found] == expected


async def test_transactions(kafka: Kafka, topic: str, scale: Scale) -> None:
    await check_transactions(kafka.bootstrap_servers, topic, scale(13, 100))


@pytest.mark.parametrize("version", ["0.11.0.3", "2.8.2", "3.9.2"])
async def test_transactions_of_version_1(version: str) -> None:
    cluster = await asyncio.to_thread(started, KafkaCluster(version))
    try:
        await create_topic(cluster.bootstrap_servers, "topic", 1, 1, {})
        await check_transactions(cluster.bootstrap_servers, "topic", 13)
        await create_topic(cluster.bootstrap_servers, "fenced", 1, 1, {})
        await check_fencing(cluster.bootstrap_servers, "fenced")
    finally:
        await asyncio.to_thread(cluster.stop)


async def test_fencing(kafka: Kafka, topic: str) -> None:
    await check_fencing(kafka.bootstrap_servers, topic)


async def test_what_is_fenced_leaves_the_open_transaction_of_its_successor_alone(
    kafka: Kafka, topic: str
) -> None:
    """Who asks for an epoch in the name of the old one would end it."""
    old, new = (
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic)
        for _ in range(2)
    )
    async with old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"cut off", partition=0)
        async with new, new.transaction():
            await new.send_and_wait(topic, b"new", partition=0)
            with pytest.raises(ProducerFenced):
                await (await old.send(topic, b"late", partition=0))
            with pytest.raises(ProducerFenced):
                await old.abort_transaction()
    found = await read(kafka.bootstrap_servers, topic, 1)
    assert [record.value for record in found] == [b"new"]


async def check_fencing(servers: str, topic: str) -> None:
    """A newer producer takes over. What the older one has begun is aborted, and whatever it tries
    afterwards fails for good, with an error that says who may have done that."""
    old, new = (
        AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) for _ in range(2)
    )
    fenced = "(?i)a newer producer with the same transactional.id"
    async with old:
        async with old.transaction():
            await old.send(topic, b"before", partition=0)
        await old.begin_transaction()
        await old.send_and_wait(topic, b"cut off", partition=0)
        async with new:
            # To a leader, one whose transaction took too long looks the same: the coordinator tells
            # them apart (KIP-588).
            with pytest.raises(ProducerFenced, match=fenced):
                await (await old.send(topic, b"late", partition=0))
            with pytest.raises(ProducerFenced, match=fenced):
                await old.abort_transaction()
            async with new.transaction():
                await new.send(topic, b"new", partition=0)
            for call in (old.commit_transaction, old.abort_transaction, old.begin_transaction):
                with pytest.raises(ProducerFenced, match=fenced) as caught:
                    await call()
                assert caught.value.is_fatal
            with pytest.raises(ProducerFenced, match=fenced):
                await old.send(topic, b"later", partition=0)
    committed = await read(servers, topic, 2)
    assert [record.value for record in committed] == [b"before", b"new"]
    everything = await read(servers, topic, 3, isolation="read_uncommitted")
    assert [record.value for record in everything] == [b"before", b"cut off", b"new"]


async def test_a_transaction_that_takes_too_long(kafka: Kafka, topic: str) -> None:
    """The coordinator aborts it; the producer can begin another (KIP-588)."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id=topic,
        transaction_timeout_ms=1000,
    )
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"late")
        # The coordinator looks every ten seconds (transaction.abort.timed.out.transaction.
        # cleanup.interval.ms): write until it refuses.
        refused = False
        for _ in range(400):
            future = await producer.send(topic, b"late")
            (refused,) = [isinstance(one, Exception) for one in await settled(future)]
            if refused:
                break
            await asyncio.sleep(0.1)
        assert refused
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"in time")
    assert [r.value for r in await read(kafka.bootstrap_servers, topic, 1)] == [b"in time"]


async def settled(future: asyncio.Future[RecordMetadata]) -> list[object]:
    return list(await asyncio.gather(future, return_exceptions=True))


async def test_null_keys_spread_over_partitions(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=4)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        counts: Counter[int] = Counter()
        # A partition gets a batch at a time, and fewer of them while its leader is slow.
        while len(counts) < 4 or min(counts.values()) < 1000:
            assert sum(counts.values()) < 100_000, counts
            futures = [await producer.send(topic, b"x" * 100) for _ in range(5000)]
            counts.update(metadata.partition for metadata in await asyncio.gather(*futures))
