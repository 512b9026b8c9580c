"""Process records in batches, and commit after each: one commit for many records.

A batch that fails half-way is read again as a whole by the next run, so storing it twice must do no
harm, as with the upsert of a database.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError


async def store(tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
    """Stands for the insertion of many rows at once."""
    first, last = records[0].offset, records[-1].offset
    print(f"{tp.topic}-{tp.partition}: stored {len(records)} records, {first} to {last}")


async def consume(bootstrap: str, topic: str, group: str, size: int, idle_ms: int) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        while batches := await consumer.getmany(timeout_ms=idle_ms, max_records=size):
            for tp, records in batches.items():
                await store(tp, records)
                # The offset of the next record to read, of this partition only.
                await consumer.commit({tp: records[-1].offset + 1})
    print("nothing more to read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--group", default="my-batches")
    parser.add_argument("--size", type=int, default=100, help="most records at a time")
    parser.add_argument("--idle-ms", type=int, default=3000, help="stop when nothing comes so long")
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.group, given.size, given.idle_ms))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
