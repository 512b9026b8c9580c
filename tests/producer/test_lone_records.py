"""`send_and_wait` of one record after the other: the request is written in the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Cut, FakeCluster, Hold
from tests.support.producers import TOPIC, new_producer, numbers, values


@pytest.fixture
async def cluster() -> Any:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, 2)
        yield cluster


def in_flight(producer: AIOKafkaProducer) -> float:
    return max(m.value for m in producer.metrics() if m.name == "requests-in-flight")


def batches(cluster: FakeCluster, partition: int = 0) -> list[int]:
    """Return the number of records of each batch in the log."""
    return [batch.record_count for batch in cluster.log(TOPIC, partition).batches]


class Nested(ProducerMetricsCollector):
    """Begins `send_and_wait` inside a call of the sender, as an eager task does."""

    def __init__(self, event: str) -> None:
        self.event = event
        self.producer: AIOKafkaProducer | None = None
        self.calls: list[Any] = []

    def on_batch_dispatched(self, **_: Any) -> None:
        self.send("dispatched")

    def on_batch_completed(self, **_: Any) -> None:
        self.send("completed")

    def send(self, event: str) -> None:
        if self.producer is not None and event == self.event:
            producer, self.producer = self.producer, None
            call = producer.send_and_wait(TOPIC, b"inner", partition=0)
            call.send(None)
            self.calls.append(call)


async def test_the_second_lone_record_is_sent_in_the_call(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        call = producer.send_and_wait(TOPIC, b"second", partition=0)
        assert in_flight(producer) == 0
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        assert in_flight(producer) == 1
        await task


async def test_records_of_many_tasks_share_a_batch(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for _ in range(3):
            calls = [producer.send_and_wait(TOPIC, b"v", partition=0) for _ in range(20)]
            await asyncio.gather(*calls)
    assert batches(cluster) == [20, 20, 20]


async def test_many_tasks_after_a_lone_record_need_two_batches(cluster: FakeCluster) -> None:
    """The first of the tasks looks like another lone record; the others wait for its response."""
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"lone", partition=0)
        for _ in range(2):
            calls = [producer.send_and_wait(TOPIC, b"v", partition=0) for _ in range(20)]
            await asyncio.gather(*calls)
    assert batches(cluster) == [1, 1, 19, 20]


async def test_a_lone_record_does_not_overtake_the_records_before(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"0", partition=0)
        for value in numbers(10)[1:9]:
            await producer.send(TOPIC, value, partition=0)
        await producer.send_and_wait(TOPIC, b"9", partition=0)
    assert values(cluster) == numbers(10)
    assert batches(cluster) == [1, 9]


@pytest.mark.parametrize("event", ["dispatched", "completed"])
async def test_a_lone_record_sent_in_a_call_of_the_sender_comes_after(
    cluster: FakeCluster, event: str
) -> None:
    collector = Nested(event)
    async with new_producer(cluster, metrics_collector=collector) as producer:
        for value in (b"first", b"second"):
            await producer.send_and_wait(TOPIC, value, partition=0)
        collector.producer = producer
        await producer.send_and_wait(TOPIC, b"outer", partition=0)
        await producer.flush()
        for call in collector.calls:
            call.close()
    assert values(cluster) == [b"first", b"second", b"outer", b"inner"]


async def test_a_cancelled_call_has_sent_its_record(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        release = asyncio.Event()
        with cluster.intercept(ProduceRequest, Hold(release)) as held:
            task = asyncio.create_task(producer.send_and_wait(TOPIC, b"second", partition=0))
            await held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            release.set()
        await producer.send_and_wait(TOPIC, b"third", partition=0)
    assert values(cluster) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("linger_ms", [0, 10])
async def test_lone_records_on_a_connection_that_is_lost(
    cluster: FakeCluster, linger_ms: int
) -> None:
    async with new_producer(cluster, linger_ms=linger_ms) as producer, timeout(30):
        for value in numbers(6):
            with cluster.intercept(ProduceRequest, Cut(), times=1):
                await producer.send_and_wait(TOPIC, value, partition=0)
    assert values(cluster) == numbers(6)
