"""Read old and new forms of a record: each says its version, and old ones are brought up to date.

A record that no version can read does not stop the consumer: it is reported and passed over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, RecordDeserializationError

VERSION = 3


@dataclass
class Order:
    customer: str
    cents: int
    currency: str = "EUR"


def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Turn the fields of an older version into those of this one, a version at a time."""
    if version == 1:  # prices were floats, of a field with another name
        fields["cents"] = round(fields.pop("price") * 100)
        version = 2
    if version == 2:  # there was one currency
        fields["currency"] = "EUR"
        version = 3
    if version != VERSION:
        raise ValueError(f"version {version} is newer than this program")
    return fields


def dump_order(order: Order) -> bytes:
    return json.dumps({"version": VERSION, **asdict(order)}).encode()


def load_order(value: bytes) -> Order:
    fields = json.loads(value)
    fields = upgrade(fields.pop("version", 1), fields)
    # Fields that a newer program has added are none of ours.
    known = {name: fields[name] for name in Order.__dataclass_fields__ if name in fields}
    return Order(**known)


async def write(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as old:
        for value in (
            b'{"customer": "ada", "price": 1.5}',
            b'{"version": 2, "customer": "grace", "cents": 700, "note": "new"}',
            b"not an order",
        ):
            await old.send_and_wait(topic, value, partition=0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, value_serializer=dump_order) as new:
        await new.send_and_wait(topic, Order("barbara", 900, "USD"), partition=0)


async def read(bootstrap: str, topic: str, count: int) -> None:
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=load_order,
    ) as consumer:
        for _ in range(count):
            try:
                print((await consumer.getone()).value)
            except RecordDeserializationError as error:
                # A program in production sends error.record to a dead-letter topic.
                print(f"offset {error.offset} is no order")
                consumer.seek(error.topic_partition, error.offset + 1)


async def run(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic)
    await read(bootstrap, topic, 4)


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
