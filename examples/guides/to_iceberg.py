"""Copy a topic to an Iceberg table: each record once, whatever ends the program.

The table keeps the next offset of each partition as a property, changed in the transaction that
adds the records. Needs pyiceberg with a catalog (`pip install "pyiceberg[sql-sqlite]" pyarrow`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from to_parquet import SCHEMA, MovedError, copy

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError


class Iceberg:
    """An Iceberg table in a catalog."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        self._table = catalog.create_table_if_not_exists(name, schema=SCHEMA)

    def next_offset(self, tp: TopicPartition) -> int | None:
        found = self._table.refresh().properties.get(name_of(tp))
        return None if found is None else int(found)

    def append(self, tp: TopicPartition, begin: int, end: int, rows: pa.Table) -> None:
        if (self.next_offset(tp) or begin) != begin:
            raise MovedError(f"{tp} is beyond offset {begin}")
        try:
            with self._table.transaction() as transaction:
                transaction.append(rows)
                transaction.set_properties({name_of(tp): str(end)})
        except CommitFailedException as error:
            # The table changed between the look and the commit.
            raise MovedError(f"{tp}: {error}") from error


def name_of(tp: TopicPartition) -> str:
    return f"kafka.{tp.topic}.{tp.partition}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--catalog", default="default", help="one of .pyiceberg.yaml")
    parser.add_argument("--table", default="lake.records")
    parser.add_argument("--seconds", type=float, default=60, help="how long to gather a snapshot")
    given = parser.parse_args()
    try:
        table = Iceberg(load_catalog(given.catalog), given.table)
        asyncio.run(copy(given.bootstrap, given.topic, table, given.seconds, until_quiet=False))
    except KeyboardInterrupt:
        print("stopped")
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
