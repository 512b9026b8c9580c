"""Keep large values in a store, and send where they are: a claim check.

The store is a folder here; S3, MinIO or a table works alike. What is written twice has the same
name, so a retry leaves one copy.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

LIMIT = 100_000
CLAIM = b"claim:"


class Store:
    """Values by the hash of what they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, value: bytes) -> str:
        name = hashlib.sha256(value).hexdigest()
        new = self._folder / f"{name}.new"
        new.write_bytes(value)
        os.replace(new, self._folder / name)
        return name

    def get(self, name: str) -> bytes:
        if not name.isalnum():  # the name comes from a record: no path out of the folder
            raise ValueError(f"{name!r} is no name in this store")
        return (self._folder / name).read_bytes()


async def send(producer: AIOKafkaProducer, store: Store, topic: str, value: bytes) -> None:
    """Send a value of any size; it is in the store before the record can be read."""
    if len(value) > LIMIT or value.startswith(CLAIM):
        value = CLAIM + (await asyncio.to_thread(store.put, value)).encode()
    await producer.send_and_wait(topic, value)


async def value_of(store: Store, value: bytes) -> bytes:
    """Return what was sent."""
    if value.startswith(CLAIM):
        return await asyncio.to_thread(store.get, value.removeprefix(CLAIM).decode())
    return value


async def run(bootstrap: str, topic: str, store: Store) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in (b"small", b"x" * 5_000_000):
            await send(producer, store, topic, value)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            record = await consumer.getone()
            assert record.value is not None
            whole = await value_of(store, record.value)
            print(f"{len(record.value)} bytes in the topic, {len(whole)} of the value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--store", type=Path, default=Path("values"))
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic, Store(given.store)))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
