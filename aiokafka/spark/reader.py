"""The reading side of the data source, as Spark calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

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

from aiokafka.ranges import DataLoss, DataLossError, LossKind, PartitionRange
from aiokafka.spark._driver import Cluster, open_cluster
from aiokafka.spark._fetch import read_batches
from aiokafka.spark._loop import loop_thread
from aiokafka.spark._offsets import (
    OffsetRange,
    Offsets,
    from_json,
    pro_rata,
    ranges_between,
    split,
    start_in,
    to_json,
    total_between,
)
from aiokafka.spark._options import ReadOptions
from aiokafka.spark._pushdown import Pushed

__all__ = ["KafkaBatchReader", "KafkaPushdownReader", "KafkaStreamReader", "Ranges"]

log = logging.getLogger("aiokafka.spark")

T = TypeVar("T")


class Ranges(InputPartition):
    """What one task of Spark reads: ranges of any number of partitions."""

    def __init__(self, value: list[PartitionRange]) -> None:
        super().__init__(value)


def _ask(options: ReadOptions, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """The answer of the cluster, over connections that stay open for the next question."""
    thread = loop_thread()

    async def ask() -> T:
        key = ("drive", options.kafka.key(), repr(options))
        use = thread.clients.use(
            key, lambda: open_cluster(options), Cluster.close, options.idle_timeout
        )
        async with use as cluster:
            return await question(cluster)

    return thread.run(ask())


def _tasks(
    ranges: list[OffsetRange], options: ReadOptions, ids: Mapping[str, bytes]
) -> list[Ranges]:
    shared_out = split(
        ranges,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
        max_records=options.max_records,
    )
    # Where loss is tolerated, what there is gets read, whichever topic of the name has it.
    wanted = ids if options.fail_on_data_loss else {}
    return [
        Ranges(
            [
                PartitionRange(r.topic, r.partition, r.start, r.until, wanted.get(r.topic))
                for r in task
            ]
        )
        for task in shared_out
    ]


async def _topic_ids(cluster: Cluster) -> dict[str, bytes]:
    await cluster.partitions(anew=False)
    return cluster.topic_ids()


class KafkaBatchReader(DataSourceReader):
    """Reads from one set of offsets to another."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[Ranges]:
        """The tasks; on the driver."""
        start, end, ids = _ask(self._options, self._look)
        return _tasks(self._narrowed(ranges_between(start, end)), self._options, ids) or [
            Ranges([])
        ]

    async def _look(self, cluster: Cluster) -> tuple[Offsets, Offsets, dict[str, bytes]]:
        start, end = await cluster.starting(), await cluster.ending()
        return start, end, cluster.topic_ids()

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of a task, as Arrow batches; on an executor."""
        return read_batches(self._options, self._names, partition.value)


class KafkaPushdownReader(KafkaBatchReader):
    """As KafkaBatchReader, and reads only what filters on topic, partition, offset and timestamp
    leave over.

    Needs spark.sql.python.filterPushdown.enabled; without it Spark refuses readers that could.
    """

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        super().__init__(options, names)
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what is of use; the filters that Spark still has to apply."""
        return [f for f in filters if not self._take(f)]

    def _take(self, given: Filter) -> bool:
        kinds = {
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
        return self._pushed.take(given.attribute[0], operator, given.value)

    async def _look(self, cluster: Cluster) -> tuple[Offsets, Offsets, dict[str, bytes]]:
        start, end, ids = await super()._look(cluster)
        if self._pushed.from_millis is not None:
            start = await cluster.not_before(start, end, self._pushed.from_millis)
        return start, end, ids

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        return self._pushed.narrow(ranges)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch. Spark keeps the offsets, in the format of its own Kafka source.

    One instance lives on the driver and has all the state; others, on executors, only read.
    """

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._initial: Offsets | None = None
        self._pinned: Offsets | None = None
        self._latest: Offsets | None = None
        self._asked_at = -1e9
        self._triggered_at: float | None = None
        self._ids: dict[str, bytes] = {}

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where the query begins. Spark asks more than once, and gets the same answer."""
        if self._initial is None:
            self._initial = _ask(self._options, Cluster.starting)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch reads, unless the trigger says otherwise."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what there is now, and no further."""
        self._pinned = _ask(self._options, lambda cluster: cluster.latest())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself when there is none yet."""
        begin = from_json(start)
        end = self._ends(begin)
        self._check_not_lower(begin, end)
        begin = self._with_new(begin, end)
        if not isinstance(limit, ReadAllAvailable):
            if self._is_too_little(total_between(begin, end)):
                return start
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
            end = end if most is None else pro_rata(begin, end, most)
        plain = from_json(start)
        if end == plain:
            return start
        self._triggered_at = time.monotonic()
        return to_json(end, start=begin if plain == self._initial else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions, for the progress of the query."""
        return None if self._latest is None else to_json(self._latest)

    def _ends(self, begin: Offsets) -> Offsets:
        """The ends of the partitions: at the beginning of an AvailableNow, or a moment ago.

        Idle, Spark asks a hundred times a second; the cluster is not asked as often.
        """
        now = time.monotonic()
        if self._pinned is not None:
            self._latest = self._pinned
            self._mirror(begin)
        elif self._latest is None or now - self._asked_at >= self._options.latest_interval:
            self._latest = _ask(self._options, lambda cluster: cluster.latest(begin))
            self._asked_at = now
            self._mirror(begin)
        return self._latest

    def _mirror(self, begin: Offsets) -> None:
        """Where a batch begins is what Spark has finished."""
        if self._options.commit_offsets and begin != self._initial:
            _ask(self._options, lambda cluster: cluster.mirror(begin))

    def _is_too_little(self, count: int) -> bool:
        """Whether to wait for more; with AvailableNow there will be no more."""
        least = self._options.min_offsets
        if least is None or self._pinned is not None or count >= least:
            return False
        last = self._triggered_at
        return last is not None and time.monotonic() - last < self._options.max_delay

    def _with_new(self, begin: Offsets, end: Offsets) -> Offsets:
        """`begin`, with the first offsets of partitions that are in `end` alone."""
        new = {
            topic: [number for number in numbers if number not in begin.get(topic, {})]
            for topic, numbers in end.items()
        }
        new = {topic: numbers for topic, numbers in new.items() if numbers}
        if not new:
            return begin
        first = _ask(self._options, lambda cluster: cluster.earliest(new))
        for topic, numbers in first.items():
            for number, offset in numbers.items():
                if offset > 0:
                    self._lose(DataLoss(LossKind.RETENTION, topic, number, 0, offset))
        return {
            topic: {**begin.get(topic, {}), **first.get(topic, {})}
            for topic in begin.keys() | first.keys()
        }

    def _check_not_lower(self, begin: Offsets, end: Offsets) -> None:
        for topic, numbers in begin.items():
            for number, offset in numbers.items():
                last = end.get(topic, {}).get(number)
                if last is not None and last < offset:
                    self._lose(DataLoss(LossKind.TRUNCATION, topic, number, last, offset))

    def _lose(self, loss: DataLoss) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(loss)
        log.warning("skipped: %s", loss)

    # -- tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Ranges]:
        """The tasks of a batch; none when it is empty."""
        first, last = self._first(start, end), from_json(end)
        if first == last:
            return []
        gone = [
            f"{topic}-{number}"
            for topic, numbers in first.items()
            for number in numbers
            if number not in last.get(topic, {})
        ]
        if gone:
            self._lose_partitions(gone)
        ids = _ask(self._options, _topic_ids)
        self._check_ids(ids, ranges_between(first, last))
        return _tasks(ranges_between(self._with_new(first, last), last), self._options, ids)

    def _first(self, start: dict[str, Any], end: dict[str, Any]) -> Offsets:
        """Where a batch begins: as its end says, if it is the first, which may be a repetition."""
        first = from_json(start)
        began_at = None if start_in(start) else start_in(end)
        if began_at is not None:
            return began_at
        if self._latest is None and first == self._initial and not self._options.starts_alike:
            raise ValueError(
                "the first batch of this checkpoint was begun by another source and not finished, "
                "and its start depended on when it began; give startingOffsets as the file "
                "sources/0/0 of the checkpoint has it, or let that source finish the batch"
            )
        return first

    def _lose_partitions(self, gone: list[str]) -> None:
        message = f"partitions are gone: {', '.join(gone)}"
        if self._options.fail_on_data_loss:
            raise RuntimeError(f"{message}; set failOnDataLoss to false to go on without them")
        log.warning(message)

    def _check_ids(self, ids: Mapping[str, bytes], ranges: list[OffsetRange]) -> None:
        """The ids of the topics are to be the same as long as the query runs."""
        anew = {topic for topic, new in ids.items() if self._ids.get(topic, new) != new}
        if not self._options.fail_on_data_loss:
            if anew:
                log.warning("made anew, and read on at the same offsets: %s", sorted(anew))
            self._ids.update(ids)
            return
        for wanted in ranges:
            if wanted.topic in anew:
                raise DataLossError(DataLoss(LossKind.NEW_TOPIC, *wanted))
        self._ids = {**ids, **self._ids}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of a task, as Arrow batches; on an executor."""
        return read_batches(self._options, self._names, partition.value)
