"""Ranges, and the transactions of the Spark sink, against a real Kafka."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.ranges import DataLossError, LossKind, PartitionRange, RangeReader
from aiokafka.record.rows import RowSource
from aiokafka.spark._options import parse_write
from aiokafka.spark._produce import (
    NotRepeatedError,
    RecordWriter,
    Tally,
    TaskIdentity,
    TaskTransaction,
    TopicRows,
    check_mark,
)
from aiokafka.spark._write import EndedBatch, RepetitionCheck
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.kafka.topics import create_topic
from tests.support.rows import binary

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)

Found = list[tuple[int, bytes]]


async def read(servers: str, wanted: PartitionRange, *, read_committed: bool = False) -> Found:
    found: Found = []
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        async with RangeReader(client, [wanted], read_committed=read_committed) as reader:
            while (records := await reader.next()) is not None:
                while (rows := records.read(1000)) is not None:
                    offsets = memoryview(rows.columns.offsets).cast("q")
                    ends = memoryview(rows.columns.values.offsets).cast("i")
                    data = bytes(rows.columns.values.data)
                    found += [(offsets[i], data[ends[i] : ends[i + 1]]) for i in range(rows.size)]
    return found


async def send(servers: str, topic: str, start: int, until: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="gzip") as producer:
        for n in range(start, until):
            await producer.send(topic, b"%d" % n)


async def test_a_range_within_batches(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    await send(servers, topic, 0, 1000)
    found = await read(servers, PartitionRange(topic, 0, 123, 877))
    assert found == [(n, b"%d" % n) for n in range(123, 877)]


async def test_a_range_over_transactions(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    name = uuid.uuid4().hex
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    whole = PartitionRange(topic, 0, 0, 8)
    assert await read(servers, whole, read_committed=True) == [(0, b"0"), (4, b"2")]
    assert [value for _, value in await read(servers, whole)] == [b"0", b"1", b"2", b"3"]


async def test_records_that_were_deleted(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    await send(servers, topic, 0, 100)
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(30)})
    with pytest.raises(DataLossError) as caught:
        await read(servers, PartitionRange(topic, 0, 10, 50))
    assert caught.value.loss == (LossKind.RETENTION, topic, 0, 10, 30)


async def test_a_topic_made_anew(kafka: Kafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    await send(servers, topic, 0, 20)
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        await client.add_topic(topic)
        old = client.cluster.topic_id(topic)
    assert old is not None
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.1)
    await create_topic(servers, topic, 1, 1, {})
    await send(servers, topic, 0, 50)
    with pytest.raises(DataLossError) as caught:
        await read(servers, PartitionRange(topic, 0, 10, 20, old))
    assert caught.value.loss.kind is LossKind.NEW_TOPIC


async def attempt(servers: str, topic: str, identity: TaskIdentity, rows: list[TopicRows]) -> bool:
    """One attempt of a task that writes exactly once; whether it wrote."""
    options = parse_write(
        {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"},
        streaming=True,
    )
    transaction = TaskTransaction(options, identity)
    try:
        producer, marker = await transaction.begin()
        tally = Tally()
        tally.add(rows)
        if marker is not None:
            check_mark(identity, marker, tally)
            return False
        writer = RecordWriter(producer)
        await writer.add(rows)
        await writer.finish()
        await transaction.commit(tally)
        return True
    finally:
        await transaction.close()


async def test_a_batch_is_written_exactly_once(kafka: Kafka, make_topic: MakeTopic) -> None:
    servers, topic = kafka.bootstrap_servers, await make_topic()
    values: list[bytes | None] = [b"%d" % n for n in range(200)]
    rows = [TopicRows(topic, RowSource(binary(values), timestamps=1_700_000_000_000))]
    one = TaskIdentity(uuid.uuid4().hex, 0, 0)
    assert await attempt(servers, topic, one, rows)
    for _ in range(3):
        assert not await attempt(servers, topic, one, rows)
    assert await attempt(servers, topic, one._replace(batch=1), rows)
    with pytest.raises(NotRepeatedError):
        other = [TopicRows(topic, RowSource(binary([b"x"]), timestamps=1_700_000_000_000))]
        await attempt(servers, topic, one._replace(batch=1), other)
    # Each transaction ends with a marker.
    found = await read(servers, PartitionRange(topic, 0, 0, 402), read_committed=True)
    assert [value for _, value in found] == values * 2


async def test_a_batch_that_fewer_tasks_repeat_is_found(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    servers, topic = kafka.bootstrap_servers, await make_topic()
    rows = [TopicRows(topic, RowSource(binary([b"x"]), timestamps=1_700_000_000_000))]
    query = uuid.uuid4().hex
    options = parse_write(
        {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"},
        streaming=True,
    )
    for task in (1, 0):
        assert await attempt(servers, topic, TaskIdentity(query, 5, task), rows)
    found = RepetitionCheck()
    await found.check(options, EndedBatch(query, "run", 5, 2, 5))
    await found.check(options, EndedBatch(query, "run", 6, 1, 6))
    with pytest.raises(NotRepeatedError, match="repeated by 1 tasks, but tasks 1 had"):
        await RepetitionCheck().check(options, EndedBatch(query, "run", 5, 1, 5))
