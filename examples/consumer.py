"""Read a topic from its start, record by record."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError


async def consume(bootstrap: str, topic: str, count: int) -> None:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    seen = 0
    async with consumer:
        async for record in consumer:
            print(f"{record.partition}:{record.offset} {record.key!r} {record.value!r}")
            seen += 1
            if seen == count:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--count", type=int, default=0, help="stop after so many; 0: never")
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.count))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
