"""Avro records with the serializers of confluent-kafka and a schema registry."""

from __future__ import annotations

import argparse
import asyncio
import sys

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

SCHEMA = """
{
  "type": "record",
  "name": "Order",
  "fields": [
    {"name": "customer", "type": "string"},
    {"name": "cents", "type": "long"},
    {"name": "currency", "type": "string", "default": "EUR"}
  ]
}
"""


async def run(bootstrap: str, registry_url: str, topic: str) -> None:
    registry = AsyncSchemaRegistryClient({"url": registry_url})
    async with registry:
        serializer = await AsyncAvroSerializer(registry, SCHEMA)
        deserializer = await AsyncAvroDeserializer(registry)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, value_serializer=serializer
        ) as producer:
            # The first record waits until its schema is registered.
            await producer.send(topic, {"customer": "ada", "cents": 150})
            await producer.send(topic, {"customer": "grace", "cents": 700, "currency": "USD"})
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=deserializer,
        ) as consumer:
            for _ in range(2):
                order = (await consumer.getone()).value
                print(order["customer"], order["cents"], order["currency"])


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
