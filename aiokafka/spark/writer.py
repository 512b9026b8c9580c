"""The writers of the data source. Spark calls their methods."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aiokafka.spark._loop import with_short_errors
from aiokafka.spark._options import WriteOptions
from aiokafka.spark._produce import TaskIdentity
from aiokafka.spark._write import EndedBatch, Report, check_repetition, write_batches

__all__ = ["KafkaBatchWriter", "KafkaStreamWriter", "Written"]

log = logging.getLogger("aiokafka.spark")

# Names of local properties that Spark sets for a task. Spark passes the ids of the batch, the query
# and the query's run to a writer only in these properties.
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"


class Written(WriterCommitMessage):
    """The result of one task, sent to the driver.

    `counts` has the number of written rows by topic and partition. It is empty if the task repeats
    an attempt that has succeeded; then `rows` is the number of rows that were not written again.
    """

    def __init__(
        self, report: Report, identity: TaskIdentity | None = None, run: str | None = None
    ) -> None:
        self.counts = dict(report.counts)
        self.rows = report.rows
        self.is_repetition = report.is_repetition
        self.marked = report.marked
        self.identity = identity
        self.run = run

    @property
    def is_skipped(self) -> bool:
        """Whether the rows were skipped because a later batch had been written before."""
        marked, identity = self.marked, self.identity
        return marked is not None and identity is not None and marked > identity.batch


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows can only be written in a task of Spark")
    return context


def _sum_up(messages: list[Any], what: str) -> None:
    written = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in written if not message.is_repetition)
    again = sum(message.is_repetition for message in written)
    log.info(
        "%s: %d rows written by %d tasks; %d of the tasks had written theirs before",
        what,
        rows,
        len(written),
        again,
    )
    skipped = sum(message.rows for message in written if message.is_skipped)
    if skipped:
        log.warning("%s: %d rows skipped, because a later batch was written before", what, skipped)


def _check(options: WriteOptions, messages: list[Any]) -> None:
    """With exactly-once, raise NotRepeatedError if an earlier attempt at the batch had additional
    tasks that wrote rows."""
    identity = messages[0].identity if messages else None
    if not options.exactly_once or identity is None:
        return
    marks = [message.marked for message in messages if message.marked is not None]
    ended = EndedBatch(
        identity.query, messages[0].run, identity.batch, len(messages), max(marks, default=-1)
    )
    check_repetition(options, ended)


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch write, `df.write`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @with_short_errors
    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of a task, and wait for acknowledgements. Called on an executor."""
        options, task = self._options, _task()
        identity = None
        if options.app_id is not None and options.version is not None:
            identity = TaskIdentity(options.app_id, options.version, task.partitionId())
        # In foreachBatch, the job group is the id of the query's run. Otherwise the user chooses
        # it.
        is_of_stream = task.getLocalProperty(_BATCH_ID) is not None
        run = task.getLocalProperty(_RUN_ID) if is_of_stream else None
        return Written(write_batches(options, iterator, identity), identity, run)

    @with_short_errors
    def commit(self, messages: list[Any]) -> None:
        """Log the results when all tasks have ended. With exactly-once, raise NotRepeatedError if
        an earlier attempt at this batch had additional tasks that wrote rows: this attempt may have
        written the same rows again.
        """
        _check(self._options, messages)
        _sum_up(messages, "batch write")

    def abort(self, messages: list[Any]) -> None:
        """Log a failed batch. Its written rows remain, because Kafka cannot delete them."""
        _sum_up(messages, "failed batch write")


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query, `df.writeStream`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @with_short_errors
    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of a task, and wait for acknowledgements. Called on an executor. With
        exactly-once, raises RuntimeError if Spark has set no query id and batch id.
        """
        task = _task()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        identity = None
        if query is not None and batch is not None:
            identity = TaskIdentity(query, int(batch), task.partitionId())
        elif self._options.exactly_once:
            raise RuntimeError(
                "deliveryGuarantee=exactly-once: Spark did not set the ids of the query and batch"
            )
        run = task.getLocalProperty(_RUN_ID)
        return Written(write_batches(self._options, iterator, identity), identity, run)

    @with_short_errors
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Log the results when all tasks have ended. With exactly-once, raise NotRepeatedError if
        an earlier attempt at this batch had additional tasks that wrote rows: this attempt may have
        written the same rows again.
        """
        _check(self._options, messages)
        _sum_up(messages, f"batch {batchId}")

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Log a failed batch. Spark repeats it, perhaps after a restart of the query."""
        _sum_up(messages, f"failed batch {batchId}")
