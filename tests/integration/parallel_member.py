"""A process that is killed: `python -m tests.integration.parallel_member SERVERS TOPIC GROUP`.

It writes a line for each record that it has processed: key, partition, offset.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.parallel import ParallelConsumer


def make_member(servers: str, topic: str, group: str) -> ParallelConsumer:
    """Commits ten times in a second."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
    )
    return ParallelConsumer(consumer, concurrency=20, commit_interval_ms=100)


async def work(servers: str, topic: str, group: str) -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(record.offset % 7 / 1000)
        print(record.key.decode(), record.partition, record.offset, flush=True)

    async with make_member(servers, topic, group) as parallel:
        await parallel.run(handle)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:4]))
