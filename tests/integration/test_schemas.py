"""confluent-kafka's awaiting serializers on a real Kafka, through every way to send and to read."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TransactionalSession
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import RecordDeserializationError
from aiokafka.parallel import ParallelConsumer
from aiokafka.share import AIOKafkaShareConsumer
from aiokafka.testing import FakeSchemaRegistry
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.support.schemas import CODECS, avro

COUNT = 6


@pytest.fixture
async def registry() -> AsyncIterator[FakeSchemaRegistry]:
    async with FakeSchemaRegistry() as fake:
        yield fake


@pytest.fixture
async def client(registry: FakeSchemaRegistry) -> AsyncIterator[AsyncSchemaRegistryClient]:
    async with AsyncSchemaRegistryClient({"url": registry.url, "max.retries": 0}) as one:
        yield one


class Topic:
    """A topic whose keys and values have schemas."""

    def __init__(self, kafka: Kafka, name: str, codec: tuple[Any, Any, Any]) -> None:
        self.servers = kafka.bootstrap_servers
        self.name = name
        self.serializer, self.deserializer, self.value = codec

    def producer(self, **options: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.servers,
            key_serializer=self.serializer,
            value_serializer=self.serializer,
            **options,
        )

    def reading(self, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.servers,
            "key_deserializer": self.deserializer,
            "value_deserializer": self.deserializer,
            **options,
        }

    def consumer(self, *topics: str, **options: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(*topics, auto_offset_reset="earliest", **self.reading(**options))

    async def fill(self, **options: Any) -> None:
        """Send COUNT records, by each way to send."""
        async with self.producer(**options) as producer:
            await producer.send(self.name, self.value, self.value)
            await producer.send_and_wait(self.name, self.value, self.value)
            batch = producer.create_batch(topic=self.name)
            for _ in range(COUNT - 2):
                await batch.append_async(timestamp=None, key=self.value, value=self.value)
            await (await producer.send_batch(batch, self.name, partition=0))

    def check(self, records: list[Any], count: int = COUNT) -> None:
        assert [(each.key, each.value) for each in records] == count * [(self.value, self.value)]


@pytest.mark.parametrize("kind", CODECS)
async def test_getone_getmany_and_async_for(
    kafka: Kafka, topic: str, client: AsyncSchemaRegistryClient, kind: Any
) -> None:
    orders = Topic(kafka, topic, await kind(client))
    await orders.fill()
    await client.clear_caches()
    async with timeout(60), orders.consumer(topic) as consumer:
        found = [await consumer.getone()]
        async for one in consumer:
            found.append(one)
            if len(found) == 3:
                break
        while len(found) < COUNT:
            for some in (await consumer.getmany(timeout_ms=5000)).values():
                found += some
    orders.check(found)
    assert [each.offset for each in found] == list(range(COUNT))


@pytest.mark.parametrize("kind", CODECS)
async def test_many_at_once(
    kafka: Kafka, topic: str, client: AsyncSchemaRegistryClient, kind: Any
) -> None:
    orders = Topic(kafka, topic, await kind(client))
    await orders.fill()
    await client.clear_caches()
    found: list[Any] = []
    consumer = orders.consumer(group_id=topic, enable_auto_commit=False)

    async def handle(record: Any) -> None:
        found.append(record)
        if len(found) == COUNT:
            parallel.request_stop()

    # A key that is a dict or a message cannot be hashed.
    parallel = ParallelConsumer(consumer, topics=[topic], key=lambda record: repr(record.key))
    async with timeout(60), parallel:
        await parallel.run(handle)
    orders.check(found)
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        offsets = await admin.list_consumer_group_offsets(topic)
    assert [each.offset for each in offsets.values()] == [COUNT]


@pytest.mark.parametrize("kind", CODECS)
async def test_exactly_once(
    kafka: Kafka, make_topic: MakeTopic, client: AsyncSchemaRegistryClient, kind: Any
) -> None:
    """A session whose first transaction is aborted reads, and deserializes, its records again."""
    source, target = await make_topic(), await make_topic()
    orders = Topic(kafka, source, await kind(client))
    await orders.fill()
    await client.clear_caches()
    committed = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    consumer = orders.consumer(source, group_id=source, **committed)
    session = TransactionalSession(consumer, orders.producer(transactional_id=source))
    copied = tries = 0
    async with timeout(60), session:
        async for transaction in session:
            tries += 1
            try:
                async with transaction as records:
                    orders.check(records, len(records))
                    for record in records:
                        await transaction.send(target, record.value, record.key)
                    if tries == 1:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            copied += len(records)
            if copied == COUNT:
                break
    async with timeout(60), orders.consumer(target, **committed) as consumer:
        found = [await consumer.getone() for _ in range(COUNT)]
        # Nothing but the end markers of the two transactions follows.
        assert not await consumer.getmany(timeout_ms=500)
    orders.check(found)


@pytest.mark.parametrize("kind", CODECS)
async def test_a_share_group(
    kafka: Kafka, topic: str, client: AsyncSchemaRegistryClient, kind: Any
) -> None:
    orders = Topic(kafka, topic, await kind(client))
    group = f"share-{uuid.uuid4().hex[:12]}"
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.configs.alter({("group", group): {"share.auto.offset.reset": "earliest"}})
    await orders.fill()
    await client.clear_caches()
    options = orders.reading(group_id=group)
    async with timeout(60), AIOKafkaShareConsumer(topic, **options) as consumer:
        found: list[Any] = [await consumer.getone()]
        while len(found) < COUNT:
            for some in (await consumer.getmany(timeout_ms=5000)).values():
                found += some
    orders.check(found)


async def test_confluents_client_reads_what_ours_sent(
    kafka: Kafka, topic: str, registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient
) -> None:
    orders = Topic(kafka, topic, await avro(client))
    await orders.fill()

    def read() -> list[Any]:
        context = SerializationContext(topic, MessageField.VALUE)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        found = consumer.consume(COUNT, 60)
        consumer.close()
        with SchemaRegistryClient({"url": registry.url}) as client:
            deserializer = AvroDeserializer(client)
            return [deserializer(message.value(), context) for message in found]

    assert await asyncio.to_thread(read) == COUNT * [orders.value]


async def test_a_registry_that_fails_while_records_are_read(
    kafka: Kafka, topic: str, registry: FakeSchemaRegistry, client: AsyncSchemaRegistryClient
) -> None:
    """A cancelled read and a failed one lose no record, and repeat none."""
    orders = Topic(kafka, topic, await avro(client))
    await orders.fill()
    await client.clear_caches()
    async with timeout(60), orders.consumer(topic) as consumer:
        registry.fail(500, 50001, "the store is down")
        with pytest.raises(RecordDeserializationError) as caught:
            await consumer.getone()
        assert (caught.value.topic_partition.topic, caught.value.offset) == (topic, 0)
        with registry.hold():
            seen = len(registry.requests)
            call = asyncio.create_task(consumer.getone())
            while len(registry.requests) == seen:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        found = [await consumer.getone() for _ in range(COUNT)]
    orders.check(found)
    assert [each.offset for each in found] == list(range(COUNT))
