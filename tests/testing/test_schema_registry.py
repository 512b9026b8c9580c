"""The fake schema registry, through the client and the serializers of confluent-kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
)
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import RecordDeserializationError
from aiokafka.serialization import MessageField, SerializationContext
from aiokafka.testing import FakeCluster, FakeSchemaRegistry
from tests.support.schemas import CODECS, ORDER, avro, record


@pytest.fixture
async def registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as fake:
        yield fake


@pytest.fixture
async def client(registry: FakeSchemaRegistry) -> AsyncIterator[AsyncSchemaRegistryClient]:
    async with AsyncSchemaRegistryClient({"url": registry.url, "max.retries": 0}) as one:
        yield one


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic("t")
        yield fake


def refused(code: int) -> Any:
    return pytest.raises(SchemaRegistryError, match=str(code))


# -- serializers of confluent-kafka, unchanged


@pytest.mark.parametrize("kind", CODECS)
async def test_records_through_all_ways_of_reading(
    cluster: FakeCluster,
    registry: FakeSchemaRegistry,
    client: AsyncSchemaRegistryClient,
    kind: Any,
) -> None:
    serializer, deserializer, value = await kind(client)
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        key_serializer=serializer,
        value_serializer=serializer,
    ) as producer:
        await producer.send("t", value, value)
        await producer.send_and_wait("t", value, value)
        batch = producer.create_batch(topic="t")
        for _ in range(4):
            await batch.append_async(timestamp=None, key=value, value=value)
        await (await producer.send_batch(batch, "t", partition=0))
    assert registry.subjects() == {"t-key": [1], "t-value": [1]}
    sent = len(registry.requests)
    await client.clear_caches()
    async with AIOKafkaConsumer(
        "t",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer=deserializer,
        value_deserializer=deserializer,
    ) as consumer:
        found = [await consumer.getone()]
        async for one in consumer:
            found.append(one)
            if len(found) == 3:
                break
        while len(found) < 6:
            for some in (await consumer.getmany(timeout_ms=5000)).values():
                found += some
    assert [(each.key, each.value) for each in found] == 6 * [(value, value)]
    # A schema is asked for once, not for each record.
    assert len(registry.requests) - sent <= 6


async def test_a_registry_that_fails_and_recovers(
    cluster: FakeCluster, registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient
) -> None:
    serializer, deserializer, value = await avro(client)
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, value_serializer=serializer) as producer:
        registry.fail(500, 50001, "the store is down")
        with refused(50001):
            await producer.send("t", value)
        with registry.hold():
            call = asyncio.create_task(producer.send("t", value))
            seen = len(registry.requests)
            while len(registry.requests) == seen:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await producer.send_and_wait("t", value)
    await client.clear_caches()
    async with AIOKafkaConsumer(
        "t",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
    ) as consumer:
        registry.fail(500, 50001, "the store is down")
        with pytest.raises(RecordDeserializationError) as caught:
            await consumer.getone()
        assert isinstance(caught.value.cause, SchemaRegistryError)
        assert (await consumer.getone()).value == value
    assert len(cluster.log("t").records()) == 1


# -- subjects, versions and ids


async def test_ids_are_of_schemas_and_versions_of_subjects(
    registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient
) -> None:
    first = Schema(ORDER, "AVRO")
    second = Schema(record(customer="string", cents="long", note=("string", "")), "AVRO")
    one = await client.register_schema("a", first)
    assert await client.register_schema("b", first) == one
    assert await client.register_schema("a", Schema(ORDER.replace(" ", ""), "AVRO")) == one
    two = await client.register_schema("a", second)
    assert (one, two) == (1, 2)
    assert registry.subjects() == {"a": [1, 2], "b": [1]}
    assert await client.get_subjects() == ["a", "b"]
    assert await client.get_versions("a") == [1, 2]
    latest = await client.get_latest_version("a")
    assert (latest.version, latest.schema_id, latest.subject) == (2, 2, "a")
    assert (await client.get_version("a", 1)).schema_id == 1
    assert (await client.lookup_schema("a", second)).version == 2
    await client.clear_caches()
    assert (await client.get_schema(1)).schema_str == ORDER == registry.schema(1)
    assert latest.guid is not None
    assert (await client.get_schema_by_guid(latest.guid)).schema_str == second.schema_str
    assert await client.get_subjects_by_schema_id(1) == ["a", "b"]
    versions = await client.get_schema_versions(1)
    assert [(each.subject, each.version) for each in versions] == [("a", 1), ("b", 1)]
    assert set(await client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert registry.register("c", {"type": "string"}) == 3


async def test_references(registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient) -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "n", "type": "long"}]}
    registry.register("money", money)
    reference = SchemaReference("shop.Money", "money", 1)
    schema = Schema(record(price="shop.Money"), "AVRO", [reference])
    number = await client.register_schema("t-value", schema)
    assert (await client.get_schema(number)).references == [reference]
    assert await client.get_referenced_by("money", 1) == [number]
    with refused(42206):
        await client.delete_subject("money")
    with refused(42201):
        missing = SchemaReference("shop.Money", "money", 7)
        await client.register_schema("u", Schema(record(p="shop.Money"), "AVRO", [missing]))
    serializer = await AsyncAvroSerializer(client, schema)
    deserializer = await AsyncAvroDeserializer(client)
    context: Any = SerializationContext("t", MessageField.VALUE, [])
    data = await serializer({"price": {"n": 5}}, context)
    assert await deserializer(data, context) == {"price": {"n": 5}}


async def test_deletion(registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient) -> None:
    registry.register("a", ORDER)
    registry.register("a", record(customer="string", cents="long", n=("int", 0)))
    assert await client.delete_version("a", 1) == 1
    assert await client.get_versions("a") == [2]
    assert await client.get_versions("a", deleted=True) == [1, 2]
    with refused(40402):
        await client.get_version("a", 1)
    with refused(40407):
        await client.delete_version("a", 2, permanent=True)
    assert await client.delete_version("a", 1, permanent=True) == 1
    with refused(40405):
        await client.delete_subject("a", permanent=True)
    assert await client.delete_subject("a") == [2]
    assert registry.subjects() == {}
    assert await client.delete_subject("a", permanent=True) == [2]
    registry.register("a", ORDER)
    assert registry.schema(1) == ORDER


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (40401, lambda c: c.get_versions("none")),
        (40401, lambda c: c.delete_subject("none")),
        (40402, lambda c: c.get_version("a", 9)),
        (42202, lambda c: c.get_version("a", "x")),
        (40403, lambda c: c.get_schema(99)),
        (40403, lambda c: c.get_schema_by_guid("00000000-0000-0000-0000-000000000000")),
        (40403, lambda c: c.lookup_schema("a", Schema('"string"', "AVRO"))),
        (42201, lambda c: c.register_schema("b", Schema('{"type": "record"}', "AVRO"))),
        (42201, lambda c: c.register_schema("b", Schema("no json", "JSON"))),
        (42201, lambda c: c.register_schema("b", Schema('"string"', "XML"))),
        (42203, lambda c: c.set_compatibility("a", "SOMETIMES")),
        (42204, lambda c: c.update_mode("a", "ASLEEP")),
        (40408, lambda c: c.get_compatibility("a")),
        (40409, lambda c: c.get_mode("a")),
    ],
)
async def test_errors(
    registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient, code: int, call: Any
) -> None:
    registry.register("a", ORDER)
    with refused(code):
        await call(client)
    with pytest.raises(ValueError):
        registry.register("b", "no json")


async def test_modes(registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient) -> None:
    assert await client.get_global_mode() == "READWRITE"
    await client.update_mode("a", "READONLY")
    with refused(42205):
        await client.register_schema("a", Schema(ORDER, "AVRO"))
    assert await client.delete_mode("a") == "READONLY"
    assert await client.register_schema("a", Schema(ORDER, "AVRO")) == 1


# -- compatibility

WITH_DEFAULT = record(customer="string", cents="long", note=("string", ""))
WITHOUT_DEFAULT = record(customer="string", cents="long", note="string")
NARROWER = record(customer="string", cents="int")
WITHOUT_CENTS = record(customer="string")


@pytest.mark.parametrize(
    ("level", "schema", "is_compatible"),
    [
        ("BACKWARD", WITH_DEFAULT, True),
        ("BACKWARD", WITHOUT_DEFAULT, False),
        ("BACKWARD", WITHOUT_CENTS, True),
        ("BACKWARD", NARROWER, False),
        ("FORWARD", WITHOUT_DEFAULT, True),
        ("FORWARD", WITHOUT_CENTS, False),
        ("FORWARD", NARROWER, True),
        ("FULL", WITH_DEFAULT, True),
        ("FULL_TRANSITIVE", WITHOUT_CENTS, False),
        ("NONE", '"string"', True),
        ("BACKWARD", '["null", ' + ORDER + "]", True),
        ("FORWARD", '["null", ' + ORDER + "]", False),
    ],
)
async def test_compatibility(
    registry: FakeSchemaRegistry,
    client: AsyncSchemaRegistryClient,
    level: str,
    schema: str,
    is_compatible: bool,
) -> None:
    registry.register("a", ORDER)
    assert await client.get_compatibility() == "BACKWARD"
    await client.set_compatibility("a", level)
    assert await client.get_compatibility("a") == level
    new = Schema(schema, "AVRO")
    assert await client.test_compatibility("a", new) is is_compatible
    assert await client.test_compatibility_all_versions("a", new) is is_compatible
    if is_compatible:
        await client.register_schema("a", new)
    else:
        with refused(409):
            await client.register_schema("a", new)


# -- HTTP


async def test_credentials() -> None:
    async with FakeSchemaRegistry(credentials=("ada", "secret")) as registry:
        registry.register("a", ORDER)
        host = registry.url.removeprefix("http://")
        for user, is_right in (("ada:secret", True), ("ada:wrong", False)):
            conf = {"url": f"http://{host}", "basic.auth.user.info": user}
            async with AsyncSchemaRegistryClient(conf) as client:
                if is_right:
                    assert await client.get_subjects() == ["a"]
                else:
                    with refused(401):
                        await client.get_subjects()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00hello\r\n\r\n",
        b"GET /subjects\r\n\r\n",
        b"POST /subjects/a HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /subjects/a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_http_closes_the_connection(
    registry: FakeSchemaRegistry, sent: bytes
) -> None:
    port = int(registry.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        assert await reader.read() == b""
    except ConnectionError:
        pass
    writer.close()


async def test_a_body_that_is_no_json(registry: FakeSchemaRegistry) -> None:
    port = int(registry.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /subjects/a/versions HTTP/1.1\r\nContent-Length: 3\r\n\r\n{{{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_start_and_stop() -> None:
    registry = FakeSchemaRegistry()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = registry.url
    await registry.start()
    with pytest.raises(RuntimeError, match="already"):
        await registry.start()
    await registry.stop()
    await registry.stop()
