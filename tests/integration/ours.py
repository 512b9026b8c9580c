"""What the tests do with the client under test, through its public API only."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import RecordMetadata
from tests.integration.material import PARTITIONS, Digests, message, partition_of

_WINDOW = 10_000
# Without any record for so long, a reader gives up and shows what it has.
_PATIENCE_MS = 30_000


async def write_messages(servers: str, topic: str, count: int, codec: str) -> None:
    """The first ``count`` messages; returns when all are acknowledged."""
    compression = None if codec == "none" else codec
    producer = AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression)
    waiting: list[asyncio.Future[RecordMetadata]] = []
    async with producer:
        for number in range(count):
            record = message(number)
            waiting.append(
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    partition=partition_of(number),
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
            )
            if len(waiting) == _WINDOW:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)


async def read_messages(servers: str, topic: str, count: int) -> Digests:
    """Read until ``count`` messages were seen, or nothing comes any more."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    seen = Digests()
    async with consumer:
        while seen.count < count:
            got = await consumer.getmany(timeout_ms=_PATIENCE_MS, max_records=500)
            if not got:
                break
            for partition, records in got.items():
                for record in records:
                    headers = record.headers
                    seen.add(
                        partition.partition, record.key, record.value, record.timestamp, headers
                    )
        # Nothing may come after the last one.
        for records in (await consumer.getmany(timeout_ms=200)).values():
            seen.count += len(records)
    return seen
