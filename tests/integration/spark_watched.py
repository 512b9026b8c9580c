"""The format `watched`: `aiokafka`, which also notes how far a streaming query is.

Each note is a line `SECONDS PHASE SINK PID BATCH TASK DETAIL` at the end of the file that the
environment names, so that a test can kill a process at a moment that it chooses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext

from aiokafka.spark.reader import KafkaStreamReader
from aiokafka.spark.source import KafkaSource
from aiokafka.spark.writer import KafkaStreamWriter, Written

NOTES = "TEST_SPARK_NOTES"
PAUSE = 0.04  # seconds between Arrow batches, that a transaction is open for a while


def note(phase: str, sink: str, batch: str = "-", task: int = -1, detail: str = "-") -> None:
    """Written at once: the process may be dead a moment later."""
    line = f"{time.monotonic():.4f} {phase} {sink} {os.getpid()} {batch} {task} {detail}\n"
    with open(os.environ[NOTES], "ab", buffering=0) as notes:
        notes.write(line.encode())


class WatchedSource(KafkaSource):
    """Notes for the topic that a query writes to; reading is noted for the group id."""

    @classmethod
    def name(cls) -> str:
        return "watched"

    def streamReader(self, schema: Any) -> Any:
        reader = super().streamReader(schema)
        reader.__class__ = WatchedReader
        reader.sink = self.options["kafka.group.id"]
        return reader

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = WatchedWriter
        writer.sink = self.options["topic"]
        return writer


class WatchedReader(KafkaStreamReader):
    sink: str

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        note("plan", self.sink)
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        note("read", self.sink)
        return super().read(partition)


class WatchedWriter(KafkaStreamWriter):
    sink: str

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        assert context is not None
        place = str(context.getLocalProperty("streaming.sql.batchId")), context.partitionId()

        def watched() -> Iterator[Any]:
            for number, batch in enumerate(iterator):
                if not number:
                    note("rows", self.sink, *place)
                yield batch
                time.sleep(PAUSE)
            note("finish", self.sink, *place)

        note("begin", self.sink, *place)
        written = super().write(watched())
        note("done", self.sink, *place, "again" if written.is_repetition else "new")
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:
        again = sum(message.is_repetition for message in messages)
        note("commit", self.sink, str(batchId), -1, f"{again}/{len(messages)}")
        super().commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        note("abort", self.sink, str(batchId))
        super().abort(messages, batchId)
