"""Batches that users fill, with records or with rows from columns."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalStateError, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.structs import RecordMetadata
from aiokafka.testing import Cut, FakeCluster, Hold
from tests.record.samples import Item
from tests.support.producers import TOPIC, new_producer, numbers, values
from tests.support.rows import in_order, source

# -- Batches that users make themselves


def fill(batch: BatchBuilder, count: int = 10) -> None:
    for number in range(count):
        assert batch.append(key=None, value=b"%d" % number, timestamp=1000 + number) is not None


async def test_a_batch_arrives_whole(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"before", partition=1)
        batch = producer.create_batch()
        fill(batch)
        batch.close()
        metadata = await (await producer.send_batch(batch, TOPIC, partition=1))
    assert (metadata.offset, metadata.partition, metadata.timestamp) == (1, 1, 1000)
    assert values(cluster, 1) == [b"before", *numbers(10)]
    assert len(cluster.log(TOPIC, 1).batches) == 2


async def test_batches_take_records_with_neither_key_nor_value_and_send_does_not(
    cluster: FakeCluster,
) -> None:
    """As in aiokafka, where `append` has no defaults for them, and `send` has."""
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        assert batch.append(key=None, value=None, timestamp=1000) is not None
        await (await producer.send_batch(batch, TOPIC, partition=1))
        with pytest.raises(AssertionError, match="Need at least one: key or value"):
            await producer.send(TOPIC, partition=1)
    assert [(r.key, r.value) for r in cluster.log(TOPIC, 1).records()] == [(None, None)]


async def test_what_append_tells(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=200) as producer:
        batch = producer.create_batch()
        first = batch.append(key=b"k", value=b"v", timestamp=77, headers=[("h", b"1")])
        assert first is not None
        assert (first.offset, first.timestamp, first.crc) == (0, 77, None)
        second = batch.append(key=None, value=b"v", timestamp=None)
        assert second is not None and second.offset == 1 and second.timestamp > 77
        assert batch.size() == 61 + first.size + second.size
        assert (batch.record_count(), batch.closed()) == (2, False)
        batch.close()
        assert batch.append(key=None, value=b"x", timestamp=None) is None
        assert batch.closed()


async def test_a_full_batch_is_closed(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=200) as producer:
        batch = producer.create_batch()
        while batch.append(key=None, value=b"x" * 30, timestamp=None) is not None:
            assert not batch.closed()
        assert batch.closed()
        # A smaller one that would fit does not overtake what did not.
        assert batch.append(key=None, value=b"small", timestamp=None) is None
        future = await producer.send_batch(batch, TOPIC, partition=0)
        await producer.send_and_wait(TOPIC, b"after", partition=0)
        await future
    assert values(cluster) == [b"x" * 30] * 3 + [b"after"]
    (first, _) = cluster.log(TOPIC).batches
    assert first.record_count == 3


async def test_a_record_larger_than_a_batch_fits_alone(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=100) as producer:
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"x" * 1000, timestamp=None) is not None
        await (await producer.send_batch(batch, TOPIC, partition=0))
    assert values(cluster) == [b"x" * 1000]


async def test_serializers_are_applied(cluster: FakeCluster) -> None:
    async with new_producer(
        cluster, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n
    ) as producer:
        batch = producer.create_batch()
        batch.append(key="k", value=5, timestamp=None)
        await (await producer.send_batch(batch, TOPIC, partition=0))
    (record,) = cluster.log(TOPIC, 0).records()
    assert (record.key, record.value) == (b"k", b"5")


async def test_an_open_batch_takes_records_of_send(cluster: FakeCluster) -> None:
    async with new_producer(cluster, linger_ms=20) as producer:
        batch = producer.create_batch()
        fill(batch, 3)
        whole = await producer.send_batch(batch, TOPIC, partition=0)
        single = await producer.send(TOPIC, b"more", partition=0, timestamp_ms=5)
        assert (await whole).offset == 0
        metadata = await single
    assert (metadata.offset, metadata.timestamp) == (3, 5)
    assert values(cluster) == [b"0", b"1", b"2", b"more"]
    assert len(cluster.log(TOPIC, 0).batches) == 1


async def test_a_submitted_batch_is_closed_for_its_maker(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        fill(batch)
        await producer.send_batch(batch, TOPIC, partition=0)
        assert batch.append(key=None, value=b"late", timestamp=None) is None
        with pytest.raises(IllegalStateError, match="sent already"):
            await producer.send_batch(batch, TOPIC, partition=0)
    assert values(cluster) == numbers(10)


async def test_batches_keep_their_order_among_records(cluster: FakeCluster) -> None:
    expected = []
    async with new_producer(cluster, max_batch_size=300) as producer:
        for round_ in range(20):
            for number in range(5):
                expected.append(b"r%d-%d" % (round_, number))
                await producer.send(TOPIC, expected[-1], partition=0)
            batch = producer.create_batch()
            for number in range(5):
                expected.append(b"b%d-%d" % (round_, number))
                batch.append(key=None, value=expected[-1], timestamp=None)
            batch.close()
            await producer.send_batch(batch, TOPIC, partition=0)
    assert values(cluster) == expected


async def test_many_batches_with_lost_answers(cluster: FakeCluster) -> None:
    hits = 0

    def lose(request: ProduceRequest, context: object) -> Cut | None:
        nonlocal hits
        hits += 1
        return Cut(handled=True) if hits % 3 == 0 else None

    cluster.intercept(ProduceRequest, lose)
    async with new_producer(cluster) as producer:
        futures = []
        for number in range(30):
            batch = producer.create_batch()
            batch.append(key=None, value=b"%d" % number, timestamp=None)
            futures.append(await producer.send_batch(batch, TOPIC, partition=0))
        found = await asyncio.gather(*futures)
    assert values(cluster) == numbers(30)
    assert [metadata.offset for metadata in found] == list(range(30))


async def test_wrong_batches(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_request_size=1000) as producer:
        with pytest.raises(ValueError, match="empty"):
            await producer.send_batch(producer.create_batch(), TOPIC, partition=0)
        with pytest.raises(TypeError, match="create_batch"):
            await producer.send_batch([b"v"], TOPIC, partition=0)  # type: ignore[arg-type]
        batch = producer.create_batch()
        fill(batch)
        with pytest.raises(ValueError, match="partition 9"):
            await producer.send_batch(batch, TOPIC, partition=9)
        large = producer.create_batch()
        large.append(key=None, value=b"x" * 1000, timestamp=None)
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
            await producer.send_batch(large, TOPIC, partition=0)
        await (await producer.send_batch(batch, TOPIC, partition=0))
    assert values(cluster) == numbers(10)


async def test_a_batch_too_large_for_the_broker_fails() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 500})
        async with new_producer(cluster) as producer:
            batch = producer.create_batch()
            fill(batch, 100)
            with pytest.raises(MessageSizeTooLargeError):
                await (await producer.send_batch(batch, TOPIC, partition=0))
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert values(cluster) == [b"v"]


async def test_a_batch_waits_for_memory_and_can_be_sent_later(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster, buffer_memory=10_000, max_block_ms=50) as producer:
            future = await producer.send(TOPIC, b"x" * 6000, partition=0)
            batch = producer.create_batch()
            batch.append(key=None, value=b"y" * 6000, timestamp=None)
            with pytest.raises(KafkaTimeoutError):
                await producer.send_batch(batch, TOPIC, partition=0)
            release.set()
            await future
            await (await producer.send_batch(batch, TOPIC, partition=0))
    assert values(cluster) == [b"x" * 6000, b"y" * 6000]


# -- without a partition


async def send_batch_somewhere(producer: AIOKafkaProducer, count: int = 3) -> RecordMetadata:
    batch = producer.create_batch()
    fill(batch, count)
    batch.close()
    return await (await producer.send_batch(batch, TOPIC))


async def test_a_batch_without_a_partition_gets_one(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        found = [await send_batch_somewhere(producer) for _ in range(40)]
        batch = producer.create_batch()
        fill(batch)
        last = await (await producer.send_batch(batch, TOPIC, partition=None))
    used = {metadata.partition for metadata in found}
    assert used == {0, 1, 2}, "by turns, as records without a key"
    for partition in used:
        expected = numbers(3) * sum(metadata.partition == partition for metadata in found)
        expected += numbers(10) if last.partition == partition else []
        assert values(cluster, partition) == expected


async def test_the_partitioner_is_asked_for_a_batch(cluster: FakeCluster) -> None:
    asked = []

    def partitioner(key: bytes | None, every: list[int], available: list[int]) -> int:
        asked.append((key, every, available))
        return 2

    async with new_producer(cluster, partitioner=partitioner) as producer:
        assert (await send_batch_somewhere(producer)).partition == 2
    assert asked == [(None, [0, 1, 2], [0, 1, 2])]
    assert values(cluster, 2) == numbers(3)


async def test_the_partition_of_a_batch_is_given_by_name(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        fill(batch)
        with pytest.raises(TypeError, match="positional"):
            await producer.send_batch(batch, TOPIC, 1)  # type: ignore[misc]
        assert not batch.is_sent


# -- A user's own batch takes rows that are columns


RECORDS = [Item(1000 + n, b"k%d" % n, b"v" * 50, (("h", b"1"),)) for n in range(100)]


async def test_rows_are_sent(cluster: FakeCluster) -> None:
    rows, order = source(RECORDS), in_order(100)
    async with new_producer(cluster, max_batch_size=2000) as producer:
        start = batches = 0
        while start < 100:
            batch = producer.create_batch()
            before, start = start, batch.append_rows(rows, order, start)
            assert batch.record_count() == start - before > 0
            assert batch.size() <= 2000
            assert batch.first_timestamp == 1000 + before
            sent = await producer.send_batch(batch, TOPIC, partition=0)
            assert (await sent).timestamp == 1000 + before
            batches += 1
    assert batches > 3
    found = [Item(r.timestamp, r.key, r.value, r.headers) for r in cluster.log(TOPIC, 0).records()]
    assert found == RECORDS


async def test_a_closed_batch_takes_no_rows(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        assert batch.append_rows(source(RECORDS), in_order(100), 10, 20) == 20
        batch.close()
        assert batch.append_rows(source(RECORDS), in_order(100), 20) == 20
        assert batch.record_count() == 10


async def test_rows_follow_records(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=7, key=None, value=b"first")
        batch.append_rows(source(RECORDS), in_order(2))
        assert batch.first_timestamp == 7
        await (await producer.send_batch(batch, TOPIC, partition=0))
    assert [r.value for r in cluster.log(TOPIC, 0).records()] == [b"first", b"v" * 50, b"v" * 50]
