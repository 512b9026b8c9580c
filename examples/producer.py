"""Send a few records, and print where each was written."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


async def produce(bootstrap: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        # One record, and wait until it is written.
        metadata = await producer.send_and_wait(topic, b"first", key=b"0")
        print(f"first: partition {metadata.partition}, offset {metadata.offset}")

        # Many records: `send` returns as soon as a record is queued, with a future of its own.
        futures = [
            await producer.send(
                topic, b"record %d" % number, key=b"%d" % number, headers=[("n", b"%d" % number)]
            )
            for number in range(1, count)
        ]
        for number, metadata in enumerate(await asyncio.gather(*futures), start=1):
            print(f"record {number}: partition {metadata.partition}, offset {metadata.offset}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--count", type=int, default=10, help="records to send")
    given = parser.parse_args()
    try:
        asyncio.run(produce(given.bootstrap, given.topic, given.count))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
