"""Tables of compacted topics, against a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.structs import RecordMetadata
from aiokafka.tables import CompactedTable
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.kafka.topics import create_topic

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}


async def is_compacted(servers: str, topic: str) -> bool:
    """Return whether the first record of the log is gone."""
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return (await consumer.getone()).offset > 0


async def test_compaction_and_transactions(kafka: Kafka, make_topic: MakeTopic) -> None:
    servers, topic = kafka.bootstrap_servers, await make_topic(config=COMPACTED)
    expected: dict[bytes, bytes] = {}

    async def write(producer: AIOKafkaProducer, number: int) -> RecordMetadata:
        """Write a transaction with records and a tombstone; abort every third."""
        await producer.begin_transaction()
        written: dict[bytes, bytes | None] = {b"k%d" % (number % 7): None}
        for n in range(10):
            written[b"k%d" % ((number + n) % 9 + 10)] = b"%d-%d" % (number, n)
        for key, value in written.items():
            await producer.send(topic, value, key=key)
        last = await producer.send_and_wait(topic, b"%d" % number, b"k%d" % ((number + 1) % 7))
        if number % 3 == 0:
            await producer.abort_transaction()
            return last
        await producer.commit_transaction()
        written[b"k%d" % ((number + 1) % 7)] = b"%d" % number
        expected.update({k: v for k, v in written.items() if v is not None})
        for key in [key for key, value in written.items() if value is None]:
            expected.pop(key, None)
        return last

    name = uuid.uuid4().hex
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
        async with CompactedTable(topic, bootstrap_servers=servers) as early:
            snapshot, changes = early.snapshot_and_changes()
            async with timeout(120):
                for number in range(100_000):
                    await early.read_past(await write(producer, number))
                    assert early == expected
                    if number > 30 and number % 10 == 0 and await is_compacted(servers, topic):
                        break
                    await asyncio.sleep(0.02)
            assert early.health().rereads == 0
            copy: dict[Any, Any] = dict(snapshot)
            while changes.pending:
                change = await anext(changes)
                if change.new is None:
                    del copy[change.key]
                else:
                    copy[change.key] = change.new
            assert copy == expected
            # Another table reads the compacted log.
            async with CompactedTable(topic, bootstrap_servers=servers) as late:
                assert late == expected
                assert late.snapshot().offsets == early.snapshot().offsets


async def test_added_partitions_and_a_recreated_topic(kafka: Kafka, make_topic: MakeTopic) -> None:
    config = {"cleanup.policy": "compact"}
    servers, topic = kafka.bootstrap_servers, await make_topic(config=config)
    async with (
        AIOKafkaAdminClient(bootstrap_servers=servers) as admin,
        CompactedTable(topic, bootstrap_servers=servers, metadata_max_age_ms=300) as table,
    ):
        changes = table.changes()

        async def send(key: bytes, value: bytes, partition: int) -> None:
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait(topic, value, key, partition)

        async def read(count: int) -> list[Any]:
            async with timeout(60):
                found = [await anext(changes) for _ in range(count)]
            return sorted((change.key, change.old, change.new) for change in found)

        await send(b"k", b"1", 0)
        assert await read(1) == [(b"k", None, b"1")]
        await admin.create_partitions({topic: NewPartitions(total_count=2)})
        async with timeout(30):
            while True:  # until the new partition has a leader
                async with AIOKafkaConsumer(topic, bootstrap_servers=servers) as consumer:
                    if consumer.partitions_for_topic(topic) == {0, 1}:
                        break
        await send(b"l", b"2", 1)
        assert await read(1) == [(b"l", None, b"2")]
        await admin.delete_topics([topic])
        await asyncio.sleep(1)
        await create_topic(servers, topic, 2, 1, config)
        await send(b"k", b"1", 0)
        await send(b"m", b"3", 0)
        assert await read(2) == [(b"l", b"2", None), (b"m", None, b"3")]
        await table.read_to_end()
        assert table == {b"k": b"1", b"m": b"3"}
