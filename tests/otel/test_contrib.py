"""OpenTelemetry's own instrumentation of aiokafka and ours, together: no span twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start
from tests.support.producers import TOPIC, new_producer
from tests.support.spans import Seen


@pytest.fixture
def contrib(seen: Seen) -> Iterator[AIOKafkaInstrumentor]:
    instrumentor = AIOKafkaInstrumentor()
    # The installed distribution is ours, of whatever version.
    instrumentor.instrument(tracer_provider=seen.tracing, skip_dep_check=True)
    yield instrumentor
    instrumentor.uninstrument()


async def work(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    sending, receiving = ProducerTelemetry(**seen.providers), ConsumerTelemetry(**seen.providers)
    options = {"interceptors": [sending], "metrics_collector": sending}
    async with new_producer(cluster, **options) as producer:
        assert isinstance(producer, AIOKafkaProducer)
        await producer.send_and_wait(TOPIC, b"value", partition=0)
    consumer = await start(
        cluster,
        assign=[TopicPartition(TOPIC, 0)],
        interceptors=[receiving],
        metrics_collector=receiving,
    )
    assert isinstance(consumer, AIOKafkaConsumer)
    record = await consumer.getone()
    with receiving.process(record):
        pass


async def test_sends_and_receives_are_left_to_it(
    contrib: AIOKafkaInstrumentor, cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    await work(cluster, start, seen)
    assert [span.name for span in seen.spans()] == [
        "topic send",
        "topic receive",
        "process topic",
    ]
    sent, _, process = seen.spans()
    assert process.parent.span_id == sent.context.span_id
    (record,) = cluster.log(TOPIC).records()
    assert [name for name, _ in record.headers] == ["traceparent"]
    # It has no metrics.
    assert [point.value for point in seen.points("messaging.client.sent.messages")] == [1]


async def test_it_calls_serializers_that_await(
    contrib: AIOKafkaInstrumentor, cluster: FakeCluster, seen: Seen
) -> None:
    """It calls them a second time itself, to name the partition in its span, and does not await
    what they return. (A coroutine that is never awaited is a warning, which fails the test.)"""

    async def to_bytes(text: str) -> bytes:
        await asyncio.sleep(0)
        return text.encode()

    async with new_producer(cluster, value_serializer=to_bytes) as producer:
        await producer.send_and_wait(TOPIC, "value", partition=0)
    (record,) = cluster.log(TOPIC).records()
    assert record.value == b"value"
    (span,) = seen.spans()
    assert "messaging.destination.partition.id" not in (span.attributes or {})


async def test_ours_are_made_when_it_was_taken_away(
    contrib: AIOKafkaInstrumentor, cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    contrib.uninstrument()
    await work(cluster, start, seen)
    names = [span.name for span in seen.spans()]
    contrib.instrument(tracer_provider=seen.tracing, skip_dep_check=True)
    assert names == ["send topic", "poll topic", "process topic"]
