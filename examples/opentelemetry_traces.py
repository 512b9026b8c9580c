"""Send a record and process it, in one trace of OpenTelemetry, and print the spans."""

from __future__ import annotations

import argparse
import asyncio
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry


async def produce(bootstrap: str, topic: str) -> None:
    telemetry = ProducerTelemetry()
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, interceptors=[telemetry], metrics_collector=telemetry
    )
    async with producer:
        with trace.get_tracer(__name__).start_as_current_span("request"):
            await producer.send_and_wait(topic, b"Test message")


async def consume(bootstrap: str, topic: str) -> None:
    telemetry = ConsumerTelemetry()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        interceptors=[telemetry],
        metrics_collector=telemetry,
    )
    async with consumer:
        record = await consumer.getone()
        with telemetry.process(record):
            print("processing", record.value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    given = parser.parse_args()
    # A service has an OTLP exporter and a BatchSpanProcessor here.
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    try:
        asyncio.run(produce(given.bootstrap, given.topic))
        asyncio.run(consume(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))
    names = {span.context.span_id: span.name for span in spans.get_finished_spans()}
    for span in spans.get_finished_spans():
        parent = names[span.parent.span_id] if span.parent else None
        print(f"{span.name}: parent {parent}, links {len(span.links)}")


if __name__ == "__main__":
    main()
