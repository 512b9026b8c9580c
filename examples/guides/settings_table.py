"""Keep the settings of a service in a compacted topic, and in memory in each of its processes.

Every process has all settings without a request, and reacts to changes. A setting that this process
has changed itself is in its table when `change()` returns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.tables import CompactedTable, SlowSubscriberError


class Settings:
    """The settings of a service, by name."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.table: CompactedTable[str, Any] = CompactedTable(
            topic,
            bootstrap_servers=bootstrap,
            key_deserializer=bytes.decode,
            value_deserializer=json.loads,
        )
        self._producer: AIOKafkaProducer[str, Any] = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            key_serializer=str.encode,
            value_serializer=lambda value: None if value is None else json.dumps(value).encode(),
        )
        self._topic = topic

    async def __aenter__(self) -> Settings:
        await self._producer.start()
        try:
            await self.table.start()
        except BaseException:
            await self._producer.stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.table.stop()
        finally:
            await self._producer.stop()

    async def change(self, name: str, value: Any) -> None:
        """Set a setting; None removes it."""
        await self._producer.send_and_wait(self._topic, value, key=name)
        await self.table.read_to_end()

    async def watch(self) -> None:
        """Print the settings and their changes, until the table is stopped."""
        while True:
            snapshot, changes = self.table.snapshot_and_changes(name="watch")
            for name, value in sorted(snapshot.items()):
                print(f"{name} is {value}")
            try:
                async for change in changes:
                    print(f"{change.key}: {change.old} -> {change.new}")
                return
            except SlowSubscriberError:
                continue  # the next snapshot has the changes that were dropped


async def run(bootstrap: str, topic: str) -> None:
    async with Settings(bootstrap, topic) as settings:
        await settings.change("colour", "red")
        await settings.change("limit", 10)
        watching = asyncio.create_task(settings.watch())
        await asyncio.sleep(0)  # it has begun
        await settings.change("limit", 20)
        await settings.change("colour", None)
        print("now:", dict(settings.table))
    await watching


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="settings", help="a topic with cleanup.policy=compact")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
