"""The readers of the data source. Spark calls their methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from aiokafka.ranges import PartitionRange
from aiokafka.spark._fetch import read_batches
from aiokafka.spark._loop import short_error, with_short_errors
from aiokafka.spark._options import ReadOptions
from aiokafka.spark._plan import PushedFilters, StreamPlan, batch_tasks

__all__ = ["KafkaBatchReader", "KafkaPushdownReader", "KafkaStreamReader", "Ranges"]


class Ranges(InputPartition):
    """The offset ranges, of one or more Kafka partitions, that one Spark task reads."""

    def __init__(self, value: list[PartitionRange]) -> None:
        super().__init__(value)


def _read(options: ReadOptions, names: list[str], partition: InputPartition) -> Iterator[Any]:
    try:
        yield from read_batches(options, names, partition.value)
    except Exception as error:
        raise short_error(error) from None


class KafkaBatchReader(DataSourceReader):
    """Plans the tasks of a batch query on the driver, and reads their records on executors."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._pushed: PushedFilters | None = None

    @with_short_errors
    def partitions(self) -> Sequence[Ranges]:
        """Return the tasks. Called on the driver."""
        # For an empty list, Spark would create a task itself: return a task without ranges instead.
        return [Ranges(task) for task in batch_tasks(self._options, self._pushed) or [[]]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of a task as Arrow batches. Called on an executor."""
        return _read(self._options, self._names, partition)


class KafkaPushdownReader(KafkaBatchReader):
    """A KafkaBatchReader that applies filters on topic, partition, offset and timestamp.

    Needs spark.sql.python.filterPushdown.enabled: otherwise Spark rejects a reader with the method
    `pushFilters`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply filters to the ranges; return the filters that Spark must also apply to each
        row."""
        pushed = self._pushed = self._pushed or PushedFilters()
        return [f for f in filters if not _take(f, pushed)]


def _take(given: Any, pushed: PushedFilters) -> bool:
    kinds: dict[type, str] = {
        EqualTo: "=",
        In: "in",
        GreaterThan: ">",
        GreaterThanOrEqual: ">=",
        LessThan: "<",
        LessThanOrEqual: "<=",
    }
    operator = kinds.get(type(given))
    if operator is None or len(given.attribute) != 1:
        return False
    return pushed.take(given.attribute[0], operator, given.value)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics for a streaming query of Spark.

    The instance on the driver plans the ranges of each micro-batch; the instances on executors read
    the ranges.
    """

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._plan = StreamPlan(options)

    @with_short_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which the query starts."""
        return self._plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that applies if the trigger sets no limit."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @with_short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current end offsets, up to which the query reads."""
        self._plan.pin()

    @with_short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. If there are no new records, return `start`. With
        fewer new records than `minOffsetsPerTrigger`, also return `start`, until
        `maxTriggerDelay` has passed."""
        if isinstance(limit, ReadAllAvailable):
            return self._plan.end(start, None, wait=False)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        return self._plan.end(start, most, wait=True)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets of the partitions, for Spark's progress report; None before the
        first look-up.
        """
        return self._plan.latest()

    @with_short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Ranges]:
        """Return the tasks of a batch; an empty list for an empty batch. Called on the driver."""
        return [Ranges(task) for task in self._plan.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the records of a task as Arrow batches. Called on an executor."""
        return _read(self._options, self._names, partition)
