"""Programs that are right, as users write them: type checkers have nothing to say."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from typing_extensions import assert_type

from aiokafka import (
    AIOKafkaClient,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    AIOKafkaShareConsumer,
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    ShareRecord,
    TopicPartition,
    TransactionalSession,
)
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.interceptors import ConsumerInterceptor, ProducerInterceptor
from aiokafka.options import ClientOptions, ConsumerOptions
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.serialization import SerializationContext
from aiokafka.structs import RecordMetadata
from aiokafka.tables import CompactedTable

TP = TopicPartition("orders", 0)


@dataclass
class Order:
    id: int


def as_order(raw: bytes) -> Order:
    return Order(**json.loads(raw))


def as_order_or_none(raw: bytes | None) -> Order | None:
    return None if raw is None else as_order(raw)


def as_json(raw: bytes) -> Any:
    return json.loads(raw)


def dump_order(order: Order) -> bytes:
    return json.dumps(order.__dict__).encode()


def dump_json(value: Any) -> bytes:
    return json.dumps(value).encode()


# -- what deserializers make of records


async def raw_records() -> None:
    consumer = AIOKafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")
    assert_type(consumer, AIOKafkaConsumer[bytes | None, bytes | None])
    record = await consumer.getone()
    assert_type(record, ConsumerRecord[bytes | None, bytes | None])
    if record.value is not None:
        record.value.decode()


async def orders() -> None:
    async with AIOKafkaConsumer("orders", value_deserializer=as_order) as consumer:
        assert_type(consumer, AIOKafkaConsumer[bytes | None, Order])
        async for record in consumer:
            assert_type(record.value, Order)
            assert_type(record.key, bytes | None)
            print(record.topic, record.offset, record.value.id, dict(record.headers))
        for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
            print(tp.topic, [each.value.id for each in records])


async def other_deserializers(is_raw: bool) -> None:
    both = AIOKafkaConsumer(key_deserializer=bytes.decode, value_deserializer=as_order_or_none)
    assert_type(both, AIOKafkaConsumer[str, Order | None])
    assert_type((await both.getone()).value, Order | None)
    of_json = AIOKafkaConsumer(value_deserializer=json.loads)
    print((await of_json.getone()).value["id"])
    print((await AIOKafkaConsumer(value_deserializer=as_json).getone()).value["id"])
    by_lambda = AIOKafkaConsumer(key_deserializer=lambda raw: raw.decode())
    assert_type((await by_lambda.getone()).key, str)
    nothing = AIOKafkaConsumer(key_deserializer=None, value_deserializer=as_order)
    assert_type((await nothing.getone()).value, Order)
    either = AIOKafkaConsumer(value_deserializer=None if is_raw else as_order)
    await either.getone()


async def as_order_later(data: bytes) -> Order:
    return as_order(data)


async def str_later(data: bytes, ctx: SerializationContext | None = None) -> str:
    return data.decode() if ctx is None else ctx.topic


async def deserializers_that_await() -> None:
    late = AIOKafkaConsumer(key_deserializer=str_of, value_deserializer=as_order_later)
    assert_type(late, AIOKafkaConsumer[str, Order])
    both = AIOKafkaConsumer(key_deserializer=str_later, value_deserializer=as_order_later)
    assert_type((await both.getone()).key, str)
    one = AIOKafkaConsumer(key_deserializer=str_later)
    assert_type((await one.getone()).key, str)
    mixed = AIOKafkaConsumer(key_deserializer=str_later, value_deserializer=as_order)
    assert_type((await mixed.getone()).value, Order)


class Service:
    """Without parameters, a consumer of anything; with them, of what they say."""

    def __init__(self) -> None:
        self.any: AIOKafkaConsumer | None = None
        self.orders: AIOKafkaConsumer[bytes | None, Order] | None = None
        self.producer: AIOKafkaProducer = AIOKafkaProducer(value_serializer=dump_order)

    async def start(self) -> None:
        self.any = AIOKafkaConsumer("orders", value_deserializer=as_order)
        self.orders = AIOKafkaConsumer("orders", value_deserializer=as_order)
        await consume(self.any)
        await consume(self.orders)
        await ship(await self.orders.getone())


async def consume(consumer: AIOKafkaConsumer) -> None:
    handle(await consumer.getone())


def handle(record: ConsumerRecord) -> None:
    print(record.value.anything)


async def ship(record: ConsumerRecord[bytes | None, Order]) -> None:
    print(record.value.id)


def make() -> AIOKafkaConsumer[str, Order]:
    return AIOKafkaConsumer[str, Order](key_deserializer=str_of, value_deserializer=as_order)


def str_of(raw: bytes) -> str:
    return raw.decode()


class OrderConsumer(AIOKafkaConsumer[str, Order]):
    """A subclass with arguments of its own."""

    def __init__(self, *topics: str, group: str, **options: Any) -> None:
        super().__init__(
            *topics,
            group_id=group,
            key_deserializer=str_of,
            value_deserializer=as_order,
            **options,
        )


async def of_subclass() -> None:
    async with OrderConsumer("orders", group="billing", client_id="a") as consumer:
        assert_type((await consumer.getone()).value, Order)


# -- what serializers take


async def raw_values() -> None:
    async with AIOKafkaProducer(bootstrap_servers=["a:9092", "b:9092"]) as producer:
        future = await producer.send("orders", b"value", key=bytearray(b"key"))
        assert_type(await future, RecordMetadata)
        metadata = await producer.send_and_wait(
            "orders", memoryview(b"value"), headers=[("a", b"")]
        )
        print(metadata.offset)
        await producer.send("orders", None, b"tombstone")
        batch = producer.create_batch()
        batch.append(key=None, value=b"value", timestamp=None)
        await producer.send_batch(batch, "orders", partition=0)


async def typed_values() -> None:
    producer = AIOKafkaProducer(key_serializer=str.encode, value_serializer=dump_order)
    await producer.send("orders", Order(1), "key")
    await producer.send("orders", key="tombstone")
    loose = AIOKafkaProducer(value_serializer=lambda value: json.dumps(value).encode())
    await loose.send("orders", {"id": 1}, b"key")
    await loose.send("orders", [1, 2])
    optional = AIOKafkaProducer(
        key_serializer=lambda key: key.encode("utf-8") if key else None, value_serializer=dump_json
    )
    await optional.send("orders", {"id": 1}, "key")
    nothing = AIOKafkaProducer(key_serializer=None, value_serializer=dump_order)
    await nothing.send("orders", Order(1), b"key")
    chosen: AIOKafkaProducer[str, Order] = AIOKafkaProducer(
        key_serializer=lambda key: key.encode(), value_serializer=lambda value: dump_order(value)
    )
    await chosen.send("orders", Order(1), "key")
    late = AIOKafkaProducer(key_serializer=dump_later, value_serializer=dump_order)
    await late.send("orders", Order(1), "key")
    await late.create_batch(topic="orders").append_async(timestamp=None, key="k", value=Order(1))


async def dump_later(key: str, ctx: SerializationContext | None = None) -> bytes:
    return key.encode() if ctx is None else ctx.topic.encode()


async def transactions() -> None:
    producer = AIOKafkaProducer(transactional_id="billing", acks="all", enable_idempotence=True)
    async with producer, producer.transaction():
        await producer.send("orders", b"value")
        await producer.send_offsets_to_transaction({TP: OffsetAndMetadata(7, "")}, "billing")


# -- options


class Tokens(AbstractTokenProvider):
    """A provider of the application."""

    async def token(self) -> str:
        return "token"


class Seen(ConsumerInterceptor, ProducerInterceptor):
    """Interceptors of both kinds."""


async def options(level: Literal["read_committed", "read_uncommitted"]) -> None:
    cluster: ClientOptions = {"bootstrap_servers": "localhost:9092", "request_timeout_ms": 1500.5}
    group: ConsumerOptions = {"group_id": "billing", "auto_offset_reset": "earliest"}
    interceptors = [Seen()]
    AIOKafkaConsumer("orders", **cluster, isolation_level=level)
    AIOKafkaConsumer("orders", **group)
    AIOKafkaConsumer("orders", interceptors=interceptors)
    AIOKafkaConsumer("orders", auto_offset_reset=timedelta(hours=1), max_poll_records=None)
    AIOKafkaConsumer(partition_assignment_strategy=[RangePartitionAssignor])
    AIOKafkaProducer(**cluster, compression_type="zstd", acks=1)
    AIOKafkaProducer(interceptors=interceptors)
    AIOKafkaProducer(partitioner=lambda key, every, available: every[0], linger_ms=5)
    AIOKafkaAdminClient(**cluster)
    AIOKafkaAdminClient(sasl_mechanism="SCRAM-SHA-256")
    AIOKafkaClient(**cluster)
    AIOKafkaClient(security_protocol="SASL_SSL")
    AIOKafkaConsumer(
        bootstrap_servers=("a:9092", "b:9092"),
        ssl_context=ssl.create_default_context(),
        sasl_plain_username=lambda: "user",
        sasl_plain_password="secret",
        sasl_oauth_token_provider=Tokens(),
    )
    from_file: dict[str, Any] = json.loads("{}")
    AIOKafkaConsumer("orders", value_deserializer=as_order, **from_file)
    AIOKafkaProducer(**from_file)


# -- positions, assignments, listeners


class OfSet(ConsumerRebalanceListener):
    """As most programs for aiokafka have it."""

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        print(sorted(revoked))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        print(len(assigned))


class OfFrozenset(ConsumerRebalanceListener):
    """As they come."""

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        print(revoked | {TP})

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(assigned - {TP})

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        super().on_partitions_lost(lost)


class OfCollection(AsyncConsumerRebalanceListener):
    """With the least that is needed."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        print(len(revoked))

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        print(len(assigned))

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        await super().on_partitions_lost(lost)


class Inner(ConsumerRebalanceListener):
    """Passes calls on."""

    def __init__(self, inner: ConsumerRebalanceListener) -> None:
        self.inner = inner

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        result = self.inner.on_partitions_revoked(revoked)
        if result is not None:
            await result

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.inner.on_partitions_assigned(assigned)


async def positions() -> None:
    consumer = AIOKafkaConsumer(group_id="billing")
    for listener in (OfSet(), OfFrozenset(), OfCollection(), Inner(OfSet())):
        consumer.subscribe(["orders"], listener=listener)
    consumer.subscribe({"orders"})
    consumer.subscribe(("orders",))
    consumer.subscribe(pattern="orders-.*")
    consumer.unsubscribe()
    consumer.assign([TP])
    consumer.seek(TP, 7)
    await consumer.seek_to_beginning(TP)
    await consumer.seek_to_end()
    await consumer.commit()
    await consumer.commit({TP: 7})
    await consumer.commit({TP: (7, "metadata")})
    await consumer.commit({TP: OffsetAndMetadata(7, "metadata")})
    assert_type(await consumer.committed(TP), int | None)
    assert_type(await consumer.position(TP), int)
    ends = await consumer.end_offsets([TP])
    print(ends[TP] - (consumer.highwater(TP) or 0))
    found = (await consumer.offsets_for_times({TP: 0}))[TP]
    print(found.offset if found else "none")
    consumer.pause(TP)
    consumer.resume(*consumer.paused())
    print(consumer.assignment() - {TP}, consumer.partitions_for_topic("orders"))


# -- sessions, parallel processing, retries


async def session() -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        group_id="billing",
        enable_auto_commit=False,
        isolation_level="read_committed",
        value_deserializer=as_order,
    )
    producer = AIOKafkaProducer(transactional_id="billing", value_serializer=dump_order)
    async with TransactionalSession(consumer, producer) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    assert_type(record.value, Order)
                    await transaction.send("bills", Order(record.value.id), record.key)


async def tables() -> None:
    raw = CompactedTable("settings")
    assert_type(raw, CompactedTable[bytes, bytes])
    assert_type(raw[b"colour"], bytes)
    plain = CompactedTable("orders", max_bytes=1000, value_deserializer=as_order)
    assert_type(plain, CompactedTable[bytes, Order])
    later = CompactedTable(
        "orders", key_deserializer=bytes.decode, value_deserializer=as_order_later
    )
    assert_type(later, CompactedTable[str, Order])
    async with later as table:
        assert_type(table.get("a"), Order | None)
        for key, order in table.items():
            print(key.upper(), order.id)
        snapshot, changes = table.snapshot_and_changes()
        assert_type(snapshot["a"], Order)
        print(snapshot.offsets[TP])
        async for change in changes:
            assert_type(change.key, str)
            assert_type(change.old, Order | None)
        await table.read_to_end()


async def parallel(producer: AIOKafkaProducer[bytes, Order]) -> None:
    consumer = AIOKafkaConsumer("orders", group_id="billing", value_deserializer=as_order)
    retry = RetryTopics(producer, [1000, 10_000], retry_on=[OSError])
    workers = ParallelConsumer(
        consumer, concurrency=8, order="key", key=lambda record: record.value.id, retry=retry
    )

    async def work(record: ConsumerRecord[bytes | None, Order]) -> None:
        print(record.value.id)

    async with workers:
        await workers.run(work)
        await workers.run(handle)
        async for each in workers:
            async with each as record:
                assert_type(record.value, Order)


async def retries_of_others() -> None:
    raw = AIOKafkaConsumer("orders", group_id="billing")
    ParallelConsumer(raw, retry=RetryTopics(AIOKafkaProducer(), [1000]))
    loose = AIOKafkaProducer(value_serializer=lambda value: json.dumps(value).encode())
    typed = AIOKafkaConsumer("orders", group_id="billing", value_deserializer=as_order_or_none)
    ParallelConsumer(typed, retry=RetryTopics(loose, [1000]))
    strict = AIOKafkaProducer(value_serializer=dump_order)
    ParallelConsumer(typed, retry=RetryTopics(strict, [1000]))


async def queues(producer: AIOKafkaProducer[bytes, Order]) -> None:
    consumer = AIOKafkaShareConsumer("orders", group_id="packing", value_deserializer=as_order)

    async def work(record: ShareRecord[bytes | None, Order]) -> None:
        print(record.value.id, record.delivery_count)

    async with consumer:
        await consumer.process(work, retry=RetryTopics(producer, [1000]))
        async for record in consumer:
            assert_type(record.value, Order)
    raw = AIOKafkaShareConsumer("orders", group_id="packing")
    await raw.process(print, retry=RetryTopics(AIOKafkaProducer(), [1000]))


# -- administration


async def administration() -> None:
    async with AIOKafkaAdminClient() as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=1)])
        await admin.create_partitions({"orders": NewPartitions(6)})
        topics: list[str] = await admin.list_topics()
        offsets = await admin.list_consumer_group_offsets("billing")
        print(topics, {tp.topic: each.offset for tp, each in offsets.items()})
        cluster = await admin.describe_cluster()
        assert_type(cluster["brokers"][0]["rack"], str | None)
        for topic in await admin.describe_topics(["orders"]):
            print(topic["topic"], [each["leader"] for each in topic["partitions"]])
        for result in await admin.describe_consumer_groups(["billing"]):
            print([(group.group, group.state) for group in result.groups])
        described = await admin.topics.describe(["orders"])
        print({name: len(each.partitions) for name, each in described.items()})
        await admin.delete_topics(["orders"])


asyncio.run(orders())
