"""Avro records of dataclasses, whose schemas dataclasses-avroschema derives.

It reads the annotations, so this module has no `from __future__ import annotations`.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from confluent_kafka.serialization import SerializationContext
from dataclasses_avroschema import AvroModel

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


@dataclass
class Order(AvroModel):
    customer: str
    cents: int
    currency: str = "EUR"


def to_dict(order: Any, ctx: SerializationContext) -> dict[str, Any]:
    return dict(order.asdict())


def from_dict(fields: dict[str, Any], ctx: SerializationContext) -> Order:
    return Order(**fields)


async def run(bootstrap: str, registry_url: str, topic: str) -> None:
    registry = AsyncSchemaRegistryClient({"url": registry_url})
    async with registry:
        serializer = await AsyncAvroSerializer(registry, Order.avro_schema(), to_dict)
        deserializer = await AsyncAvroDeserializer(registry, Order.avro_schema(), from_dict)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, value_serializer=serializer
        ) as producer:
            # The first record waits until its schema is registered.
            await producer.send(topic, Order("ada", 150))
            await producer.send(topic, Order("grace", 700, "USD"))
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=deserializer,
        ) as consumer:
            for _ in range(2):
                order = (await consumer.getone()).value
                print(order)


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
