"""Choose the partition of a record by a rule of one's own."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


def first_or_last(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
    """Keep both ends for certain keys, and spread the rest over partitions that have a leader."""
    if key == b"first":
        return all_partitions[0]
    if key == b"last":
        return all_partitions[-1]
    return random.choice(available or all_partitions)


async def produce(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, partitioner=first_or_last) as producer:
        for key in (b"last", b"any", b"first"):
            metadata = await producer.send_and_wait(topic, b"x", key=key)
            print(f"{key.decode()}: partition {metadata.partition}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    given = parser.parse_args()
    try:
        asyncio.run(produce(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
