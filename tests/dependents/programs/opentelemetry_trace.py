"""Sends and reads records under OpenTelemetry's instrumentation; prints the spans."""

import asyncio
import json
import sys

from opentelemetry import trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SERVERS, TOPIC = sys.argv[1:]
spans = InMemorySpanExporter()
tracing = TracerProvider()
tracing.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracing)
AIOKafkaInstrumentor().instrument(tracer_provider=tracing)

import aiokafka  # noqa: E402


async def main() -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=SERVERS, client_id="me") as producer:
        with trace.get_tracer("program").start_as_current_span("work"):
            await producer.send_and_wait(TOPIC, b"one", b"key", headers=[("mine", b"1")])
            await (await producer.send(TOPIC, value=b"two", partition=0))
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC, bootstrap_servers=SERVERS, group_id=f"{TOPIC}-group", auto_offset_reset="earliest"
    )
    async with consumer:
        first = await consumer.getone()
        batches = await consumer.getmany(timeout_ms=20000)
    print(json.dumps({"event": "headers", "names": [name for name, _ in first.headers]}))
    print(json.dumps({"event": "many", "records": sum(map(len, batches.values()))}))
    for span in spans.get_finished_spans():
        details = {
            "name": span.name,
            "trace": span.context.trace_id,
            "id": span.context.span_id,
            "parent": span.parent.span_id if span.parent else None,
            "links": [link.context.span_id for link in span.links],
            "attributes": dict(span.attributes or {}),
        }
        print(json.dumps({"event": "span", **details}), flush=True)


asyncio.run(main())
