"""Serializers and deserializers of confluent-kafka, unchanged, with a schema registry."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
)
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Codec = tuple[Any, Any, Any]
"""A serializer, its deserializer, and a value."""


def record(**fields: Any) -> str:
    """An Avro record; a field that is a pair has a default value."""
    return json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": name, "type": type_[0], "default": type_[1]}
                if isinstance(type_, tuple)
                else {"name": name, "type": type_}
                for name, type_ in fields.items()
            ],
        }
    )


ORDER = record(customer="string", cents="long")
JSON_ORDER = json.dumps(
    {"title": "Order", "type": "object", "properties": {"cents": {"type": "integer"}}}
)


async def avro(client: AsyncSchemaRegistryClient, **conf: Any) -> Codec:
    value = {"customer": "ada lovelace", "cents": 5}
    return (
        await AsyncAvroSerializer(client, ORDER, conf=conf),
        await AsyncAvroDeserializer(client),
        value,
    )


async def avro_in_headers(client: AsyncSchemaRegistryClient) -> Codec:
    return await avro(client, **{"schema.id.serializer": header_schema_id_serializer})


async def json_schema(client: AsyncSchemaRegistryClient) -> Codec:
    return (
        await AsyncJSONSerializer(JSON_ORDER, client),
        await AsyncJSONDeserializer(JSON_ORDER, schema_registry_client=client),
        {"cents": 5},
    )


async def protobuf(client: AsyncSchemaRegistryClient) -> Codec:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Order").field.add(
        name="cents", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return (
        await AsyncProtobufSerializer(order, client),
        await AsyncProtobufDeserializer(order, schema_registry_client=client),
        order(cents=5),
    )


CODECS = [avro, avro_in_headers, json_schema, protobuf]
