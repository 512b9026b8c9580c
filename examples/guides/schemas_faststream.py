"""FastStream with Avro and a schema registry: a decoder reads records, a serializer writes them.

FastStream decodes by itself, so it gets no deserializer. Its decoders may be `async`.
"""

from __future__ import annotations

import os
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

from aiokafka.serialization import MessageField, SerializationContext

ORDER = """
{
  "type": "record",
  "name": "Order",
  "fields": [{"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}]
}
"""
BILL = """
{
  "type": "record",
  "name": "Bill",
  "fields": [{"name": "customer", "type": "string"}, {"name": "total", "type": "long"}]
}
"""

registry = AsyncSchemaRegistryClient({"url": os.environ.get("REGISTRY", "http://localhost:8081")})
broker = KafkaBroker(os.environ.get("BOOTSTRAP", "localhost:9092"))
app = FastStream(broker)
serdes: dict[str, Any] = {}


@app.on_startup
async def make_serdes() -> None:
    serdes["read"] = await AsyncAvroDeserializer(registry)
    serdes["order"] = await AsyncAvroSerializer(registry, ORDER)
    serdes["bill"] = await AsyncAvroSerializer(registry, BILL)


async def decode(message: KafkaMessage) -> Any:
    record: Any = message.raw_message
    context = SerializationContext(record.topic, MessageField.VALUE, list(record.headers))
    return await serdes["read"](record.value, context)


async def encode(name: str, value: dict[str, Any], topic: str) -> bytes:
    encoded = await serdes[name](value, SerializationContext(topic, MessageField.VALUE, []))
    return bytes(encoded)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", decoder=decode)
async def bill(order: dict[str, Any]) -> None:
    total = {"customer": order["customer"], "total": order["cents"] * 2}
    await broker.publish(await encode("bill", total, "bills"), "bills")


@app.after_startup
async def order() -> None:
    value = {"customer": "ada", "cents": 150}
    await broker.publish(await encode("order", value, "orders"), "orders")


@app.after_shutdown
async def close() -> None:
    await registry.__aexit__(None, None, None)
