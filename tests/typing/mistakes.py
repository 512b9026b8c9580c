"""Programs with mistakes: type checkers have to find each, in its line, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aiokafka import (
    AIOKafkaClient,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    AIOKafkaShareConsumer,
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
    TransactionalSession,
)
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.options import ClientOptions
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.tables import CompactedTable

TP = TopicPartition("orders", 0)


@dataclass
class Order:
    id: int


def as_order(raw: bytes) -> Order:
    return Order(**json.loads(raw))


def of_text(text: str) -> Order:
    return Order(int(text))


def dump_order(order: Order) -> bytes:
    return json.dumps(order.__dict__).encode()


def dump_text(order: Order) -> str:
    return json.dumps(order.__dict__)


# -- options


async def names_and_values_of_options() -> None:
    AIOKafkaConsumer("orders", group="billing")  # mistake
    AIOKafkaConsumer("orders", bootstrap_server="localhost:9092")  # mistake
    AIOKafkaConsumer("orders", auto_offset_reset="earlist")  # mistake
    AIOKafkaConsumer("orders", isolation_level="committed")  # mistake
    AIOKafkaConsumer("orders", group_protocol="Consumer")  # mistake
    AIOKafkaConsumer("orders", enable_auto_commit="false")  # mistake
    AIOKafkaConsumer("orders", max_poll_records="100")  # mistake
    AIOKafkaConsumer("orders", session_timeout_ms="10s")  # mistake
    AIOKafkaConsumer("orders", linger_ms=5)  # mistake
    AIOKafkaConsumer(["orders"])  # mistake
    AIOKafkaProducer(acks="1")  # mistake
    AIOKafkaProducer(acks=2)  # mistake
    AIOKafkaProducer(compression_type="zip")  # mistake
    AIOKafkaProducer(group_id="billing")  # mistake
    AIOKafkaProducer("localhost:9092")  # mistake
    AIOKafkaProducer(bootstrap_servers=9092)  # mistake
    AIOKafkaProducer(batch_size=16384)  # mistake
    AIOKafkaProducer(partitioner=lambda key: 0)  # mistake
    AIOKafkaClient(security_protocol="TLS")  # mistake
    AIOKafkaClient(client_id=7)  # mistake
    AIOKafkaAdminClient(sasl_mechanism="SCRAM")  # mistake
    AIOKafkaAdminClient(group_id="billing")  # mistake
    options: ClientOptions = {"bootstrap_server": "localhost"}  # mistake
    AIOKafkaConsumer(**options)


# -- keys and values


async def reading() -> None:
    raw = AIOKafkaConsumer("orders")
    record = await raw.getone()
    record.value.decode()  # mistake
    record.key.decode()  # mistake
    record.values()  # mistake
    record.headers["a"]  # mistake
    typed = AIOKafkaConsumer("orders", value_deserializer=as_order)
    order = (await typed.getone()).value
    order.name  # mistake
    order.decode()  # mistake
    async for each in typed:
        print(each.value["id"])  # mistake
    for records in (await typed.getmany()).values():
        records.clear()
        records.value  # mistake
    list(typed)  # mistake
    ship(await raw.getone())  # mistake
    ship(typed.getone())  # mistake
    AIOKafkaConsumer("orders", value_deserializer=of_text)  # mistake
    AIOKafkaConsumer("orders", value_deserializer=Order(1))  # mistake
    other: AIOKafkaConsumer[str, Order] = AIOKafkaConsumer(key_deserializer=as_order)  # mistake
    print(other)


def ship(record: ConsumerRecord[bytes | None, Order]) -> None:
    print(record.value.id)


async def writing() -> None:
    raw = AIOKafkaProducer()
    raw.send("orders", b"value")  # mistake
    await raw.send("orders", "text")  # mistake
    await raw.send("orders", {"id": 1})  # mistake
    await raw.send("orders", b"value", key=7)  # mistake
    await raw.send(b"orders", b"value")  # mistake
    await raw.send("orders", b"value", partition="0")  # mistake
    await raw.send("orders", b"value", headers={"a": b"1"})  # mistake
    await raw.send("orders", b"value", headers=[("a", "1")])  # mistake
    (await raw.send("orders", b"value")).offset  # mistake
    (await raw.send_and_wait("orders", b"value")).offsets  # mistake
    await raw.send_and_wait(topic="orders", data=b"value")  # mistake
    typed = AIOKafkaProducer(value_serializer=dump_order)
    await typed.send("orders", b"value")  # mistake
    await typed.send_and_wait("orders", 7)  # mistake
    AIOKafkaProducer(value_serializer=dump_text)  # mistake
    AIOKafkaProducer(value_serializer=json.dumps)  # mistake
    AIOKafkaProducer(value_serializer="json")  # mistake


# -- positions, listeners


class OfList(ConsumerRebalanceListener):
    """With methods that are called otherwise."""

    def on_partitions_revoked(self) -> None:  # mistake
        pass

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> int:  # mistake
        return len(assigned)


class NotAsync(AsyncConsumerRebalanceListener):
    """With a plain function for a coroutine function."""

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:  # mistake
        pass

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


class Incomplete(ConsumerRebalanceListener):
    """Without what has to be there."""

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass


class NoListener:
    """Not a listener."""


async def places() -> None:
    consumer = AIOKafkaConsumer(group_id="billing")
    consumer.subscribe("orders")  # mistake
    consumer.subscribe(["orders"], listener=NoListener())  # mistake
    consumer.subscribe(["orders"], listener=Incomplete())  # mistake
    consumer.subscribe(topic="orders")  # mistake
    consumer.assign(["orders"])  # mistake
    consumer.assign(TP)  # mistake
    consumer.seek("orders", 7)  # mistake
    consumer.seek(TP, "7")  # mistake
    await consumer.commit({"orders": 7})  # mistake
    await consumer.commit([TP])  # mistake
    await consumer.getone("orders")  # mistake
    await consumer.getmany(timeout="1s")  # mistake
    await consumer.end_offsets(TP)  # mistake
    print((await consumer.committed(TP)) + 1)  # mistake
    print((await consumer.offsets_for_times({TP: 0}))[TP].offset)  # mistake
    await consumer.pause(TP)  # mistake
    with consumer:  # mistake
        pass


# -- sessions, parallel processing, administration


async def sessions(consumer: AIOKafkaConsumer[bytes | None, Order]) -> None:
    producer = AIOKafkaProducer(transactional_id="billing")
    TransactionalSession(producer, consumer)  # mistake
    async with TransactionalSession(consumer, producer) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    record.value.name  # mistake
                    await transaction.send("bills", record.value)  # mistake
    ParallelConsumer(consumer, order="keys")  # mistake
    ParallelConsumer(consumer, topics="orders")  # mistake
    ParallelConsumer(consumer, key=lambda record: record.value.name)  # mistake
    ParallelConsumer(consumer, retry=RetryTopics(producer, [1000]))  # mistake
    async with ParallelConsumer(consumer) as parallel:
        await parallel.run(of_raw)  # mistake
        async for work in parallel:
            async with work as record:
                record.value.name  # mistake


async def queues(producer: AIOKafkaProducer[bytes, bytes]) -> None:
    consumer = AIOKafkaShareConsumer("orders", group_id="packing", value_deserializer=as_order)
    await consumer.process(print, retry=RetryTopics(producer, [1000]))  # mistake
    await consumer.process(print, retry=producer)  # mistake
    async for record in consumer:
        record.value.name  # mistake


async def tables() -> None:
    table = CompactedTable("orders", value_deserializer=as_order)
    CompactedTable(["orders"])  # mistake
    CompactedTable("orders", max_byte=1)  # mistake
    table[b"a"].name  # mistake
    table[b"a"] = Order(1)  # mistake
    async for change in table.changes():
        change.new.id  # mistake


async def of_raw(record: ConsumerRecord[bytes | None, bytes]) -> None:
    print(record.value)


async def administration(admin: AIOKafkaAdminClient) -> None:
    await admin.create_topics(["orders"])  # mistake
    await admin.create_topics(NewTopic("orders", 1, 1))  # mistake
    await admin.delete_topics("orders")  # mistake
    await admin.create_partitions(["orders"])  # mistake
    NewTopic("orders", replication_factor="1")  # mistake
    offsets = await admin.list_consumer_group_offsets("billing")
    print(offsets["orders"])  # mistake
    print(offsets[TP].offsets)  # mistake
    cluster = await admin.describe_cluster()
    cluster["controller"]  # mistake
    for broker in cluster["brokers"]:
        broker["id"]  # mistake
    for topic in await admin.describe_topics(["orders"]):
        topic["name"]  # mistake
        topic["partitions"][0]["leaders"]  # mistake
    (await admin.create_topics([NewTopic("orders", 1, 1)])).errors  # mistake
    for result in await admin.describe_consumer_groups(["billing"]):
        result.nonsense  # mistake
    for topic_name in await admin.list_topics():
        topic_name.partitions  # mistake
