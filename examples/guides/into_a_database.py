"""Write batches into a database, with the offsets in the same transaction: each record once.

The offsets that count are those of the database. Whatever ends this program, and wherever its
partitions move, a record is in the table exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
from collections.abc import Iterable, Set
from contextlib import closing

from aiokafka import (
    AIOKafkaConsumer,
    AsyncConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.errors import KafkaError

Batch = dict[TopicPartition, list[ConsumerRecord[bytes | None, bytes | None]]]

TABLES = """
CREATE TABLE IF NOT EXISTS events (key BLOB, value BLOB);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, partition)
);
"""
ADVANCE = """
INSERT INTO offsets VALUES (?, ?, ?)
ON CONFLICT (topic, partition) DO UPDATE SET next = excluded.next WHERE offsets.next <= ?
"""


class MovedError(Exception):
    """Another process has written records of the same partition."""


class Database:
    """Events, and for each partition the offset of the next one."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.executescript(TABLES)

    def close(self) -> None:
        self._connection.close()

    def next_offset(self, tp: TopicPartition) -> int | None:
        found = self._connection.execute(
            "SELECT next FROM offsets WHERE topic = ? AND partition = ?", tp
        ).fetchone()
        return None if found is None else found[0]

    def write(self, batch: Batch) -> None:
        """Write records and offsets, all or nothing. Raises MovedError."""
        with self._connection as transaction:
            for tp, records in batch.items():
                first, last = records[0].offset, records[-1].offset
                # Refuses a process that does not know yet that it has lost the partition.
                if transaction.execute(ADVANCE, (*tp, last + 1, first)).rowcount != 1:
                    raise MovedError(f"{tp} is beyond offset {first}")
                rows = [(record.key, record.value) for record in records]
                transaction.executemany("INSERT INTO events VALUES (?, ?)", rows)


async def go_on(
    consumer: AIOKafkaConsumer, database: Database, partitions: Iterable[TopicPartition]
) -> None:
    """Go to where the database is."""
    for tp in partitions:
        offset = await asyncio.to_thread(database.next_offset, tp)
        if offset is None:
            await consumer.seek_to_beginning(tp)
        else:
            consumer.seek(tp, offset)


class GoOn(AsyncConsumerRebalanceListener):
    """Goes on where the database is, in every partition that is assigned."""

    def __init__(self, consumer: AIOKafkaConsumer, database: Database) -> None:
        self._consumer = consumer
        self._database = database

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        pass  # what was returned is in the database, or will be refused there

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        await go_on(self._consumer, self._database, assigned)


async def copy(bootstrap: str, topic: str, database: Database, idle_ms: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="into-a-database",
        enable_auto_commit=False,
        fetch_min_bytes=100_000,  # fewer, larger batches
        fetch_max_wait_ms=200,
    )
    consumer.subscribe([topic], listener=GoOn(consumer, database))
    async with consumer:
        while batch := await consumer.getmany(timeout_ms=idle_ms, max_records=5000):
            try:
                await asyncio.to_thread(database.write, batch)
                print(f"{sum(map(len, batch.values()))} records", flush=True)
            except MovedError as error:
                print(f"nothing written: {error}", flush=True)
                await go_on(consumer, database, consumer.assignment() & batch.keys())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--database", default="events.db")
    parser.add_argument("--idle-ms", type=int, default=5000, help="stop when nothing comes so long")
    given = parser.parse_args()
    with closing(Database(given.database)) as database:
        try:
            asyncio.run(copy(given.bootstrap, given.topic, database, given.idle_ms))
        except KafkaError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
