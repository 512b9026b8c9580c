"""JSON records that are checked against a JSON Schema of a schema registry."""

from __future__ import annotations

import argparse
import asyncio
import sys

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import (
    AsyncJSONDeserializer,
    AsyncJSONSerializer,
)

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

SCHEMA = """
{
  "title": "Order",
  "type": "object",
  "properties": {
    "customer": {"type": "string"},
    "cents": {"type": "integer", "minimum": 0}
  },
  "required": ["customer", "cents"]
}
"""


async def run(bootstrap: str, registry_url: str, topic: str) -> None:
    registry = AsyncSchemaRegistryClient({"url": registry_url})
    async with registry:
        serializer = await AsyncJSONSerializer(SCHEMA, registry)
        deserializer = await AsyncJSONDeserializer(SCHEMA, schema_registry_client=registry)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, value_serializer=serializer
        ) as producer:
            # The first record waits until its schema is registered.
            await producer.send(topic, {"customer": "ada", "cents": 150})
            await producer.send(topic, {"customer": "grace", "cents": 700})
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=deserializer,
        ) as consumer:
            for _ in range(2):
                order = (await consumer.getone()).value
                print(order["customer"], order["cents"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--registry", default="http://localhost:8081", help="URL of the registry")
    parser.add_argument("--topic", default="orders")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.registry, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
