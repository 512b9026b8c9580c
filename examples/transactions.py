"""Move money between accounts: both records of a transfer are written, or none.

A transfer that fails in the middle leaves no trace for a consumer that reads committed records.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


async def transfer(
    producer: AIOKafkaProducer, topic: str, source: str, target: str, amount: int
) -> None:
    async with producer.transaction():
        await producer.send(topic, b"-%d" % amount, key=source.encode())
        if amount > 100:
            raise ValueError(f"{amount} is more than {source} has")
        await producer.send(topic, b"+%d" % amount, key=target.encode())


async def run(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="bank-1")
    async with producer:
        await transfer(producer, topic, "ada", "grace", 50)
        try:
            await transfer(producer, topic, "grace", "ada", 500)
        except ValueError as error:
            print(f"refused: {error}")
        await transfer(producer, topic, "grace", "ada", 20)

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=bytes.decode,
    )
    async with consumer:
        for _ in range(4):
            record = await consumer.getone()
            print(f"{record.key}: {record.value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
