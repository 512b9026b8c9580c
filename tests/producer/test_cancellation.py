"""Cancel every public call at every place where it waits: a record is in or not in, never half."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Delay, FakeCluster, Hold
from tests.support.producers import TOPIC, new_producer, values


class Stepper:
    """Runs a coroutine and cancels it at its n-th wait. `finished`: it ended before that."""

    def __init__(self, coro: Coroutine[Any, Any, Any], cancel_at: int) -> None:
        self._coro = coro
        self._cancel_at = cancel_at
        self.finished = False

    def __await__(self) -> Any:
        waits = 0
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = self._coro.send(value) if error is None else self._coro.throw(error)
            except StopIteration as stop:
                self.finished = True
                return stop.value
            value, error = None, None
            if waits == self._cancel_at:
                if step is not None:
                    step._asyncio_future_blocking = False
                    step.cancel()
                waits += 1
                error = asyncio.CancelledError()
                continue
            waits += 1
            try:
                value = yield step
            except BaseException as caught:
                error = caught


async def cancel_at_every_wait(call: Callable[[], Coroutine[Any, Any, Any]]) -> int:
    """Call it again and again, cancelled one wait later each time; how often it was cancelled."""
    for at in range(100):
        stepper = Stepper(call(), at)
        try:
            await stepper
        except asyncio.CancelledError:
            continue
        return at
    raise AssertionError("the call waits for ever")


async def test_start(cluster: FakeCluster) -> None:
    producers: list[AIOKafkaProducer] = []

    def start() -> Coroutine[Any, Any, None]:
        producers.append(new_producer(cluster))
        return producers[-1].start()

    assert await cancel_at_every_wait(start) > 0
    started = producers[-1]
    await started.send_and_wait(TOPIC, b"v", partition=0)
    for producer in producers:
        await producer.stop()
    await cluster.wait_for(lambda: cluster.connections == 0)
    assert len(asyncio.all_tasks()) == len(own_tasks(cluster))
    assert values(cluster) == [b"v"]


def own_tasks(cluster: FakeCluster) -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if "aiokafka-producer" not in task.get_name()}


async def test_send_that_waits_for_metadata(cluster: FakeCluster) -> None:
    sent = 0

    async def send_to_a_new_topic() -> None:
        nonlocal sent
        sent += 1
        await cluster.create_topic(f"new-{sent}")
        async with new_producer(cluster) as producer:
            stepper = Stepper(producer.send(f"new-{sent}", b"v"), sent - 1)
            try:
                await stepper
            finally:
                await producer.flush()

    at = 0
    while True:
        try:
            await send_to_a_new_topic()
        except asyncio.CancelledError:
            assert values(cluster, topic=f"new-{sent}") == []
            at += 1
        else:
            break
    assert at > 0
    assert values(cluster, topic=f"new-{sent}") == [b"v"]


async def test_send_that_waits_for_memory(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        async with new_producer(cluster, buffer_memory=8000) as producer:
            await producer.send(TOPIC, b"first" + b"x" * 5000, partition=0)
            await held.wait()
            for _ in range(3):
                task = asyncio.create_task(producer.send(TOPIC, b"no" * 2500, partition=0))
                await asyncio.sleep(0)
                assert not task.done()
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            task = asyncio.create_task(producer.send(TOPIC, b"yes", partition=0))
            release.set()
            await (await task)
            await producer.send_and_wait(TOPIC, b"z" * 5000, partition=0)
    assert values(cluster)[1:] == [b"yes", b"z" * 5000]


async def test_send_and_wait(cluster: FakeCluster) -> None:
    """Once the record is in a batch, cancelling does not take it out."""
    calls = 0

    def call() -> Coroutine[Any, Any, Any]:
        nonlocal calls
        calls += 1
        return producer.send_and_wait(TOPIC, b"%d" % calls, partition=0)

    async with new_producer(cluster) as producer:
        await producer.partitions_for(TOPIC)
        cancelled = await cancel_at_every_wait(call)
        assert cancelled > 0
    assert values(cluster)[-1] == b"%d" % calls
    assert len(values(cluster)) == len(set(values(cluster)))


async def test_a_cancelled_future_is_sent_all_the_same(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        futures = [await producer.send(TOPIC, b"%d" % n, partition=0) for n in range(10)]
        for future in futures[::2]:
            future.cancel()
        await producer.flush()
        assert [future.result().offset for future in futures[1::2]] == [1, 3, 5, 7, 9]
    assert len(values(cluster)) == 10


async def test_flush(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for number in range(50):
            await producer.send(TOPIC, b"%d" % number, partition=number % 3)
        await cancel_at_every_wait(producer.flush)
        assert sum(len(values(cluster, number)) for number in range(3)) == 50


async def test_send_batch(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)

        def submit() -> Coroutine[Any, Any, Any]:
            return producer.send_batch(batch, TOPIC, partition=0)

        await cancel_at_every_wait(submit)
        await producer.flush()
    assert values(cluster) == [b"v"]


async def test_partitions_for(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await cancel_at_every_wait(lambda: producer.partitions_for(TOPIC))
        assert await producer.partitions_for(TOPIC) == {0, 1, 2}


@pytest.mark.parametrize("at", range(12))
async def test_stop_can_be_repeated(cluster: FakeCluster, at: int) -> None:
    before = asyncio.all_tasks()
    producer = new_producer(cluster)
    await producer.start()
    with cluster.intercept(ProduceRequest, Delay(0.01)):
        future = await producer.send(TOPIC, b"v", partition=0)
        try:
            await Stepper(producer.stop(), at)
        except asyncio.CancelledError:
            await producer.stop()
    assert future.done()
    assert values(cluster) == ([b"v"] if not future.exception() else values(cluster))
    await cluster.wait_for(lambda: cluster.connections == 0)
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not {name for name in left if "producer" in name}
