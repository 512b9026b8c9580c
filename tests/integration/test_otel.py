"""One trace through a real Kafka, with its metrics."""

from __future__ import annotations

import uuid

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry
from tests.kafka.launcher import KafkaCluster


async def test_one_trace_through_a_broker(kafka: KafkaCluster) -> None:
    topic, name = (f"otel-{uuid.uuid4().hex}" for _ in range(2))
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing, metering = TracerProvider(), MeterProvider([reader])
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    providers = {"tracer_provider": tracing, "meter_provider": metering}
    async with AIOKafkaAdminClient(**servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])

    sending = ProducerTelemetry(**providers)
    producer = AIOKafkaProducer(
        **servers, transactional_id=name, interceptors=[sending], metrics_collector=sending
    )
    async with producer, sending.transaction(producer.transaction()):
        for number in range(3):
            await producer.send(topic, b"%d" % number)

    receiving = ConsumerTelemetry(**providers)
    consumer = AIOKafkaConsumer(
        topic,
        **servers,
        group_id=name,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        interceptors=[receiving],
        metrics_collector=receiving,
    )
    async with consumer:
        for _ in range(3):
            with receiving.process(await consumer.getone()):
                pass
        await consumer.commit()

    found = spans.get_finished_spans()
    (transaction,) = [span for span in found if span.name == "transaction"]
    sent = [span for span in found if span.name == f"send {topic}"]
    processed = [span for span in found if span.name == f"process {topic}"]
    polls = [span for span in found if span.name == f"poll {topic}"]
    (commit,) = [span for span in found if span.name == f"commit {topic}"]
    assert {span.context.trace_id for span in (*sent, *processed)} == {transaction.context.trace_id}
    assert [span.attributes["messaging.kafka.offset"] for span in sent] == [0, 1, 2]
    ids = [span.context.span_id for span in sent]
    assert [span.parent.span_id for span in processed] == ids
    assert [link.context.span_id for span in polls for link in span.links] == ids
    assert commit.attributes["messaging.consumer.group.name"] == name

    data = reader.get_metrics_data()
    assert data is not None
    metrics = {m.name: m for m in data.resource_metrics[0].scope_metrics[0].metrics}
    (produced,) = metrics["messaging.client.sent.messages"].data.data_points
    (consumed,) = metrics["messaging.client.consumed.messages"].data.data_points
    assert (produced.value, consumed.value) == (3, 3)
    (durations,) = metrics["messaging.process.duration"].data.data_points
    assert durations.count == 3
    tracing.shutdown()
    metering.shutdown()
