"""Copy a topic to a Delta table: each record once, whatever ends the program.

Every commit of the table names the next offset, as the version of an application. Needs deltalake
and pyarrow.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from to_parquet import SCHEMA, MovedError, copy

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError


class Delta:
    """A Delta table."""

    def __init__(self, place: str) -> None:
        self._place = place
        DeltaTable.create(place, schema=SCHEMA, mode="ignore")

    def next_offset(self, tp: TopicPartition) -> int | None:
        return DeltaTable(self._place).transaction_version(name_of(tp))

    def append(self, tp: TopicPartition, begin: int, end: int, rows: pa.Table) -> None:
        table = DeltaTable(self._place)
        if (table.transaction_version(name_of(tp)) or begin) != begin:
            raise MovedError(f"{tp} is beyond offset {begin}")
        # Of two processes that add records of one partition, one fails by its transaction.
        done = CommitProperties(app_transactions=[Transaction(name_of(tp), end)])
        write_deltalake(table, rows, mode="append", commit_properties=done)


def name_of(tp: TopicPartition) -> str:
    return f"kafka/{tp.topic}/{tp.partition}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--table", default="lake/delta")
    parser.add_argument("--seconds", type=float, default=60, help="how long to gather a commit")
    given = parser.parse_args()
    try:
        table = Delta(given.table)
        asyncio.run(copy(given.bootstrap, given.topic, table, given.seconds, until_quiet=False))
    except KeyboardInterrupt:
        print("stopped")
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
