"""Read, process, write, exactly once: with a session.

Counts the words of each record. What is written and the positions in the source are committed
together, so each record counts once, however often this program is killed, or started beside itself
under another name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TransactionalSession
from aiokafka.errors import KafkaError


def count_words(text: bytes) -> bytes:
    return json.dumps(Counter(text.decode().split())).encode()


async def transform(bootstrap: str, source: str, target: str, name: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id="word-counters",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    async with TransactionalSession(consumer, producer, max_records=count) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    words = count_words(record.value)
                    await transaction.send(target, key=record.key, value=words)
            if transaction.is_committed:
                print(f"{len(records)} records")
                count -= len(records)
            if count <= 0:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--source", default="my-topic")
    parser.add_argument("--target", default="my-counts")
    parser.add_argument("--name", default="word-counter-1", help="one for each that runs at a time")
    parser.add_argument("--count", type=int, default=10, help="records to process")
    given = parser.parse_args()
    try:
        asyncio.run(transform(given.bootstrap, given.source, given.target, given.name, given.count))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
