"""Fill batches by hand, and choose when and where each is sent."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder


async def send(producer: AIOKafkaProducer, topic: str, batch: BatchBuilder) -> None:
    """Send a batch to some partition, and wait until it is written."""
    partition = random.choice(sorted(await producer.partitions_for(topic)))
    future = await producer.send_batch(batch, topic, partition=partition)
    metadata = await future
    count = batch.record_count()
    print(f"{count} records to partition {partition}, the first at offset {metadata.offset}")


async def produce(bootstrap: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        batch = producer.create_batch()
        for number in range(count):
            value = b"Test message %d" % number
            # None says that the batch is full: send it, and go on with the next.
            if batch.append(key=None, value=value, timestamp=None) is None:
                await send(producer, topic, batch)
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=None)
        await send(producer, topic, batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--count", type=int, default=1000, help="records to send")
    given = parser.parse_args()
    try:
        asyncio.run(produce(given.bootstrap, given.topic, given.count))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
