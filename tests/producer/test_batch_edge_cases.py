"""What seldom happens on the way of a batch: it outgrows a request, has no leader, or the broker is
too old for it."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.record.batch import RecordBatchBuilder, SpareBuffers
from aiokafka.testing import Edit, Fail, FakeCluster, Hold, Silence
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values


async def test_a_batch_that_outgrows_a_request_is_split_before_it_is_sent(
    cluster: FakeCluster,
) -> None:
    """How well records compress is learnt from those before; these do not."""
    limit = 8_000
    easy = [b"x" * 100] * 3000
    hard = [random.Random(n).randbytes(100) for n in range(1000)]
    options = {"max_batch_size": limit, "max_request_size": limit, "compression_type": "gzip"}
    async with new_producer(cluster, linger_ms=20, **options) as producer:
        await results(await send_all(producer, easy))
        assert max(batch.record_count for batch in cluster.log(TOPIC, 0).batches) * 100 > limit
        cluster.forget_requests()
        found = await results(await send_all(producer, hard))
    assert values(cluster) == easy + hard
    assert [getattr(one, "offset", one) for one in found] == list(range(3000, 4000))
    sizes = [
        sum(len(part.records) for part in topic.partition_data)
        for seen in cluster.requests(ProduceRequest)
        for topic in seen.request.topic_data
    ]
    assert max(sizes) <= limit
    # Sequence numbers are given after the split, so that none is missing.
    assert len({batch.producer_epoch for batch in cluster.log(TOPIC, 0).batches}) == 1


async def test_many_small_batches_leave_when_the_application_pauses() -> None:
    """No batch is full, none is new since the event loop had its turn, and no answer is awaited:
    nothing else would send them."""
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, partitions=20)
        async with new_producer(cluster, max_batch_size=100_000) as producer, timeout(20):
            await producer.send_and_wait(TOPIC, b"first", partition=0)
            futures = [
                await producer.send(TOPIC, b"x" * 10_000, partition=number % 20)
                for number in range(30)
            ]
            assert len(await asyncio.gather(*futures)) == 30


# -- without a leader


def without_leader(response: MetadataResponse) -> None:
    for topic in response.topics:
        for part in topic.partitions:
            if part.partition_index == 1:
                part.leader_id, part.error_code = -1, 5


async def test_a_partition_that_never_had_a_leader(cluster: FakeCluster) -> None:
    options = {"delivery_timeout_ms": 300, "request_timeout_ms": 5000}
    async with new_producer(cluster, **options) as producer:
        with cluster.intercept(MetadataRequest, Edit(without_leader)):
            with pytest.raises(KafkaTimeoutError, match=f"{TOPIC}-1.*the partition has no leader"):
                await producer.send_and_wait(TOPIC, b"lost", partition=1)
        assert cluster.count(ProduceRequest) == 0


async def test_records_wait_for_the_first_leader(cluster: FakeCluster) -> None:
    async with new_producer(cluster, metadata_max_age_ms=600_000) as producer, timeout(20):
        with cluster.intercept(MetadataRequest, Edit(without_leader)) as answers:
            sent = await producer.send(TOPIC, b"v", partition=1)
            # It asks again and again; nothing else is a reason to.
            await answers.wait(answers.hits + 3)
            assert not sent.done()
        assert (await sent).offset == 0


async def test_a_broker_that_does_not_answer_in_time_is_named_as_the_reason(
    cluster: FakeCluster,
) -> None:
    options = {"delivery_timeout_ms": 200, "request_timeout_ms": 20_000}
    said = f"{TOPIC}-0.*the broker has not answered; it may have been written"
    producer = new_producer(cluster, **options)
    await producer.start()
    with cluster.intercept(ProduceRequest, Silence()):
        with pytest.raises(KafkaTimeoutError, match=said):
            await producer.send_and_wait(TOPIC, b"v", partition=0)
    await producer.stop(1)


# -- old brokers


async def test_headers_for_a_broker_without_them_fail_alone() -> None:
    async with FakeCluster(as_version="0.10.2") as cluster:
        await cluster.create_topic(TOPIC, partitions=3)
        async with new_producer(cluster, linger_ms=50) as producer:
            first = await producer.send(TOPIC, b"0", partition=0)
            headers = [("name", b"value")]
            second = await producer.send(TOPIC, b"1", partition=1, headers=headers)
            third = await producer.send(TOPIC, b"2", partition=2)
            found = await results([first, second, third])
            assert isinstance(found[1], IllegalArgumentError)
            # The partition goes on.
            await producer.send_and_wait(TOPIC, b"next", partition=1)
            # So does the broker, if nothing is left of a request.
            with pytest.raises(IllegalArgumentError, match="headers"):
                await producer.send_and_wait(TOPIC, b"3", partition=2, headers=headers)
            await producer.send_and_wait(TOPIC, b"4", partition=2)
        assert [values(cluster, number) for number in range(3)] == [[b"0"], [b"next"], [b"2", b"4"]]
        assert all(seen.request.topic_data for seen in cluster.requests(ProduceRequest))
        assert cluster.failures == []


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_zstd_for_a_broker_that_cannot_read_it(acks: str | int) -> None:
    async with FakeCluster(as_version="1.1") as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster, acks=acks, compression_type="zstd") as producer:
            for _ in range(2):
                with pytest.raises(IncompatibleBrokerVersion, match="compression_type='zstd'"):
                    await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert cluster.count(ProduceRequest) == 0


async def test_topics_without_an_id_are_named(cluster: FakeCluster) -> None:
    """The version that has only ids is of no use then, whatever else is in the request."""

    def forget_id(response: MetadataResponse) -> None:
        for topic in response.topics:
            if topic.name == "other":
                topic.topic_id = bytes(16)

    await cluster.create_topic("other")
    cluster.intercept(MetadataRequest, Edit(forget_id))
    async with new_producer(cluster, linger_ms=60_000) as producer:
        await producer.partitions_for("other")
        await producer.partitions_for(TOPIC)
        sent = [await producer.send("other", b"1"), await producer.send(TOPIC, b"2", partition=0)]
        await producer.flush()
        await asyncio.gather(*sent)
    (seen,) = cluster.requests(ProduceRequest)
    assert seen.version == 12
    assert values(cluster, topic="other") == [b"1"]
    assert values(cluster) == [b"2"]


# -- batches of the user


async def test_a_batch_of_the_user_that_nobody_acknowledges(cluster: FakeCluster) -> None:
    async with new_producer(cluster, acks=0) as producer:
        batch = producer.create_batch()
        for value in numbers(3):
            batch.append(key=None, value=value, timestamp=None)
        async with timeout(5):
            assert await (await producer.send_batch(batch, TOPIC, partition=0)) is None
        await cluster.wait_for(lambda: values(cluster) == numbers(3))


async def test_a_batch_of_the_user_is_never_split(cluster: FakeCluster) -> None:
    """Its future promises the offset of the first record, and that the others follow."""
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        for value in numbers(10):
            batch.append(key=None, value=value, timestamp=None)
        with cluster.intercept(ProduceRequest, Fail(10)):
            whole = await producer.send_batch(batch, TOPIC, partition=0)
            with pytest.raises(KafkaError, match="MessageSizeTooLarge"):
                async with timeout(5):
                    await whole
        assert cluster.count(ProduceRequest) == 1
        await producer.send_and_wait(TOPIC, b"next", partition=0)
    assert values(cluster) == [b"next"]


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_records_that_make_a_batch_of_the_user_too_large_are_split_off(
    codec: str | None,
) -> None:
    """It was left open, and small enough by itself: so are they."""
    theirs = [random.Random(number).randbytes(400) for number in range(9)]
    async with FakeCluster() as strict:
        await strict.create_topic(TOPIC, config={"max.message.bytes": 2000})
        async with new_producer(strict, linger_ms=50, compression_type=codec) as producer:
            batch = producer.create_batch()
            for value in numbers(3):
                batch.append(key=b"k", value=value, timestamp=7, headers=[("h", value)])
            sent = [await producer.send_batch(batch, TOPIC, partition=0)]
            sent += await send_all(producer, theirs)
            async with timeout(5):
                found = [await one for one in sent]
        records = strict.log(TOPIC, 0).records()
    assert [record.value for record in records] == numbers(3) + theirs
    assert [(r.key, r.timestamp, r.headers) for r in records[:3]] == [
        (b"k", 7, (("h", value),)) for value in numbers(3)
    ]
    assert [metadata.offset for metadata in found] == [0, *range(3, 12)]
    assert found[0].timestamp == 7


async def test_what_is_in_flight_when_a_partition_loses_its_leader() -> None:
    """Its response counts, though the partition has no leader meanwhile."""
    release = asyncio.Event()
    async with FakeCluster(brokers=2) as two:
        await two.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        async with new_producer(two) as producer, timeout(20):
            for partition in (0, 1):
                await producer.send_and_wait(TOPIC, b"0", partition=partition)
            with two.intercept(ProduceRequest, Hold(release), broker=1, times=1) as held:
                sent = await producer.send(TOPIC, b"1", partition=1)
                await held.wait()
                with two.intercept(MetadataRequest, Edit(without_leader)):
                    assert await producer.client.force_metadata_update()
                    release.set()
                    assert (await sent).offset == 1
                    later = await producer.send(TOPIC, b"2", partition=1)
                assert (await later).offset == 2
        assert values(two, 1) == numbers(3)


def test_a_batch_that_is_never_sent_does_not_count_for_ever_among_the_buffers() -> None:
    spare = SpareBuffers(150_000)
    spare.add(bytearray(100_000))
    batch = BatchBuilder(RecordBatchBuilder(size_limit=150_000, spare=spare))
    batch.append(timestamp=0, key=None, value=bytes(30_000))
    spare.add(bytearray(100_000))
    assert spare.take() is None  # the batch has the first one, and the second was too much
    del batch
    gc.collect()
    spare.add(bytearray(100_000))
    assert spare.take() is not None
