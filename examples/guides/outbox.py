"""Change a database and tell Kafka of it, neither without the other.

The program that changes the database writes the event into a table, the outbox, in the same
transaction. This relay sends what is there, in order, and deletes what Kafka has. After a crash in
between it sends some events again: each has an id in a header by which readers drop what they know.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import uuid
from contextlib import closing

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT);
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT, topic TEXT, key BLOB, value BLOB
);
"""
Event = tuple[int, str, str, bytes, bytes]


def open_database(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.executescript(TABLES)
    return connection


def place_order(database: sqlite3.Connection, customer: str) -> None:
    """Write the order and its event, both or neither; this needs no Kafka."""
    with database as transaction:
        transaction.execute("INSERT INTO orders (customer) VALUES (?)", (customer,))
        transaction.execute(
            "INSERT INTO outbox (event_id, topic, key, value) VALUES (?, 'orders', ?, ?)",
            (str(uuid.uuid4()), customer.encode(), b"placed"),
        )


def waiting(database: sqlite3.Connection, most: int) -> list[Event]:
    """Return the oldest events."""
    query = "SELECT number, event_id, topic, key, value FROM outbox ORDER BY number LIMIT ?"
    return database.execute(query, (most,)).fetchall()


def delete(database: sqlite3.Connection, events: list[Event]) -> None:
    with database as transaction:
        numbers = [(event[0],) for event in events]
        transaction.executemany("DELETE FROM outbox WHERE number = ?", numbers)


async def relay(
    database: sqlite3.Connection,
    producer: AIOKafkaProducer,
    *,
    every_s: float = 0.5,
    until_empty: bool = False,
) -> None:
    """Send what comes into the outbox. Run one relay at a time."""
    while True:
        events = await asyncio.to_thread(waiting, database, 1000)
        # All are on their way at once; idempotence keeps them in order.
        sent = [
            await producer.send(topic, value, key, headers=[("event-id", event_id.encode())])
            for _, event_id, topic, key, value in events
        ]
        await asyncio.gather(*sent)
        await asyncio.to_thread(delete, database, events)
        if not events:
            if until_empty:
                return
            await asyncio.sleep(every_s)


async def run(bootstrap: str, database: sqlite3.Connection, count: int) -> None:
    for number in range(count):
        place_order(database, f"customer {number}")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await relay(database, producer, until_empty=True)
    print("the outbox is empty")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--database", default="orders.db")
    parser.add_argument("--count", type=int, default=10, help="orders to place")
    given = parser.parse_args()
    with closing(open_database(given.database)) as database:
        try:
            asyncio.run(run(given.bootstrap, database, given.count))
        except KafkaError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
