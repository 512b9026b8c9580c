"""Read from the partitions that lag behind first."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError


async def lagging(consumer: AIOKafkaConsumer, limit: int) -> list[TopicPartition]:
    """The partitions with more than `limit` records to read."""
    found = []
    for tp in sorted(consumer.assignment()):
        highwater = consumer.highwater(tp)  # None until the first answer.
        if highwater is not None and highwater - await consumer.position(tp) > limit:
            found.append(tp)
    return found


async def consume(bootstrap: str, topic: str, limit: int, idle_ms: int) -> None:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=100
    )
    async with consumer:
        first: list[TopicPartition] = []
        while batch := await consumer.getmany(*first, timeout_ms=idle_ms):
            print(", ".join(f"partition {tp.partition}: {len(got)}" for tp, got in batch.items()))
            # Without arguments, getmany takes from all partitions in turn.
            first = await lagging(consumer, limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--limit", type=int, default=100, help="more records than this is a lag")
    parser.add_argument("--idle-ms", type=int, default=2000, help="stop when nothing comes so long")
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.limit, given.idle_ms))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
