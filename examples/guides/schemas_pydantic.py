"""JSON records of Pydantic models, whose JSON Schemas are in a schema registry."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import (
    AsyncJSONDeserializer,
    AsyncJSONSerializer,
)
from confluent_kafka.serialization import SerializationContext
from pydantic import BaseModel, NonNegativeInt

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


class Order(BaseModel):
    customer: str
    cents: NonNegativeInt
    currency: str = "EUR"


SCHEMA = json.dumps(Order.model_json_schema())


def to_dict(order: Any, ctx: SerializationContext) -> dict[str, Any]:
    return dict(order.model_dump(mode="json"))


def from_dict(fields: dict[str, Any], ctx: SerializationContext) -> Order:
    return Order.model_validate(fields)


async def run(bootstrap: str, registry_url: str, topic: str) -> None:
    registry = AsyncSchemaRegistryClient({"url": registry_url})
    async with registry:
        serializer = await AsyncJSONSerializer(SCHEMA, registry, to_dict)
        deserializer = await AsyncJSONDeserializer(SCHEMA, from_dict, registry)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, value_serializer=serializer
        ) as producer:
            # The first record waits until its schema is registered.
            await producer.send(topic, Order(customer="ada", cents=150))
            await producer.send(topic, Order(customer="grace", cents=700, currency="USD"))
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
