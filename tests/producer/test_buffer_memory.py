"""Buffer memory: bounded, given out in the order of asking, given back."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosed,
)
from aiokafka.producer.message_accumulator import BufferMemory
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.structs import RecordMetadata
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.support.producers import TOPIC, new_producer, results, values

SMALL = {"buffer_memory": 20_000, "max_batch_size": 2000}


async def fill(producer: AIOKafkaProducer) -> list[asyncio.Future[RecordMetadata]]:
    """Send until the next `send` would have to wait."""
    futures = []
    while producer.buffer_available_bytes > 3000:
        futures.append(await producer.send(TOPIC, b"x" * 100, partition=0))
    return futures


async def test_memory_is_bounded_while_the_broker_is_silent(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            await producer.send(TOPIC, b"x" * 100, partition=0)
            sent += 1

    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        async with new_producer(cluster, **SMALL) as producer:
            task = asyncio.create_task(send())
            await held.wait()
            seen = -1
            while seen != sent:
                seen = sent
                await asyncio.sleep(0.01)
            assert 0 < sent < 200
            task.cancel()
            release.set()
    assert len(values(cluster)) == sent


async def test_send_fails_after_max_block(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster, max_block_ms=50, **SMALL) as producer:
            futures = await fill(producer)
            with pytest.raises(KafkaTimeoutError, match="buffer_memory"):
                await producer.send(TOPIC, b"x" * 10_000, partition=0)
            release.set()
            await results(futures)
            await producer.send_and_wait(TOPIC, b"x" * 10_000, partition=0)
            assert producer.buffer_available_bytes == SMALL["buffer_memory"]


async def test_memory_is_given_in_the_order_of_asking(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    order: list[int] = []

    async def send(number: int, size: int) -> None:
        await producer.send(TOPIC, b"x" * size, partition=0)
        order.append(number)

    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster, **SMALL) as producer:
            await fill(producer)
            sizes = [15_000, 10, 8000, 10, 10]
            tasks = []
            for number, size in enumerate(sizes):
                tasks.append(asyncio.create_task(send(number, size)))
                await asyncio.sleep(0)
            assert order == []
            release.set()
            await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


async def test_a_cancelled_waiter_makes_room_for_the_next(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster, **SMALL) as producer:
            futures = await fill(producer)
            large = asyncio.create_task(producer.send(TOPIC, b"L" * 15_000, partition=0))
            await asyncio.sleep(0)
            small = asyncio.create_task(producer.send(TOPIC, b"s", partition=0))
            await asyncio.sleep(0)
            large.cancel()
            await asyncio.wait([large])
            futures.append(await small)
            release.set()
            await results(futures)
    assert b"L" * 15_000 not in values(cluster)
    assert values(cluster)[-1] == b"s"


async def test_waiters_hear_of_stop(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        producer = new_producer(cluster, **SMALL)
        await producer.start()
        await fill(producer)
        waiting = asyncio.create_task(producer.send(TOPIC, b"x" * 10_000, partition=0))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(producer.stop())
        with pytest.raises(ProducerClosed):
            await waiting
        release.set()
        await stopping


async def test_a_record_larger_than_all_memory(cluster: FakeCluster) -> None:
    async with new_producer(cluster, buffer_memory=10_000) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="buffer_memory"):
            await producer.send(TOPIC, b"x" * 20_000)


async def test_memory_comes_back_after_failures(cluster: FakeCluster) -> None:
    options = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000}
    async with new_producer(cluster, **options, **SMALL) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        await cluster.stop_broker(0)
        futures = await fill(producer)
        assert all(isinstance(one, KafkaTimeoutError) for one in await results(futures))
        assert producer.buffer_available_bytes == SMALL["buffer_memory"]


async def test_what_waits_can_be_dropped(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with new_producer(cluster, **SMALL) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        with cluster.intercept(ProduceRequest, Hold(release)) as held:
            sent = await producer.send(TOPIC, b"sent", partition=0)
            await held.wait()
            futures = await fill(producer)
            producer.abort_buffered()
            found = await results(futures)
            release.set()
            await sent
        assert any(isinstance(one, KafkaError) for one in found)
        assert producer.buffer_available_bytes == SMALL["buffer_memory"]
        await producer.send_and_wait(TOPIC, b"last", partition=0)
    assert values(cluster)[0] == b"first"
    assert values(cluster)[1] == b"sent"
    assert values(cluster)[-1] == b"last"
    written = [one for one in found if not isinstance(one, BaseException)]
    assert len(values(cluster)) == 3 + len(written)


async def test_a_loop_of_sends_lets_others_run(cluster: FakeCluster) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        task = asyncio.create_task(count())
        turns = 0
        for _ in range(10_000):
            await producer.send(TOPIC, b"x" * 100, partition=0)
        assert turns > 5
        task.cancel()


async def test_default_timestamp_is_now(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        before = int(time.time() * 1000)
        metadata = await producer.send_and_wait(TOPIC, b"v")
    assert metadata.timestamp is not None
    assert before <= metadata.timestamp <= int(time.time() * 1000)


async def test_memory_that_is_given_back_in_the_turn_of_the_deadline() -> None:
    """As when the program has stood still: it is the call's turn, and the next one's after it."""
    loop = asyncio.get_running_loop()
    memory = BufferMemory(loop, 1000)
    memory.allocate(1000)
    waiting = asyncio.create_task(memory.wait(500, loop.time()))
    await asyncio.sleep(0)
    memory.release(1000)
    await waiting
    await asyncio.sleep(0)
    assert not memory.is_contended


async def test_a_call_that_is_refused_in_the_turn_of_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    memory = BufferMemory(loop, 1000)
    memory.allocate(1000)
    waiting = asyncio.create_task(memory.wait(500, loop.time()))
    await asyncio.sleep(0)
    memory.refuse_waiters(lambda: ProducerClosed("stopped"))
    with pytest.raises(ProducerClosed):
        await waiting


async def test_a_split_lets_no_call_overtake_those_that_wait(cluster: FakeCluster) -> None:
    """The parts need less memory than the whole. That was free for any call but the first one."""
    payloads = [b"x" * 100] * 50
    async with new_producer(cluster, buffer_memory=100_000) as producer:
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1)
        release = asyncio.Event()
        for payload in payloads:
            await producer.send(TOPIC, payload, partition=0)
        large = asyncio.ensure_future(producer.send(TOPIC, b"y" * 90_000, partition=0))
        with cluster.intercept(ProduceRequest, Hold(release)) as held:
            await held.wait()
            small = asyncio.ensure_future(producer.send(TOPIC, b"small", partition=0))
            for _ in range(10):
                await asyncio.sleep(0)
            release.set()
            await asyncio.gather(large, small)
    assert values(cluster) == [*payloads, b"y" * 90_000, b"small"]
