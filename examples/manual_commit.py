"""Commit only what is done: after a crash, records may come again, but none is missing."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError


async def consume(bootstrap: str, topic: str, group: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        for _ in range(count):
            record = await consumer.getone()
            print(f"{record.partition}:{record.offset} {record.value!r}")
        # All records that were returned. Without this line the next run gets them again.
        await consumer.commit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--group", default="some-consumer-group")
    parser.add_argument("--count", type=int, default=10, help="records to read")
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.group, given.count))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
