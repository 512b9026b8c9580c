"""A FastStream application: every kind of subscriber, publishers, both middlewares, SIGTERM.

It prints what happens as lines of JSON. Arguments: the servers, and a prefix for names of topics.
"""

import asyncio
import json
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, TopicPartition
from faststream.kafka.opentelemetry import KafkaTelemetryMiddleware
from faststream.kafka.prometheus import KafkaPrometheusMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

SERVERS, PREFIX = sys.argv[1:]

registry = CollectorRegistry()
spans = InMemorySpanExporter()
tracing = TracerProvider()
tracing.add_span_processor(SimpleSpanProcessor(spans))
broker = KafkaBroker(
    SERVERS,
    middlewares=[
        KafkaTelemetryMiddleware(tracer_provider=tracing),
        KafkaPrometheusMiddleware(registry=registry),
    ],
)
app = FastStream(broker)


def tell(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


@broker.subscriber(f"{PREFIX}-in", group_id=f"{PREFIX}-single", auto_offset_reset="earliest")
@broker.publisher(f"{PREFIX}-out")
async def single(body: str) -> str:
    tell("single", body=body)
    return body.upper()


@broker.subscriber(
    f"{PREFIX}-batch",
    group_id=f"{PREFIX}-batch",
    batch=True,
    batch_timeout_ms=200,
    auto_offset_reset="earliest",
)
async def batch(bodies: list[str]) -> None:
    tell("batch", bodies=bodies)


@broker.subscriber(
    pattern=f"{PREFIX}-pattern-.*", group_id=f"{PREFIX}-pattern", auto_offset_reset="earliest"
)
async def pattern(body: str, message: KafkaMessage) -> None:
    tell("pattern", body=body, topic=message.raw_message.topic)


@broker.subscriber(partitions=[TopicPartition(f"{PREFIX}-parts", 1)], auto_offset_reset="earliest")
async def partition(body: str) -> None:
    tell("partition", body=body)


tries: dict[str, int] = {}


@broker.subscriber(
    f"{PREFIX}-ack",
    group_id=f"{PREFIX}-ack",
    ack_policy=AckPolicy.MANUAL,
    auto_offset_reset="earliest",
)
async def acknowledged(body: str, message: KafkaMessage) -> None:
    tries[body] = tries.get(body, 0) + 1
    tell("ack", body=body, tries=tries[body])
    if body == "bad" and tries[body] == 1:
        await message.nack()
    elif body != "left":
        await message.ack()


@broker.subscriber(f"{PREFIX}-ask", group_id=f"{PREFIX}-ask", auto_offset_reset="earliest")
async def asked(body: str) -> str:
    return f"answer to {body}"


@app.after_startup
async def publish() -> None:
    await broker.publish_batch("one", "two", "three", topic=f"{PREFIX}-batch")
    result = await broker.publish("hello", f"{PREFIX}-in", key=b"k", headers={"h": "1"})
    tell("started", offset=result.offset)


@app.after_shutdown
async def report() -> None:
    counters = {
        sample.labels["handler"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "faststream_received_messages_total"
    }
    tell("metrics", received=counters)
    found = [
        {
            "name": span.name,
            "trace": span.context.trace_id,
            "id": span.context.span_id,
            "parent": span.parent.span_id if span.parent else None,
        }
        for span in spans.get_finished_spans()
    ]
    tell("spans", spans=found)


asyncio.run(app.run())
tell("stopped")
