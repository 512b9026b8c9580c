"""A producer that is stopped without a broker, and one that is forgotten."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import KafkaTimeoutError, ProducerClosed
from aiokafka.protocol.messages import (
    EndTxnRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values


async def test_a_producer_that_cannot_deliver_is_closing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="aiokafka")
    producer = new_producer(cluster, delivery_timeout_ms=5000, client_id="me")
    async with producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await cluster.stop_broker(0)
        future = await producer.send(TOPIC, b"2", partition=0)
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0)
        health = producer.health()
        assert health.state == "closing"
        assert "the delivery of 1 batches" in health.reason
        await stopping
        assert isinstance(future.exception(), KafkaTimeoutError)
        assert producer.health().state == "closed"
    assert "running -> closing: waiting up to" in caplog.text
    assert "closing -> closed" in caplog.text
    warned = [r.getMessage() for r in caplog.records if "is closing" in r.getMessage()]
    assert len(warned) == 1
    assert "<AIOKafkaProducer client_id=me>" in warned[0]
    assert "Broker 0" in warned[0] and "stop(timeout=...)" in warned[0]


def test_stop_in_the_block_bounds_its_end() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster) as producer:
                await producer.send_and_wait(TOPIC, b"1", partition=0)
                await cluster.stop_broker(0)
                future = await producer.send(TOPIC, b"2", partition=0)
                began = loop.time()
                await producer.stop(0.1)
            assert isinstance(future.exception(), ProducerClosed)
            # Closing has a second beside it.
            assert loop.time() - began < 2

    simulate(main)


TRANSACTION_CALLS = {
    "commit": (lambda producer: producer.commit_transaction(), EndTxnRequest),
    "commit, records in flight": (lambda producer: producer.commit_transaction(), ProduceRequest),
    "abort": (lambda producer: producer.abort_transaction(), EndTxnRequest),
    "abort, records in flight": (lambda producer: producer.abort_transaction(), ProduceRequest),
    "offsets": (
        lambda producer: producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, "g"),
        TxnOffsetCommitRequest,
    ),
}


@pytest.mark.parametrize("name", TRANSACTION_CALLS)
async def test_a_call_about_a_transaction_ends_with_the_producer(
    cluster: FakeCluster, name: str
) -> None:
    call, unanswered = TRANSACTION_CALLS[name]
    producer = new_producer(cluster, transactional_id="tx")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"1", partition=0)
    with cluster.intercept(unanswered, Silence()) as silence:
        if unanswered is ProduceRequest:
            await producer.send(TOPIC, b"2", partition=0)
            await silence.wait()
        under_way = asyncio.ensure_future(call(producer))
        await silence.wait()
        await producer.stop(0)
    with pytest.raises(ProducerClosed):
        await under_way


async def test_what_is_in_flight_at_the_end_leaves_nothing_behind(cluster: FakeCluster) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    producer = new_producer(cluster, max_in_flight_requests_per_connection=5, linger_ms=0)
    await producer.start()
    free = producer.buffer_available_bytes
    await producer.send_and_wait(TOPIC, b"1", partition=0)
    held = cluster.intercept(ProduceRequest, Silence())
    futures = []
    for partition in (0, 1, 2):
        futures.append(await producer.send(TOPIC, b"2", partition=partition))
        await asyncio.sleep(0.02)
    await held.wait()
    await producer.stop(0)
    assert all(isinstance(future.exception(), ProducerClosed) for future in futures)
    assert producer.buffer_available_bytes == free
    del producer
    gc.collect()
    assert not complaints


def test_answers_are_not_waited_for_after_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    """They fail with the connections, and asyncio would say of each that nothing took that."""
    lost: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: lost.append(str(context["exception"])))
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=3)
            cluster.intercept(ProduceRequest, Silence())
            async with new_producer(cluster) as producer, timeout(20):
                for partition in range(3):
                    await producer.send(TOPIC, b"v", partition=partition)
                    while len(cluster.requests(ProduceRequest)) <= partition:
                        await asyncio.sleep(0.001)
                await producer.stop(0)

    caplog.set_level(logging.CRITICAL)  # what is logged refers to the producer
    asyncio.run(main())
    gc.collect()
    assert [text for text in lost if "ProducerClosed" not in text] == []


async def test_representations(cluster: FakeCluster) -> None:
    assert repr(new_producer(cluster, client_id="me")) == "<AIOKafkaProducer client_id=me>"
    transactional = new_producer(cluster, client_id="me", transactional_id="tx")
    assert repr(transactional) == "<AIOKafkaProducer client_id=me transactional_id=tx>"
    assert "AIOKafkaProducer" in repr(AIOKafkaProducer.__new__(AIOKafkaProducer))


def test_a_forgotten_producer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aiokafka")
    told: list[str] = []

    async def forget(cluster: FakeCluster) -> None:
        producer = new_producer(cluster)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        del producer
        gc.collect()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            caplog.clear()
            await forget(cluster)

    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer <AIOKafkaProducer") as seen:
        # Its tasks end with the loop.
        asyncio.run(main())
        gc.collect()
    assert [str(one.message) for one in seen if "aiokafka" in str(one.message).lower()] == [
        str(seen[0].message)
    ]
    assert len(told) == 1 and told[0].startswith("Unclosed AIOKafkaProducer: call stop()")
    lines = [record.getMessage() for record in caplog.records]
    assert not [line for line in lines if "from outside" in line or "failed" in line], lines


async def test_records_of_a_forgotten_producer_are_delivered(cluster: FakeCluster) -> None:
    async def send() -> asyncio.Future[object]:
        producer = new_producer(cluster, linger_ms=50)
        await producer.start()
        future: asyncio.Future[object] = await producer.send(TOPIC, b"v", partition=1)
        return future

    told = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    with pytest.warns(ResourceWarning, match="Unclosed"):
        future = await send()
        gc.collect()
        await future
    # Nothing else can end what it left.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name().startswith("aiokafka-producer"):
            task.cancel()
    loop.set_exception_handler(None)
    await asyncio.sleep(0.01)


async def test_a_call_that_gives_the_event_loop_a_turn_is_refused_at_once(
    cluster: FakeCluster,
) -> None:
    """There is no room for its record, and it did not wait for that yet when `stop` was called."""
    release = asyncio.Event()
    async with new_producer(cluster, buffer_memory=400_000) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        with cluster.intercept(ProduceRequest, Hold(release)):
            # As many requests as may be in flight: until one is answered, no sender takes a turn.
            for number in range(5):
                await producer.send(TOPIC, b"x" * 17_000, partition=0)
                while _in_flight(producer) <= number:
                    await asyncio.sleep(0)
            for _ in range(4):
                await producer.send(TOPIC, b"x" * 70_000, partition=0)
            late = asyncio.ensure_future(producer.send(TOPIC, b"x" * 200_000, partition=0))
            stopping = asyncio.ensure_future(producer.stop())
            with pytest.raises(ProducerClosed):
                await late
            assert not stopping.done()
            release.set()
            await stopping
    assert len(values(cluster)) == 10


def _in_flight(producer: AIOKafkaProducer) -> float:
    return max(m.value for m in producer.metrics() if m.name == "requests-in-flight")
