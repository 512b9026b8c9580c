"""Copy a topic to Parquet files: each record once, whatever ends the program.

Every file of a partition is named by the offset at which it begins and knows the offset at which
the next one does, so the folder tells where to go on. Needs pyarrow
(the extra `spark`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Set
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from aiokafka import (
    AIOKafkaConsumer,
    AsyncConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.errors import KafkaError

Record = ConsumerRecord[bytes | None, bytes | None]

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class MovedError(Exception):
    """Another process has written these records."""


class Table(Protocol):
    """Where records go. It keeps the next offset of each partition with them."""

    def next_offset(self, tp: TopicPartition) -> int | None:
        """Return where to go on, None for a new partition."""

    def append(self, tp: TopicPartition, begin: int, end: int, rows: pa.Table) -> None:
        """Add records that begin at that next offset, all or nothing. Raises MovedError."""


class ParquetFiles:
    """A folder of Parquet files, a chain of them for each partition."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def next_offset(self, tp: TopicPartition) -> int | None:
        files = sorted(self._place(tp).glob("*.parquet"))
        return int(pq.read_metadata(files[-1]).metadata[b"end"]) if files else None

    def append(self, tp: TopicPartition, begin: int, end: int, rows: pa.Table) -> None:
        place = self._place(tp)
        place.mkdir(parents=True, exist_ok=True)
        unfinished = place / f".{uuid4().hex}"
        try:
            pq.write_table(rows.replace_schema_metadata({"end": str(end)}), unfinished)
            # Of two processes that begin at one offset, one makes the file.
            os.link(unfinished, place / f"{begin:020}.parquet")
        except FileExistsError as error:
            raise MovedError(f"{tp} is beyond offset {begin}") from error
        finally:
            unfinished.unlink(missing_ok=True)

    def _place(self, tp: TopicPartition) -> Path:
        return self._folder / tp.topic / f"kafka_partition={tp.partition}"


class Copy(AsyncConsumerRebalanceListener):
    """Gathers records and appends many at once: tables like large files."""

    def __init__(self, consumer: AIOKafkaConsumer, table: Table) -> None:
        self._consumer = consumer
        self._table = table
        self._begin: dict[TopicPartition, int] = {}
        self._gathered: dict[TopicPartition, list[Record]] = {}
        # Not held while records are awaited, for listeners would wait for it.
        self._writing = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        async with self._writing:
            # What was not appended is read again, here or by another member.
            for tp in revoked:
                self._gathered.pop(tp, None)
                self._begin.pop(tp, None)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        async with self._writing:
            for tp in assigned:
                await self._go_on(tp)

    async def _go_on(self, tp: TopicPartition) -> None:
        self._gathered.pop(tp, None)
        offset = await asyncio.to_thread(self._table.next_offset, tp)
        if offset is None:
            await self._consumer.seek_to_beginning(tp)
            offset = await self._consumer.position(tp)
        else:
            self._consumer.seek(tp, offset)
        self._begin[tp] = offset

    async def gather(self, seconds: float, most: int) -> int:
        """Read for so long, or so many records; return how many there are."""
        clock = asyncio.get_running_loop()
        until = clock.time() + seconds
        count = 0
        while count < most and (left := until - clock.time()) > 0:
            batch = await self._consumer.getmany(timeout_ms=left * 1000, max_records=most - count)
            for tp, records in batch.items():
                self._gathered.setdefault(tp, []).extend(records)
                count += len(records)
        return count

    async def write(self) -> None:
        """Append what was gathered."""
        async with self._writing:
            for tp in list(self._gathered):
                records = self._gathered.pop(tp)
                begin, end = self._begin[tp], records[-1].offset + 1
                try:
                    await asyncio.to_thread(self._table.append, tp, begin, end, rows_of(records))
                except MovedError as error:
                    print(f"nothing written: {error}", flush=True)
                    await self._go_on(tp)
                else:
                    print(f"{tp.topic}-{tp.partition}: {begin} to {end}", flush=True)
                    self._begin[tp] = end


def rows_of(records: list[Record]) -> pa.Table:
    columns = {name: [getattr(each, name) for each in records] for name in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)


async def copy(bootstrap: str, topic: str, table: Table, seconds: float, until_quiet: bool) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="lake",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    work = Copy(consumer, table)
    consumer.subscribe([topic], listener=work)
    async with consumer:
        while await work.gather(seconds, most=500_000) or not until_quiet:
            await work.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--folder", default="lake")
    parser.add_argument("--seconds", type=float, default=60, help="how long to gather a file")
    given = parser.parse_args()
    try:
        table = ParquetFiles(given.folder)
        asyncio.run(copy(given.bootstrap, given.topic, table, given.seconds, until_quiet=False))
    except KeyboardInterrupt:
        print("stopped")
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
