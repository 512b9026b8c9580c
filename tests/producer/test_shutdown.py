"""The end: everything sent or failed, nothing left behind, in bounded time."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, ProducerClosed
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Hold, RawBytes, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values


async def test_stop_sends_what_waits(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, linger_ms=60_000)
    await producer.start()
    futures = await send_all(producer, numbers(100))
    await producer.stop()
    assert all(future.done() for future in futures)
    assert values(cluster) == numbers(100)


async def test_stop_with_all_brokers_gone(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, delivery_timeout_ms=1500, request_timeout_ms=1000)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"v", partition=0)
    await cluster.stop_broker(0)
    futures = await send_all(producer, numbers(10))
    async with timeout(15):
        await producer.stop()
    assert all(isinstance(one, KafkaTimeoutError) for one in await results(futures))


@pytest.mark.parametrize("limit", [0, 0.05])
async def test_stop_with_a_timeout(cluster: FakeCluster, limit: float) -> None:
    producer = new_producer(cluster)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"v", partition=0)
    with cluster.intercept(ProduceRequest, Silence()):
        futures = await send_all(producer, numbers(10))
        async with timeout(10):  # without a limit it would wait for delivery_timeout_ms
            await producer.stop(limit)
    assert all(isinstance(one, ProducerClosed) for one in await results(futures))


async def test_flush_with_a_timeout(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)):
        async with new_producer(cluster) as producer:
            await producer.flush(0)
            futures = await send_all(producer, numbers(10))
            with pytest.raises(KafkaTimeoutError, match="not delivered"):
                await producer.flush(0.02)
            release.set()
            await producer.flush(10)
            assert all(future.done() for future in futures)


@pytest.mark.parametrize("seed", range(5))
def test_a_flush_of_a_program_that_stands_still(seed: int) -> None:
    """What was delivered in the turn of the deadline is not missing."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster) as producer:
                for number in range(20):
                    future = await producer.send(TOPIC, b"%d" % number, partition=0)
                    simulation.loop.stall(1.0, 0.2)
                    try:
                        await producer.flush(0.05)
                    except KafkaTimeoutError:
                        assert not future.done()
                    simulation.loop.stall(0.0, 0.0)
                    await producer.flush()

    simulate(main, seed=seed)


async def test_flush_does_not_wait_for_later_records(cluster: FakeCluster) -> None:
    async with new_producer(cluster, linger_ms=60_000) as producer:
        first = await producer.send(TOPIC, b"1", partition=0)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        second = await producer.send(TOPIC, b"2", partition=0)
        await flushing
        assert first.done() and not second.done()


async def test_flush_waits_for_the_parts_of_a_split_batch() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 500})
        async with new_producer(cluster) as producer:
            futures = await send_all(producer, [b"x" * 50] * 100)
            await producer.flush()
            assert all(future.done() and not future.exception() for future in futures)


async def test_delivery_timeout_ends_every_wait(cluster: FakeCluster) -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 200, "request_timeout_ms": 150}
    for acks in ("all", 1):
        async with new_producer(cluster, acks=acks, **options) as producer:
            with cluster.intercept(ProduceRequest, Silence()):
                futures = await send_all(producer, numbers(10))
                await producer.flush()
                found = await results(futures)
        assert all(isinstance(one, KafkaTimeoutError) for one in found)
        assert all(TOPIC in str(one) and "delivery_timeout_ms" in str(one) for one in found)


async def test_nothing_is_left_behind(cluster: FakeCluster) -> None:
    tasks = asyncio.all_tasks()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(100):
            async with new_producer(cluster) as producer:
                await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)
    await cluster.wait_for(lambda: cluster.connections == 0)
    left = {task.get_name() for task in asyncio.all_tasks() - tasks}
    assert not {name for name in left if "aiokafka-producer" in name}
    assert values(cluster) == numbers(100)


async def test_garbage_from_the_broker_is_survived(cluster: FakeCluster) -> None:
    cluster.intercept(ProduceRequest, RawBytes(b"\x00\x00\x00\x08garbage!"), times=2)
    cluster.intercept(ProduceRequest, RawBytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"), times=1)
    async with new_producer(cluster) as producer:
        await results(await send_all(producer, numbers(100)))
    assert values(cluster) == numbers(100)


async def test_a_background_task_that_dies_is_reported(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = new_producer(cluster)
    await producer.start()
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        future = await producer.send(TOPIC, b"v", partition=0)
        await held.wait()
        (victim,) = [t for t in asyncio.all_tasks() if t.get_name().endswith(":sender-0")]
        victim.cancel()
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await future
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await producer.send(TOPIC, b"w", partition=0)
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await producer.flush()
        release.set()
        await producer.stop()
    assert "sender-0" in caplog.text


async def test_connection_refused_while_sending(cluster: FakeCluster) -> None:
    async with new_producer(cluster, delivery_timeout_ms=1500, request_timeout_ms=1000) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        await cluster.stop_broker(0)
        with pytest.raises(KafkaTimeoutError) as caught:
            await producer.send_and_wait(TOPIC, b"w", partition=0)
    assert isinstance(caught.value.__cause__, KafkaConnectionError)
