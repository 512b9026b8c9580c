"""Programs written by aiokafka's manual of 0.8: what it promises for one consumer and producer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as made:
        await made.create_topic("my_topic", partitions=3)
        yield made


def make_consumer(cluster: FakeCluster, *topics: str, **options: Any) -> AIOKafkaConsumer:
    options = {"auto_offset_reset": "earliest", **options}
    return AIOKafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)


def fill(cluster: FakeCluster, partition: int, count: int) -> None:
    cluster.log("my_topic", partition).extend([(b"k", b"%d" % n, ()) for n in range(count)])


# -- getting started


async def test_start_produce_stop(cluster: FakeCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    try:
        await producer.send_and_wait("my_topic", b"Super message", partition=1)
    finally:
        await producer.stop()
    assert [r.value for r in cluster.log("my_topic", 1).records()] == [b"Super message"]


async def test_start_consume_stop(cluster: FakeCluster) -> None:
    fill(cluster, 0, 1)
    consumer = make_consumer(cluster, "my_topic")
    await consumer.start()
    try:
        async for msg in consumer:
            text = f"{msg.topic}:{msg.partition:d}:{msg.offset:d}: {msg.key} {msg.value}"
            assert msg.timestamp > 0
            break
    finally:
        await consumer.stop()
    assert text == "my_topic:0:0: b'k' b'0'"


async def test_a_stopped_consumer_ends_its_loop(cluster: FakeCluster) -> None:
    consumer = make_consumer(cluster, "my_topic")
    await consumer.start()

    async def read() -> int:
        return len([record async for record in consumer])

    reader = asyncio.create_task(read())
    await consumer.seek_to_end()
    await consumer.stop()
    assert await asyncio.wait_for(reader, 10) == 0


# -- producer


async def test_send_gives_a_future(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        future = await producer.send("my_topic", b"Super message", partition=1)
        metadata = await future
        assert metadata.topic == "my_topic"
        assert metadata.partition == 1
        assert metadata.topic_partition == TopicPartition("my_topic", 1)
        assert metadata.offset == 0
        assert metadata.timestamp_type == 0


async def test_a_cancelled_future_is_sent_all_the_same(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        future = await producer.send("my_topic", b"v", partition=0)
        future.cancel()
    assert cluster.log("my_topic", 0).end_offset == 1


async def test_batches_keep_the_order_of_append(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(500):
            await producer.send("my_topic", b"%d" % number, partition=2)
    values = [r.value for r in cluster.log("my_topic", 2).records()]
    assert values == [b"%d" % number for number in range(500)]


async def test_direct_batch_control(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        batch = producer.create_batch()
        for i in range(2):
            metadata = batch.append(value=b"msg %d" % i, key=None, timestamp=None)
            assert metadata is not None
        batch.close()
        record = await (await producer.send_batch(batch, "my_topic", partition=1))
        assert record.offset == 0
    assert [r.value for r in cluster.log("my_topic", 1).records()] == [b"msg 0", b"msg 1"]


async def test_flush_and_partitions(cluster: FakeCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
    async with producer:
        assert await producer.partitions_for("my_topic") == {0, 1, 2}
        future = await producer.send("my_topic", b"v", partition=0)
        await producer.flush()
        assert future.done()


async def test_too_few_replicas(cluster: FakeCluster) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        acks="all",
        request_timeout_ms=300,
        delivery_timeout_ms=600,
    )
    cluster.intercept(ProduceRequest, Fail(NotEnoughReplicasError))
    async with producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("my_topic", b"v")


async def test_error_handling_of_the_manual(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError))
        seen = ""
        try:
            send_future = await producer.send("my_topic", b"test data")
            await send_future
        except KafkaTimeoutError:
            seen = "timeout"
        except KafkaError as err:
            seen = f"some kafka error on produce: {err}"
        assert seen.startswith("some kafka error on produce: [Error 10] MessageSizeTooLargeError")


async def test_idempotence_and_acks_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="acks=1"):
        AIOKafkaProducer(enable_idempotence=True, acks=1)


async def test_serialization_and_compression(cluster: FakeCluster) -> None:
    def serializer(value: Any) -> bytes:
        return json.dumps(value).encode()

    values = [{"a": 123.4, "b": "some string"}, [1, 2, 3, 4]]
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        value_serializer=serializer,
        compression_type="gzip",
    )
    await producer.start()
    for value in values:
        await producer.send("my_topic", value, partition=0)
    await producer.stop()

    consumer = make_consumer(cluster, "my_topic", value_deserializer=json.loads)
    async with consumer:
        found = []
        while len(found) < 2:
            for messages in (await consumer.getmany(timeout_ms=10_000)).values():
                found += [message.value for message in messages]
    assert found == values


async def test_a_codec_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    try:
        producer = AIOKafkaProducer(compression_type="lz4")
    except UnsupportedCodecError as error:
        assert "aiokafka[lz4]" in str(error)
    else:  # It was imported before, by another test.
        await producer.stop()


# -- consumer


async def test_the_position_is_the_next_offset(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with make_consumer(cluster, "my_topic") as consumer:
        msg = await consumer.getone()
        tp = TopicPartition(msg.topic, msg.partition)
        assert await consumer.position(tp) == msg.offset + 1
        consumer.seek(tp, msg.offset)
        assert await consumer.getone() == msg


async def test_latest_reads_what_comes_after_the_start(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with make_consumer(cluster, "my_topic", auto_offset_reset="latest") as consumer:
        await consumer.position(TopicPartition("my_topic", 0))
        cluster.log("my_topic", 0).append(b"new")
        assert (await consumer.getone()).value == b"new"


async def test_manual_assignment(cluster: FakeCluster) -> None:
    for partition in range(3):
        fill(cluster, partition, 1)
    consumer = make_consumer(cluster)
    first, second = TopicPartition("my_topic", 1), TopicPartition("my_topic", 2)
    consumer.assign([first, second])
    async with consumer:
        assert consumer.assignment() == {first, second}
        assert {(await consumer.getone()).partition for _ in range(2)} == {1, 2}
        with pytest.raises(IllegalStateError):
            consumer.subscribe(["my_topic"])


async def test_assign_and_seek_after_start(cluster: FakeCluster) -> None:
    fill(cluster, 0, 10)
    consumer = make_consumer(cluster, enable_auto_commit=False)
    await consumer.start()
    tp = TopicPartition("my_topic", 0)
    consumer.assign([tp])
    consumer.seek(tp, 7)
    async for msg in consumer:
        assert msg.offset == 7
        break
    await consumer.stop()


async def test_subscription_by_pattern(cluster: FakeCluster) -> None:
    consumer = make_consumer(cluster, metadata_max_age_ms=200)
    await consumer.start()
    consumer.subscribe(pattern="^MyGreatTopic-.*$")
    await cluster.create_topic("MyGreatTopic-1")
    cluster.log("MyGreatTopic-1").append(b"found")
    msg = await asyncio.wait_for(consumer.getone(), 20)
    assert (msg.topic, msg.value) == ("MyGreatTopic-1", b"found")
    assert consumer.subscription() == {"MyGreatTopic-1"}
    await consumer.stop()


async def test_flow_control(cluster: FakeCluster) -> None:
    for partition in range(3):
        fill(cluster, partition, 10)
    async with make_consumer(cluster, "my_topic") as consumer:
        tp = TopicPartition("my_topic", 1)
        msgs: dict[TopicPartition, list[Any]] = {}
        while not msgs:
            msgs = await consumer.getmany(tp, timeout_ms=1000)
        assert list(msgs) == [tp]
        highwater = consumer.highwater(tp)
        assert highwater == 10
        assert highwater - await consumer.position(tp) == 0
        assert consumer.last_poll_timestamp(tp) is not None


async def test_pause_and_resume(cluster: FakeCluster) -> None:
    async with make_consumer(cluster, "my_topic") as consumer:
        paused, other = TopicPartition("my_topic", 0), TopicPartition("my_topic", 1)
        consumer.pause(paused)
        assert consumer.paused() == {paused}
        fill(cluster, 0, 1)
        fill(cluster, 1, 1)
        assert list(await consumer.getmany(timeout_ms=10_000)) == [other]
        consumer.resume(paused)
        assert consumer.paused() == set()
        assert list(await consumer.getmany(timeout_ms=10_000)) == [paused]


async def test_offsets(cluster: FakeCluster) -> None:
    log = cluster.log("my_topic", 0)
    log.append(b"old", timestamp_ms=1_000)
    log.append(b"new", timestamp_ms=2_000)
    tp = TopicPartition("my_topic", 0)
    async with make_consumer(cluster, "my_topic") as consumer:
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 2}
        found = await consumer.offsets_for_times({tp: 1_500})
        assert found == {tp: (1, 2_000)}
        assert await consumer.offsets_for_times({tp: 9_000}) == {tp: None}
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 2
        await consumer.seek_to_beginning(tp)
        assert await consumer.position(tp) == 0


async def test_topics_and_partitions(cluster: FakeCluster) -> None:
    await cluster.create_topic("other")
    async with make_consumer(cluster, "my_topic") as consumer:
        assert await consumer.topics() == {"my_topic", "other"}
        assert consumer.partitions_for_topic("my_topic") == {0, 1, 2}


async def test_partitions_of_any_topic_before_a_subscription(cluster: FakeCluster) -> None:
    # To assign partitions by hand, programs ask which there are.
    async with make_consumer(cluster) as consumer:
        assert consumer.partitions_for_topic("my_topic") == {0, 1, 2}


async def test_own_offset_reset(cluster: FakeCluster) -> None:
    fill(cluster, 0, 5)
    cluster.log("my_topic", 0).delete_before(3)
    tp = TopicPartition("my_topic", 0)
    consumer = make_consumer(cluster, auto_offset_reset="none")
    await consumer.start()
    consumer.assign([tp])
    consumer.seek(tp, 1)
    try:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            while True:
                await consumer.getmany(timeout_ms=1000)
        tps = caught.value.args[0].keys()
        assert list(tps) == [tp]
        await consumer.seek_to_beginning(*tps)
        assert (await consumer.getone()).offset == 3
    finally:
        await consumer.stop()


async def test_read_committed(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    tp = TopicPartition("my_topic", 0)
    async with make_consumer(cluster, "my_topic", isolation_level="read_committed") as consumer:
        await consumer.getone()
        assert consumer.last_stable_offset(tp) == 3
        assert (await consumer.end_offsets([tp]))[tp] == 3
    async with make_consumer(cluster, "my_topic") as consumer:
        await consumer.getone()
        assert consumer.last_stable_offset(tp) == -1


async def test_names_of_the_manual() -> None:
    assert aiokafka.errors.InvalidMessageError
    assert aiokafka.structs.RecordMetadata
    assert aiokafka.abc.AbstractTokenProvider
