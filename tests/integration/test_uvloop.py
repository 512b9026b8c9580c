"""The clients on uvloop and a real Kafka."""

from __future__ import annotations

import uuid

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from tests.kafka.fixtures import Kafka
from tests.kafka.topics import create_topic

uvloop = pytest.importorskip("uvloop")


async def copy(servers: str, source: str, target: str, count: int) -> None:
    """Write records, and copy them to another topic in transactions, as a member of a group."""
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for number in range(count):
            await producer.send(source, b"%d" % number, key=b"%d" % (number % 7))
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=source,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    writer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=source)
    done = 0
    async with consumer, writer:
        while done < count:
            found = await consumer.getmany(timeout_ms=10_000, max_records=200)
            async with writer.transaction():
                for records in found.values():
                    for record in records:
                        await writer.send(target, record.value, key=record.key)
                    done += len(records)
                ends = {tp: records[-1].offset + 1 for tp, records in found.items()}
                await writer.send_offsets_to_transaction(ends, consumer.group_metadata())


async def read(servers: str, topic: str, count: int) -> list[int]:
    found: list[int] = []
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        while len(found) < count:
            found.append(int((await consumer.getone()).value))
    return sorted(found)


def test_records_are_copied_in_transactions(kafka: Kafka) -> None:
    async def run(servers: str) -> list[int]:
        source, target = (f"uvloop-{uuid.uuid4().hex[:8]}" for _ in range(2))
        for topic in (source, target):
            await create_topic(servers, topic, 3)
        await copy(servers, source, target, 2000)
        return await read(servers, target, 2000)

    assert uvloop.run(run(kafka.bootstrap_servers)) == list(range(2000))
