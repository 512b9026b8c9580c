"""Decode and encode record batches in memory, with whichever aiokafka this interpreter has.

Prints a JSON object of CPU nanoseconds per record, the best of several runs. The argument is a JSON
object: `cases`, each with `name`, `path` (of the record set), `records` (in it), `value_size`,
`headers`, `codec`; and `repeat`.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

try:
    from aiokafka.record.columns import read_columns
except ImportError:
    read_columns = None

CALL = 500  # records that are taken at a time, and let go
KEY = b"key-of-16-bytes!"
FIRST_TIMESTAMP = 1_700_000_000_000


def best(work: Callable[[], Any], repeat: int, records: int) -> float:
    times = []
    gc.collect()
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / records * 1e9


def our_work(data: bytes, case: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    from aiokafka.record.batch import RecordBatchBuilder, RecordReader

    headers = [(name, value.encode()) for name, value in case["headers"]]
    value = b"v" * case["value_size"]

    def decode() -> Any:
        reader = RecordReader(data, "topic", 0, position=0)
        while reader.take(CALL):
            pass

    def to_columns() -> Any:
        return read_columns(data, position=0)

    def encode() -> Any:
        builder = RecordBatchBuilder(compression=case["codec"], size_limit=1 << 30)
        append = builder.append
        for number in range(case["records"]):
            append(FIRST_TIMESTAMP + number, KEY, value, headers)
        return builder.build()

    return {"decode": decode, "columns": to_columns, "encode": encode}


def upstream_work(data: bytes, case: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    from aiokafka.consumer.fetcher import READ_UNCOMMITTED, PartitionRecords
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords
    from aiokafka.structs import TopicPartition

    partition = TopicPartition("topic", 0)
    headers = [(name, value.encode()) for name, value in case["headers"]]
    value = b"v" * case["value_size"]

    def decode() -> Any:
        records = PartitionRecords(
            partition, MemoryRecords(data), [], 0, None, None, True, READ_UNCOMMITTED
        )
        while len(list(islice(records, CALL))) == CALL:
            pass

    def encode() -> Any:
        builder = DefaultRecordBatchBuilder(2, case["codec"], 0, -1, -1, -1, 1 << 30)
        append = builder.append
        for number in range(case["records"]):
            append(number, FIRST_TIMESTAMP + number, KEY, value, headers)
        return builder.build()

    return {"decode": decode, "encode": encode}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    make_work = our_work if read_columns else upstream_work
    figures = {}
    for case in arguments["cases"]:
        work = make_work(Path(case["path"]).read_bytes(), case)
        figures[case["name"]] = {
            what: best(do, arguments["repeat"], case["records"]) for what, do in work.items()
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
