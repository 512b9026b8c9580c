"""What a producer tells its `metrics_collector=`, and when: as aiokafka 0.15 does."""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import Any

import pytest

import aiokafka
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, NotLeaderForPartitionError
from aiokafka.metrics import NullProducerMetricsCollector, ProducerMetricsCollector
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster, Hold, Silence
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all


class Notes(ProducerMetricsCollector):
    """Keeps every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def on_batch_dispatched(self, **facts: Any) -> None:
        self.calls.append(("dispatched", facts))

    def on_batch_completed(self, **facts: Any) -> None:
        self.calls.append(("completed", facts))

    def on_batch_failed(self, **facts: Any) -> None:
        self.calls.append(("failed", facts))

    def on_buffer_wait(self, **facts: Any) -> None:
        self.calls.append(("waited", facts))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [facts for one, facts in self.calls if one == name]


async def test_a_batch_is_dispatched_and_completed(cluster: FakeCluster) -> None:
    notes = Notes()
    async with new_producer(cluster, metrics_collector=notes, linger_ms=30) as producer:
        await results(await send_all(producer, numbers(3)))
        assert notes.names() == ["dispatched", "completed"]
    (sent,), (done,) = notes.of("dispatched"), notes.of("completed")
    waited = sent.pop("queue_time_seconds")
    size = sent.pop("batch_size_bytes")
    assert sent == {"topic": TOPIC, "partition": 0, "record_count": 3, "attempt": 1}
    assert waited >= 0.03 and size > 61
    age, flight = done.pop("batch_age_seconds"), done.pop("send_to_completion_seconds")
    assert done == {"topic": TOPIC, "partition": 0, "record_count": 3, "acknowledged": True}
    assert 0 <= flight <= age and age >= waited


async def test_without_acknowledgement(cluster: FakeCluster) -> None:
    notes = Notes()
    async with new_producer(cluster, metrics_collector=notes, acks=0) as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=0)
    assert notes.names() == ["dispatched", "completed"]
    assert notes.of("completed")[0]["acknowledged"] is False


async def test_a_retry_is_another_attempt(cluster: FakeCluster) -> None:
    notes = Notes()
    with cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=2):
        async with new_producer(cluster, metrics_collector=notes) as producer:
            await producer.send_and_wait(TOPIC, b"value", partition=0)
    assert notes.names() == ["dispatched"] * 3 + ["completed"]
    sent = notes.of("dispatched")
    assert [facts["attempt"] for facts in sent] == [1, 2, 3]
    # Each attempt has its own time in the queue, and together they are not longer than its life.
    age = notes.of("completed")[0]["batch_age_seconds"]
    assert sum(facts["queue_time_seconds"] for facts in sent) <= age


async def test_a_batch_whose_time_is_up_fails_once(cluster: FakeCluster) -> None:
    notes = Notes()
    with cluster.intercept(ProduceRequest, Silence()):
        producer = new_producer(cluster, metrics_collector=notes, delivery_timeout_ms=50)
        await producer.start()
        with pytest.raises(KafkaTimeoutError) as caught:
            await producer.send_and_wait(TOPIC, b"value", partition=0)
        await producer.stop(timeout=0)
    assert notes.names() == ["dispatched", "failed"]
    (failed,) = notes.of("failed")
    assert str(failed.pop("exception")) == str(caught.value)
    assert failed.pop("batch_age_seconds") >= 0.05
    assert failed == {"topic": TOPIC, "partition": 0, "record_count": 1}


async def test_a_record_that_the_broker_refuses(cluster: FakeCluster) -> None:
    notes = Notes()
    with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
        async with new_producer(cluster, metrics_collector=notes) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(TOPIC, b"value", partition=0)
    assert notes.names() == ["dispatched", "failed"]


async def test_what_was_never_sent_fails_without_a_dispatch(cluster: FakeCluster) -> None:
    notes = Notes()
    release = asyncio.Event()
    options = {"metrics_collector": notes, "linger_ms": 10_000}
    with cluster.intercept(ProduceRequest, Hold(release)):
        producer = new_producer(cluster, **options)
        await producer.start()
        future = await producer.send(TOPIC, b"value", partition=0)
        producer.abort_buffered()
        assert notes.names() == ["failed"]
        assert future.exception() is not None
        release.set()
        await producer.stop()
    assert notes.names() == ["failed"]


async def test_a_wait_for_memory(cluster: FakeCluster) -> None:
    notes = Notes()
    release = asyncio.Event()
    options = {"buffer_memory": 20_000, "max_batch_size": 2000, "metrics_collector": notes}
    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        async with new_producer(cluster, **options) as producer:
            while producer.buffer_available_bytes > 3000:
                await producer.send(TOPIC, b"x" * 100, partition=1)
            await held.wait()
            waiting = asyncio.create_task(producer.send(TOPIC, b"x" * 4000, partition=1))
            # Its partition is not chosen yet when it is cancelled.
            spread = asyncio.create_task(producer.send(TOPIC, b"x" * 4000))
            while not notes.of("waited"):
                await asyncio.sleep(0)
                spread.cancel()
            release.set()
            await (await waiting)
    lost, served = notes.of("waited")
    assert (lost["topic"], lost["partition"]) == (TOPIC, -1)
    assert (served["topic"], served["partition"]) == (TOPIC, 1)
    assert served["wait_seconds"] > 0


class Raises(ProducerMetricsCollector):
    def on_batch_dispatched(self, **facts: Any) -> None:
        raise RuntimeError("a broken collector")

    on_batch_completed = on_batch_dispatched


async def test_a_collector_that_raises_is_logged_once_in_a_while(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, metrics_collector=Raises()) as producer:
        for value in numbers(5):
            await producer.send_and_wait(TOPIC, value, partition=0)
    complaints = [line for line in caplog.records if "a broken collector" in line.getMessage()]
    assert len(complaints) == 1
    assert complaints[0].levelno == logging.ERROR and complaints[0].exc_info


@pytest.mark.parametrize("wrong", [object(), Notes, "collector"])
async def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="metrics_collector"):
        aiokafka.AIOKafkaProducer(metrics_collector=wrong)


async def test_a_null_collector_is_one(cluster: FakeCluster) -> None:
    async with new_producer(cluster, metrics_collector=NullProducerMetricsCollector()) as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=0)


def test_a_misspelt_method_is_reported() -> None:
    with pytest.warns(UserWarning, match="on_batch_send"):

        class Misspelt(ProducerMetricsCollector):
            def on_batch_send(self, **facts: Any) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Right(ProducerMetricsCollector):
            def on_batch_failed(self, **facts: Any) -> None: ...

            def other(self) -> None: ...
