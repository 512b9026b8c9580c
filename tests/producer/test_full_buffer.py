"""A full buffer: who gets the memory that brokers make free, how much of it, and in which order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, ProducerClosed
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.producer.message_accumulator import BufferMemory
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values

BUFFER = 400_000
PAYLOAD = b"x" * 1000


class Waits(ProducerMetricsCollector):
    """Counts the calls that have waited for memory."""

    def __init__(self) -> None:
        self.count = 0

    def on_buffer_wait(self, **_: object) -> None:
        self.count += 1


@contextmanager
def silent_broker(cluster: FakeCluster) -> Iterator[Callable[[], None]]:
    """Answer no Produce request until the function is called that the block gets."""
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        yield release.set
        release.set()


async def until_all_wait(producer: AIOKafkaProducer, calls: int) -> None:
    """Wait until so many calls of `send` wait for memory."""
    while _waiting(producer) < calls:
        await asyncio.sleep(0)


def _waiting(producer: AIOKafkaProducer) -> float:
    (value,) = (m.value for m in producer.metrics() if m.name == "waiting-threads")
    return value


def tasks_of(count: int, send: Callable[[int], Awaitable[None]]) -> list[asyncio.Task[None]]:
    async def run(number: int) -> None:
        await send(number)

    return [asyncio.create_task(run(number)) for number in range(count)]


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False}, {"linger_ms": 5}])
async def test_tasks_that_have_got_memory_do_not_wait_for_each_record(
    cluster: FakeCluster, options: dict[str, object]
) -> None:
    waits = Waits()

    async def send(_: int) -> None:
        for _ in range(500):
            await producer.send(TOPIC, PAYLOAD, partition=0)

    async with new_producer(
        cluster, buffer_memory=BUFFER, metrics_collector=waits, **options
    ) as producer:
        with silent_broker(cluster) as speak:
            tasks = tasks_of(8, send)
            await until_all_wait(producer, 8)
            speak()
            await asyncio.gather(*tasks)
    assert 8 <= waits.count < 1000
    assert len(values(cluster)) == 4000


@pytest.mark.parametrize("count", [2, 16])
async def test_tasks_get_equal_shares(cluster: FakeCluster, count: int) -> None:
    sent = [0] * count

    async def send(number: int) -> None:
        while True:
            await producer.send(TOPIC, PAYLOAD, partition=0)
            sent[number] += 1

    async with new_producer(cluster, buffer_memory=BUFFER) as producer:
        with silent_broker(cluster) as speak:
            tasks = tasks_of(count, send)
            await until_all_wait(producer, count)
            sent[:] = [0] * count
            speak()
            while sum(sent) < 1000 * count:
                await asyncio.sleep(0)
            # In the same round a task has had its turn or not: a turn has room for 56 records.
            assert max(sent) - min(sent) <= 100
            await ended(tasks)


async def test_records_of_a_task_keep_their_order(cluster: FakeCluster) -> None:
    async def send(number: int) -> None:
        # Different sizes: small records would fit where a large one before them does not.
        for count in range(300):
            value = b"%d %d " % (number, count)
            await producer.send(TOPIC, value.ljust(100 + 3000 * (count % 3)), partition=0)

    async with new_producer(cluster, buffer_memory=100_000) as producer:
        with silent_broker(cluster) as speak:
            tasks = tasks_of(10, send)
            await until_all_wait(producer, 10)
            speak()
            await asyncio.gather(*tasks)
    found: dict[bytes, list[int]] = {}
    for value in values(cluster):
        assert value is not None
        task, count, *_ = value.split()
        found.setdefault(task, []).append(int(count))
    assert len(found) == 10
    assert all(counts == list(range(300)) for counts in found.values())


async def test_calls_of_one_task_that_wait_together_keep_their_order(cluster: FakeCluster) -> None:
    async with new_producer(cluster, buffer_memory=50_000) as producer:
        with silent_broker(cluster) as speak:
            sends = (producer.send(TOPIC, b"%1000d" % n, partition=0) for n in range(500))
            tasks = [asyncio.ensure_future(send) for send in sends]
            await until_all_wait(producer, 400)
            speak()
            await asyncio.gather(*tasks)
    assert values(cluster) == [b"%1000d" % n for n in range(500)]


async def test_a_cancelled_waiter_leaves_its_memory_to_others(cluster: FakeCluster) -> None:
    """In the turn in which it was granted, before, or later."""
    chosen = random.Random(3)
    sent: list[bytes] = []

    async def send(number: int) -> None:
        for count in range(200):
            value = b"%d %d " % (number, count)
            await producer.send(TOPIC, value.ljust(1000), partition=0)
            sent.append(value)

    async with new_producer(cluster, buffer_memory=60_000) as producer:
        with silent_broker(cluster) as speak:
            tasks = tasks_of(30, send)
            await until_all_wait(producer, 30)
            speak()
            for task in chosen.sample(tasks, 20):
                for _ in range(chosen.randrange(5)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await producer.flush()
        assert producer.buffer_available_bytes == 60_000
    assert sorted(value.rstrip() for value in values(cluster) if value) == sorted(
        value.rstrip() for value in sent
    )


async def test_deadlines_of_waiters_leave_nothing_behind(cluster: FakeCluster) -> None:
    async with new_producer(cluster, buffer_memory=60_000, max_block_ms=50) as producer:
        with silent_broker(cluster) as speak:
            sends = [producer.send(TOPIC, PAYLOAD, partition=0) for _ in range(100)]
            found = await asyncio.gather(*sends, return_exceptions=True)
            late = [one for one in found if isinstance(one, KafkaTimeoutError)]
            assert 40 < len(late) < 100
            speak()
            await producer.flush()
            assert producer.buffer_available_bytes == 60_000
            # Nobody waits any more: the next send takes no turn of the event loop.
            for _ in range(20):
                with pytest.raises(StopIteration):
                    producer.send(TOPIC, PAYLOAD, partition=0).send(None)
    assert len(values(cluster)) == 100 - len(late) + 20


async def test_stop_during_a_full_buffer(cluster: FakeCluster) -> None:
    sent = 0

    async def send(_: int) -> None:
        nonlocal sent
        while True:
            await producer.send(TOPIC, PAYLOAD, partition=0)
            sent += 1

    producer = new_producer(cluster, buffer_memory=60_000)
    await producer.start()
    with silent_broker(cluster) as speak:
        tasks = tasks_of(10, send)
        await until_all_wait(producer, 10)
        speak()
        while sent < 500:
            await asyncio.sleep(0)
        await producer.stop()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, ProducerClosed) for one in found)
    assert len(values(cluster)) == sent
    assert producer.buffer_available_bytes == 60_000


@pytest.mark.parametrize("seed", range(20))
async def test_memory_is_neither_lost_nor_granted_twice(seed: int) -> None:
    """Whatever comes together: grants, cancellations, deadlines, and memory given back."""
    chosen = random.Random(seed)
    loop = asyncio.get_running_loop()
    memory = BufferMemory(loop, 100_000)
    held: list[int] = []
    waits = 0

    async def allocate(_: int) -> None:
        nonlocal waits
        for _ in range(100):
            need = chosen.choice((100, 1000, 20_000, 50_000))
            if need > memory.allocatable:
                waits += 1
                try:
                    await memory.wait(need, loop.time() + chosen.choice((0.001, 60)))
                except KafkaTimeoutError:
                    continue
            memory.allocate(need)
            assert memory.free >= 0
            held.append(need)

    tasks = tasks_of(8, allocate)
    while not all(task.done() for task in tasks):
        for _ in range(chosen.randrange(4)):
            if held:
                memory.release(held.pop(chosen.randrange(len(held))))
        if chosen.random() < 0.02:
            chosen.choice(tasks).cancel()
        await asyncio.sleep(0)
        assert memory.free + sum(held) == memory.size
    for task in tasks:
        assert task.cancelled() or task.exception() is None
    while held:
        memory.release(held.pop())
    await asyncio.sleep(0)
    assert waits > 50
    assert memory.free == memory.allocatable == memory.size
    assert not memory.has_waiters


async def test_batches_grow_while_others_wait_before_them(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        # Its fast response shows that the network can transmit large batches in time.
        await producer.send_and_wait(TOPIC, bytes(10_000), partition=0)
        with silent_broker(cluster) as speak:
            for _ in range(2000):
                await producer.send(TOPIC, PAYLOAD, partition=0)
            speak()
    sizes = [batch.size for batch in cluster.log(TOPIC, 0).batches]
    assert 900_000 < max(sizes) <= 1_000_000
    assert len(values(cluster)) == 2001


async def test_batches_grow_less_before_the_first_response(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        with silent_broker(cluster) as speak:
            for _ in range(2000):
                await producer.send(TOPIC, PAYLOAD, partition=0)
            speak()
    sizes = [batch.size for batch in cluster.log(TOPIC, 0).batches]
    assert 200_000 < max(sizes) <= 262_144
    assert len(values(cluster)) == 2000


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, 1),
        ({"compression_type": "lz4"}, 1),
        ({"compression_type": "gzip"}, 2),
        ({"max_batch_size": 16_384}, 7),
    ],
)
async def test_records_that_are_sent_without_a_pause_share_a_batch(
    cluster: FakeCluster, options: dict[str, Any], batches: int
) -> None:
    """Until the event loop runs, a full batch cannot be sent anyway. With gzip, which blocks the
    event loop for long, the first batch is small; the others wait behind it."""
    chosen = random.Random(1)
    payloads = [chosen.randbytes(1000) for _ in range(100)]
    async with new_producer(cluster, **options) as producer:
        sent = [await producer.send(TOPIC, payload, partition=0) for payload in payloads]
        await asyncio.gather(*sent)
    assert values(cluster) == payloads
    assert len(cluster.log(TOPIC, 0).batches) == batches


async def test_large_records_yield_to_other_tasks(cluster: FakeCluster) -> None:
    """Once a megabyte or so, because little is to be done for each byte."""
    loop = asyncio.get_running_loop()
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    payload = b"x" * 100_000
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, payload, partition=0)
        loop.call_soon(count)
        for _ in range(8):
            await producer.send(TOPIC, payload, partition=0)
        assert turns == 0
        for _ in range(32):
            await producer.send(TOPIC, payload, partition=0)
        assert turns > 2
    assert len(values(cluster)) == 41


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_batch_size": 16_384}, 16_384),
        ({"max_request_size": 100_000}, 100_000),
        ({"buffer_memory": 3_200_000}, 200_000),
    ],
)
async def test_limits_of_growth(cluster: FakeCluster, options: dict[str, int], limit: int) -> None:
    async with new_producer(cluster, **options) as producer:
        with silent_broker(cluster) as speak:
            for _ in range(1000):
                await producer.send(TOPIC, PAYLOAD, partition=0)
            speak()
    sizes = [batch.size for batch in cluster.log(TOPIC, 0).batches]
    assert limit // 2 < max(sizes) <= limit


async def test_large_records_share_batches_that_wait(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"x" * 100_000, partition=0)
        with silent_broker(cluster) as speak:
            for _ in range(50):
                await producer.send(TOPIC, b"x" * 100_000, partition=0)
            speak()
    assert len(cluster.log(TOPIC, 0).batches) < 15
    assert len(values(cluster)) == 51


async def test_batches_do_not_grow_after_a_broker_has_refused_one(cluster: FakeCluster) -> None:
    await cluster.create_topic("small", config={"max.message.bytes": 50_000})
    async with new_producer(cluster) as producer:
        with silent_broker(cluster) as speak:
            sent = [await producer.send("small", b"%1000d" % n) for n in range(1000)]
            speak()
            await asyncio.gather(*sent)
        with silent_broker(cluster) as speak:
            for number in range(1000, 2000):
                await producer.send("small", b"%1000d" % number)
            speak()
    assert values(cluster, topic="small") == [b"%1000d" % n for n in range(2000)]
    sizes = [batch.size for batch in cluster.log("small", 0).batches]
    assert max(sizes) <= 16_384


def test_no_task_waits_too_long_among_many() -> None:
    """However slow the broker is: what the others may allocate in one turn each is no more than a
    part of a small buffer."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            simulation.chaos(cluster).faults.slow(0, 0.2, 0.2)

            async def send(_: int) -> None:
                for _ in range(200):
                    await producer.send(TOPIC, PAYLOAD, partition=0)

            async with new_producer(
                cluster, buffer_memory=100_000, max_block_ms=10_000
            ) as producer:
                await asyncio.gather(*tasks_of(50, send))
            return len(values(cluster))

    assert simulate(main) == 10_000
