"""Send objects as JSON, compressed, and read them back as objects."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


def serialize(value: Any) -> bytes:
    return json.dumps(value).encode()


async def produce(bootstrap: str, topic: str, values: list[Any]) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, value_serializer=serialize, compression_type="gzip"
    )
    async with producer:
        for value in values:
            await producer.send(topic, value)
        # Leaving the block waits until everything is written.


async def consume(bootstrap: str, topic: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        value_deserializer=json.loads,
        auto_offset_reset="earliest",
    )
    async with consumer:
        for _ in range(count):
            # A consumer finds out by itself how a batch was compressed.
            record = await consumer.getone()
            print(type(record.value).__name__, record.value)


async def run(bootstrap: str, topic: str) -> None:
    values: list[Any] = [{"a": 123.4, "b": "some string"}, [1, 2, 3, 4]]
    await produce(bootstrap, topic, values)
    await consume(bootstrap, topic, len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-json-topic")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
