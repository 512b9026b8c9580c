"""`consume --schema-registry`: records with a schema of a registry, printed as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.protobuf", exc_type=ImportError)

from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONSerializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from aiokafka import AIOKafkaProducer
from aiokafka.testing import FakeSchemaRegistry
from tests.cli.support import Cli, Done, Served

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "token", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.fixture
def registry(served: Served) -> Iterator[FakeSchemaRegistry]:
    """Yield a registry that runs in the loop of the cluster."""
    registry = FakeSchemaRegistry()
    served.run(registry.start())
    yield registry
    served.run(registry.stop())


def nested_message() -> Any:
    """Return a message type inside another one that is not the first of its file, with a field of a
    type that comes with Protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    line = file.message_type.add(name="Order").nested_type.add(name="Line")
    field = descriptor_pb2.FieldDescriptorProto
    optional = field.LABEL_OPTIONAL
    line.field.add(name="item_name", number=1, type=field.TYPE_STRING, label=optional)
    kind = ".google.protobuf.Timestamp"
    line.field.add(name="at", number=2, type=field.TYPE_MESSAGE, type_name=kind, label=optional)
    pool = descriptor_pool.DescriptorPool()
    well_known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(well_known)
    pool.Add(well_known)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order.Line"))


async def send(servers: str, topic: str, records: list[Any], **serializers: Any) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, **serializers) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key)


def sent(served: Served, registry: FakeSchemaRegistry, make: Any, *records: Any) -> None:
    """Send records to the topic "orders" with serializers that `make` creates."""

    async def work() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            serializers = await make(client)
            await send(served.cluster.bootstrap_servers, "orders", list(records), **serializers)

    served.topic("orders")
    asyncio.run(work())


async def avro(client: Any) -> dict[str, Any]:
    return {"value_serializer": await AsyncAvroSerializer(client, json.dumps(ORDER))}


A_RECORD = {"customer": "ada", "token": b"\x00\xff", "day": 20_000}


def consume(cli: Cli, registry: FakeSchemaRegistry, *options: str) -> Done:
    return cli.run(
        *("consume", "orders", "--exit-at-end", "--schema-registry", registry.url), *options
    )


def test_avro_values_are_printed_as_json(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    sent(served, registry, avro, (b"k", A_RECORD), (b"gone", None))
    done = consume(cli, registry, "--format", "%k %s\\n", "--null", "NULL")
    key, _, value = done.out.splitlines()[0].partition(" ")
    assert (key, json.loads(value)) == (
        "k",
        {"customer": "ada", "token": "\x00ÿ", "day": "2024-10-04"},
    )
    assert done.out.splitlines()[1] == "gone NULL"


def test_json_schema_values_are_printed_without_their_id(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    async def make(client: Any) -> dict[str, Any]:
        return {"value_serializer": await AsyncJSONSerializer(json.dumps(JSON_SCHEMA), client)}

    sent(served, registry, make, (None, {"n": 7}))
    assert json.loads(consume(cli, registry).out) == {"n": 7}


def test_protobuf_values_of_a_nested_type_are_printed_as_json(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    line = nested_message()

    async def make(client: Any) -> dict[str, Any]:
        return {"value_serializer": await AsyncProtobufSerializer(line, client)}

    record = line(item_name="tea")
    record.at.seconds = 86400
    sent(served, registry, make, (None, record))
    assert json.loads(consume(cli, registry).out) == {
        "item_name": "tea",
        "at": "1970-01-02T00:00:00Z",
    }


def test_the_id_of_a_schema_may_be_in_a_header(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    async def make(client: Any) -> dict[str, Any]:
        conf = {"schema.id.serializer": header_schema_id_serializer}
        return {"value_serializer": await AsyncAvroSerializer(client, json.dumps(ORDER), conf=conf)}

    sent(served, registry, make, (None, A_RECORD))
    assert json.loads(consume(cli, registry).out)["customer"] == "ada"


def test_keys_are_decoded_on_request(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    async def make(client: Any) -> dict[str, Any]:
        return {
            **await avro(client),
            "key_serializer": await AsyncAvroSerializer(client, '"string"'),
        }

    sent(served, registry, make, ("a key", A_RECORD))
    assert consume(cli, registry, "--format", "%k", "--decode-keys").out == '"a key"'
    assert consume(cli, registry, "--format", "%K").out == str(5 + 1 + len("a key"))


def test_filters_and_pretty_json_see_the_decoded_value(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    sent(served, registry, avro, (None, A_RECORD), (None, {**A_RECORD, "customer": "grace"}))
    done = consume(cli, registry, "--grep", '"customer": "g', "--pretty")
    assert json.loads(done.out)["value"]["customer"] == "grace"


def test_members_of_a_share_group_decode_as_well(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    sent(served, registry, avro, (None, A_RECORD))
    cli("configs", "alter", "group:packing", "share.auto.offset.reset=earliest")
    done = cli(
        *("consume", "orders", "--share-group", "packing", "--count", "1"),
        *("--schema-registry", registry.url),
    )
    assert json.loads(done.out)["customer"] == "ada"


def test_a_value_without_a_schema_is_an_error_that_names_the_record(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    served.topic("orders")
    asyncio.run(send(served.cluster.bootstrap_servers, "orders", [(None, b"plain")]))
    done = consume(cli, registry)
    assert done.code == 1 and done.out == ""
    assert len(done.err.splitlines()) == 1
    assert "offset 0" in done.err and "no schema id" in done.err


def test_a_schema_that_the_registry_does_not_have_is_an_error(
    cli: Cli, served: Served, registry: FakeSchemaRegistry
) -> None:
    served.topic("orders")
    value = b"\0" + (99).to_bytes(4, "big") + b"\2a"
    asyncio.run(send(served.cluster.bootstrap_servers, "orders", [(None, value)]))
    done = consume(cli, registry)
    assert done.code == 1 and "Schema 99 not found" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--decode-keys",), "needs --schema-registry"),
        (("--schema-registry", "localhost:8081"), "is not an http or https URL"),
        (("--schema-registry", "http://eve:secret@localhost"), "AIOKAFKA_SCHEMA_REGISTRY_AUTH"),
    ],
)
def test_wrong_usage_says_what_is_accepted(cli: Cli, options: tuple[str, ...], words: str) -> None:
    done = cli.run("consume", "orders", *options)
    assert done.code == 2 and words in done.err and "secret" not in done.err


def test_credentials_come_from_the_environment(
    cli: Cli, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = FakeSchemaRegistry(credentials=("ada", "secret"))
    served.run(closed.start())
    try:
        served.topic("orders")
        value = b"\0" + (99).to_bytes(4, "big") + b"\2a"
        asyncio.run(send(served.cluster.bootstrap_servers, "orders", [(None, value)]))
        assert "Unauthorized" in consume(cli, closed).err
        monkeypatch.setenv("AIOKAFKA_SCHEMA_REGISTRY_AUTH", "ada:secret")
        assert "Schema 99 not found" in consume(cli, closed).err
    finally:
        served.run(closed.stop())
