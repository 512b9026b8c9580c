"""Records arrive as they were sent, where they should, in order."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.partitioner import DefaultPartitioner, RoundRobinPartitioner, murmur2
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.record.compression import CODECS, has_codec
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster, Hold
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values


async def test_metadata_of_a_record(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=1)
        metadata = await producer.send_and_wait(TOPIC, b"second", partition=1, timestamp_ms=12345)
    assert metadata.topic_partition == TopicPartition(TOPIC, 1)
    assert (metadata.topic, metadata.partition, metadata.offset) == (TOPIC, 1, 1)
    assert (metadata.timestamp, metadata.timestamp_type) == (12345, 0)
    assert metadata.log_start_offset == 0


async def test_every_record_of_a_batch_has_its_own_metadata(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        futures = [
            await producer.send(TOPIC, b"v", partition=0, timestamp_ms=1000 + number)
            for number in range(50)
        ]
        found = await asyncio.gather(*futures)
    assert [metadata.offset for metadata in found] == list(range(50))
    assert [metadata.timestamp for metadata in found] == list(range(1000, 1050))


async def test_append_time_is_told(cluster: FakeCluster) -> None:
    await cluster.create_topic("timed", config={"message.timestamp.type": "LogAppendTime"})
    async with new_producer(cluster) as producer:
        metadata = await producer.send_and_wait("timed", b"v", timestamp_ms=5)
    assert metadata.timestamp_type == 1
    assert metadata.timestamp is not None and metadata.timestamp > 5


async def test_key_value_headers_timestamp_arrive(cluster: FakeCluster) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b""), ("ä", b"2")]
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v", b"k", 0, 77, headers)
        await producer.send_and_wait(TOPIC, None, b"tombstone", partition=0)
        await producer.send_and_wait(TOPIC, bytearray(b"x"), memoryview(b"y"), partition=0)
    records = cluster.log(TOPIC, 0).records()
    assert [(r.key, r.value) for r in records] == [
        (b"k", b"v"),
        (b"tombstone", None),
        (b"y", b"x"),
    ]
    assert records[0].timestamp == 77
    assert records[0].headers == tuple(headers)


@pytest.mark.parametrize(
    "headers",
    [
        (("a", b"1"), ("b", b"2")),
        [["a", b"1"], ["b", memoryview(b"2")]],
        {"a": b"1", "b": b"2"}.items(),
    ],
)
async def test_headers_are_any_iterable_of_pairs(cluster: FakeCluster, headers: Any) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0, headers=headers)
        await producer.send_and_wait(TOPIC, b"v", partition=0, headers=iter(headers))
    for record in cluster.log(TOPIC, 0).records():
        assert record.headers == (("a", b"1"), ("b", b"2"))


PAIRS = [("a", b"1"), ("b", None)]
MAKE_HEADERS: dict[str, Callable[[], Any]] = {
    "list": lambda: list(PAIRS),
    "tuple": lambda: tuple(PAIRS),
    "items": lambda: dict(PAIRS).items(),
    "generator": lambda: (pair for pair in PAIRS),
    "zip": lambda: zip(*map(list, zip(*PAIRS, strict=True)), strict=True),
}


@pytest.mark.parametrize("make", MAKE_HEADERS.values(), ids=list(MAKE_HEADERS))
async def test_headers_arrive_on_every_way(cluster: FakeCluster, make: Callable[[], Any]) -> None:
    """An iterator can be read once, whatever a record has to wait for."""
    release = asyncio.Event()
    async with new_producer(cluster, buffer_memory=4000) as producer:
        await producer.send_and_wait(TOPIC, b"new", partition=0, headers=make())
        await producer.send(TOPIC, b"known", partition=0, headers=make())
        await producer.send(TOPIC, b"key", b"k", partition=0, headers=make())
        await producer.flush()
        await producer.client.force_metadata_update()
        await producer.send(TOPIC, b"after a refresh", partition=0, headers=make())
        await producer.flush()
        with cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            await producer.send(TOPIC, b"x" * 2000, partition=1)
            await held.wait()
            full = asyncio.create_task(
                producer.send(TOPIC, b"y" * 2000, partition=0, headers=make())
            )
            await asyncio.sleep(0)
            assert not full.done()
            release.set()
            await full
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"batch", timestamp=None, headers=make())
        await (await producer.send_batch(batch, TOPIC, partition=0))
    records = cluster.log(TOPIC, 0).records()
    assert [record.headers for record in records] == [tuple(PAIRS)] * 6


async def test_a_timestamp_may_be_a_float(cluster: FakeCluster) -> None:
    given = (0.0, 12.9, 1_700_000_000_123.7)
    async with new_producer(cluster) as producer:
        for partition in (0, 1):
            # The first is sent the slow way, since the topic is new, and the others are not.
            found = [await producer.send_and_wait(TOPIC, b"v", b"k", partition, at) for at in given]
            assert [metadata.timestamp for metadata in found] == [int(at) for at in given]
        batch = producer.create_batch()
        for at in given:
            added = batch.append(key=None, value=b"v", timestamp=at)
            assert added is not None and added.timestamp == int(at)
        await (await producer.send_batch(batch, TOPIC, partition=2))
    for partition in range(3):
        records = cluster.log(TOPIC, partition).records()
        assert [record.timestamp for record in records] == [int(at) for at in given]


async def test_serializers_run_once_for_each_record(cluster: FakeCluster) -> None:
    calls: list[Any] = []

    def serialize(thing: Any) -> bytes | None:
        calls.append(thing)
        return None if thing is None else str(thing).encode()

    async with new_producer(
        cluster, key_serializer=serialize, value_serializer=serialize
    ) as producer:
        await producer.send_and_wait(TOPIC, 1, key=2, partition=0)
        await producer.send_and_wait(TOPIC, 3, partition=0)
    assert calls == [2, 1, None, 3]
    assert [(r.key, r.value) for r in cluster.log(TOPIC, 0).records()] == [
        (b"2", b"1"),
        (None, b"3"),
    ]


async def test_a_serializer_that_raises_sends_nothing(cluster: FakeCluster) -> None:
    def serialize(thing: Any) -> bytes:
        raise LookupError(thing)

    async with new_producer(cluster, value_serializer=serialize) as producer:
        with pytest.raises(LookupError):
            await producer.send(TOPIC, 1, partition=0)
        await producer.flush()
    assert values(cluster) == []


@pytest.mark.parametrize("call", ["send", "send_and_wait"])
async def test_neither_key_nor_value_is_refused_whatever_serializers_do(
    cluster: FakeCluster, call: str
) -> None:
    """JSON makes "null" of what is mostly a forgotten argument."""

    def serialize(thing: Any) -> bytes:
        return json.dumps(thing).encode()

    async with new_producer(
        cluster, key_serializer=serialize, value_serializer=serialize
    ) as producer:
        with pytest.raises(AssertionError, match="Need at least one: key or value"):
            await getattr(producer, call)(TOPIC, partition=0)
        await producer.send_and_wait(TOPIC, key="k", partition=0)
    assert [(r.key, r.value) for r in cluster.log(TOPIC, 0).records()] == [(b'"k"', b"null")]


@pytest.mark.parametrize("codec", ["none", *CODECS])
async def test_every_codec(cluster: FakeCluster, codec: str) -> None:
    if codec != "none" and not has_codec(codec):
        pytest.skip(f"no package for {codec}")
    payloads = [b"%d " % number * 50 for number in range(500)]
    async with new_producer(cluster, compression_type=codec, max_batch_size=4096) as producer:
        await results(await send_all(producer, payloads))
    assert values(cluster) == payloads
    assert {batch.codec for batch in cluster.log(TOPIC, 0).batches} == {CODECS.get(codec, 0)}


async def test_compressed_batches_fill_up_to_the_batch_size(cluster: FakeCluster) -> None:
    async with new_producer(cluster, compression_type="gzip", max_batch_size=4096) as producer:
        for _ in range(3):
            await results(await send_all(producer, [b"0123456789" * 10] * 1000))
    sizes = [len(batch.data) for batch in cluster.log(TOPIC, 0).batches]
    assert max(sizes) <= 4096
    # Uncompressed they would take one batch for every 36 records.
    assert len(sizes) < 3000 / 36 / 2


async def test_level_is_used(cluster: FakeCluster) -> None:
    payloads = [b"%d-%d " % (number, number * 7919) * 20 for number in range(200)]
    sizes = []
    for partition, level in enumerate((1, 9)):
        async with new_producer(
            cluster, compression_type="gzip", compression_level=level, max_batch_size=100_000
        ) as producer:
            await results(await send_all(producer, payloads, partition))
        sizes.append(sum(len(batch.data) for batch in cluster.log(TOPIC, partition).batches))
    assert sizes[0] > sizes[1]


# -- partitions


async def test_keys_go_where_java_puts_them(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for number in range(50):
            key = b"key-%d" % number
            metadata = await producer.send_and_wait(TOPIC, b"v", key=key)
            assert metadata.partition == (murmur2(key) & 0x7FFFFFFF) % 3


async def test_records_without_key_fill_batches_and_spread_evenly(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=1000) as producer:
        futures = await send_all(producer, [b"x" * 80] * 6000, partition=None)
        await results(futures)
    batches = [batch for number in range(3) for batch in cluster.log(TOPIC, number).batches]
    counts = [len(values(cluster, number)) for number in range(3)]
    assert sum(counts) == 6000
    assert min(counts) > 1500
    # Ten records fill a batch; at random every turn of the sender would make three small ones.
    assert 6000 / len(batches) > 8


@pytest.mark.real_time
async def test_records_without_key_avoid_a_slow_broker() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        release = asyncio.Event()
        cluster.intercept(ProduceRequest, Hold(release), broker=0)
        async with new_producer(cluster, max_batch_size=1000) as producer:
            futures = []
            for _ in range(3000):
                futures.append(await producer.send(TOPIC, b"x" * 80))
                await asyncio.sleep(0)
            release.set()
            found = Counter(metadata.partition for metadata in await asyncio.gather(*futures))
    assert found[1] > 2 * found[0]


async def test_records_without_key_avoid_partitions_without_leader() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        await cluster.stop_broker(0)
        async with new_producer(cluster, max_batch_size=200) as producer:
            await results(await send_all(producer, [b"x" * 80] * 100, partition=None))
        assert len(values(cluster, 1)) == 100


async def test_round_robin(cluster: FakeCluster) -> None:
    async with new_producer(cluster, partitioner=RoundRobinPartitioner()) as producer:
        for _ in range(30):
            await producer.send(TOPIC, b"v", key=b"same")
    assert [len(values(cluster, number)) for number in range(3)] == [10, 10, 10]


async def test_any_callable_is_a_partitioner(cluster: FakeCluster) -> None:
    calls = []

    def choose(key: bytes | None, everything: list[int], available: list[int]) -> int:
        calls.append((key, everything, available))
        return everything[-1]

    async with new_producer(cluster, partitioner=choose, key_serializer=str.encode) as producer:
        metadata = await producer.send_and_wait(TOPIC, b"v", key="k")
        await producer.send_and_wait(TOPIC, b"v", key="k", partition=0)
    assert metadata.partition == 2
    assert calls == [(b"k", [0, 1, 2], [0, 1, 2])]


async def test_a_subclass_of_the_default_partitioner_is_asked(cluster: FakeCluster) -> None:
    class Last(DefaultPartitioner):
        @classmethod
        def __call__(cls, key: Any, all_partitions: Any, available: Any) -> int:
            return int(max(all_partitions))

    async with new_producer(cluster, partitioner=Last()) as producer:
        assert (await producer.send_and_wait(TOPIC, b"v")).partition == 2


async def test_partitions_for(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        assert await producer.partitions_for(TOPIC) == {0, 1, 2}


async def test_new_partitions_are_used_when_asked_for(cluster: FakeCluster) -> None:
    await cluster.create_topic("growing", partitions=1)
    async with new_producer(cluster) as producer:
        await producer.send_and_wait("growing", b"v", partition=0)
        await cluster.delete_topic("growing")
        await cluster.create_topic("growing", partitions=2)
        metadata = await producer.send_and_wait("growing", b"v", partition=1)
    assert metadata.partition == 1


# -- flow


async def test_order_within_a_partition(cluster: FakeCluster) -> None:
    payloads = numbers(5000)
    async with new_producer(cluster, max_batch_size=500) as producer:
        await results(await send_all(producer, payloads))
    assert values(cluster) == payloads


async def test_five_requests_are_in_flight(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster, max_batch_size=200) as producer:
            futures = await send_all(producer, [b"x" * 80] * 100)
            # The fake handles one request of a connection at a time, as a broker does.
            await cluster.wait_for(lambda: cluster.count(ProduceRequest) >= 1)
            release.set()
            await results(futures)
    assert values(cluster) == [b"x" * 80] * 100


async def test_linger_collects_records(cluster: FakeCluster) -> None:
    async with new_producer(cluster, linger_ms=400) as producer:
        futures = []
        for number in range(5):
            futures.append(await producer.send(TOPIC, b"%d" % number, partition=0))
            await asyncio.sleep(0.001)
        await results(futures)
    assert len(cluster.log(TOPIC, 0).batches) == 1


async def test_flush_cuts_linger_short(cluster: FakeCluster) -> None:
    async with new_producer(cluster, linger_ms=600_000, delivery_timeout_ms=900_000) as producer:
        future = await producer.send(TOPIC, b"v", partition=0)
        await producer.flush()
        assert future.done()
        await producer.send(TOPIC, b"w", partition=0)
    assert values(cluster) == [b"v", b"w"]


async def test_a_full_batch_does_not_linger(cluster: FakeCluster) -> None:
    async with new_producer(
        cluster, linger_ms=600_000, delivery_timeout_ms=900_000, max_batch_size=200
    ) as producer:
        futures = await send_all(producer, [b"x" * 80] * 3)
        await futures[0]
        assert not futures[2].done()


async def test_a_record_that_fills_a_batch_does_not_linger(cluster: FakeCluster) -> None:
    options = {"linger_ms": 600_000, "delivery_timeout_ms": 900_000, "max_batch_size": 200}
    async with new_producer(cluster, **options) as producer, timeout(10):
        await producer.send_and_wait(TOPIC, b"x" * 200, partition=0)
        await producer.send_and_wait(TOPIC, b"x" * 200, key=b"k")
        await producer.send_and_wait(TOPIC, b"x" * 200)


async def test_requests_are_capped(cluster: FakeCluster) -> None:
    await cluster.create_topic("wide", partitions=50)
    async with new_producer(cluster, max_request_size=10_000, linger_ms=5) as producer:
        for number in range(50):
            await producer.send("wide", b"x" * 3000, partition=number)
    sizes = [
        sum(len(part.records) for topic in seen.request.topic_data for part in topic.partition_data)
        for seen in cluster.requests(ProduceRequest)
    ]
    assert max(sizes) <= 10_000
    assert len(sizes) < 50


async def test_without_acknowledgement(cluster: FakeCluster) -> None:
    payloads = numbers(1000)
    async with new_producer(cluster, acks=0, max_batch_size=500) as producer:
        found = await results(await send_all(producer, payloads))
        assert found == [None] * 1000
        await cluster.wait_for(lambda: len(values(cluster)) == 1000)
    assert values(cluster) == payloads


async def test_topic_ids_are_used(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
    (seen,) = cluster.requests(ProduceRequest)
    assert seen.version == 13


@pytest.mark.parametrize("version", ["0.9", "0.10.2", "0.11", "1.1", "2.1", "2.8", "3.9", "4.0"])
async def test_old_brokers(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic(TOPIC)
        for codec in ("none", "gzip"):
            async with new_producer(cluster, compression_type=codec) as producer:
                found = await results(await send_all(producer, numbers(100)))
            assert not [one for one in found if isinstance(one, BaseException)]
        assert values(cluster) == numbers(100) * 2


async def test_interleaved_tasks_lose_nothing(cluster: FakeCluster) -> None:
    async def work(name: int) -> None:
        for number in range(50):
            await producer.send_and_wait(TOPIC, b"%d-%d" % (name, number), key=b"%d" % name)

    async with new_producer(cluster) as producer:
        await asyncio.gather(*(work(name) for name in range(20)))
    for number in range(3):
        by_task: dict[bytes, list[int]] = {}
        for value in values(cluster, number):
            name, count = (value or b"").split(b"-")
            by_task.setdefault(name, []).append(int(count))
        assert all(counts == list(range(50)) for counts in by_task.values())
    assert sum(len(values(cluster, number)) for number in range(3)) == 1000
