"""Process many records at once, those of a key in order."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.parallel import ParallelConsumer


async def consume(bootstrap: str, topic: str, concurrency: int, count: int) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="parallel-example",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    seen: Counter[str] = Counter()

    async def handle(record: ConsumerRecord[Any, Any]) -> None:
        await asyncio.sleep(0.01)  # What takes time: a request, a query.
        seen["no key" if record.key is None else record.key.decode()] += 1
        if seen.total() >= count:
            parallel.request_stop()

    async with ParallelConsumer(consumer, concurrency=concurrency) as parallel:
        await parallel.run(handle)
    for key, number in sorted(seen.items()):
        print(f"{key}: {number}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--concurrency", type=int, default=50, help="records in work at once")
    parser.add_argument("--count", type=int, default=1000, help="stop after so many records")
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.concurrency, given.count))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
