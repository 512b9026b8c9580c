"""Sends, reads and commits records under ddtrace; prints the spans."""

import asyncio
import json
import sys

import ddtrace.auto  # noqa: F401
from ddtrace import tracer
from ddtrace.trace import TraceFilter

import aiokafka

SERVERS, TOPIC = sys.argv[1:]


class Printing(TraceFilter):
    """Prints what would go to an agent, of which there is none."""

    def process_trace(self, trace):
        for span in trace:
            details = {
                "name": span.name,
                "resource": span.resource,
                "trace": span.trace_id,
                "id": span.span_id,
                "parent": span.parent_id,
                "tags": {str(key): str(value) for key, value in span.get_tags().items()},
            }
            print(json.dumps({"event": "span", **details}), flush=True)
        return None


tracer.configure(trace_processors=[Printing()])


async def main() -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=SERVERS) as producer:
        with tracer.trace("work"):
            await producer.send_and_wait(TOPIC, b"one", b"key")
            await (await producer.send(TOPIC, value=b"two", partition=0))
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        group_id=f"{TOPIC}-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        first = await consumer.getone()
        batches = await consumer.getmany(timeout_ms=20000)
        await consumer.commit()
    print(json.dumps({"event": "headers", "names": [name for name, _ in first.headers]}))
    print(json.dumps({"event": "many", "records": sum(map(len, batches.values()))}))


asyncio.run(main())
tracer.flush()
