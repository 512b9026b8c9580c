"""Plan a query: the end of each batch of a stream, and the ranges that tasks read.

This module runs on the driver. It does not import pyspark, but it depends on the order in which
Spark calls the methods of the reader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar

from aiokafka.ranges import DataLoss, DataLossError, LossKind, PartitionRange
from aiokafka.spark._driver import Cluster, open_cluster
from aiokafka.spark._loop import loop_thread
from aiokafka.spark._offsets import (
    OffsetRange,
    Offsets,
    corrected_pins,
    from_json,
    pro_rata,
    ranges_between,
    split,
    start_in,
    to_json,
    total_between,
)
from aiokafka.spark._options import ReadOptions

__all__ = ["PushedFilters", "StreamPlan", "batch_tasks"]

log = logging.getLogger("aiokafka.spark")

T = TypeVar("T")

Task = list[PartitionRange]


def _query_cluster(
    options: ReadOptions, question: Callable[[Cluster], Coroutine[Any, Any, T]]
) -> T:
    """Return the result of `question(cluster)`. The connections stay open for later calls."""
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
    ranges: list[OffsetRange],
    options: ReadOptions,
    ids: Mapping[str, bytes],
    first_offsets: Offsets,
) -> list[Task]:
    """Divide ranges into tasks.

    A range whose start is in `first_offsets` starts at the first record of its partition. If that
    record is deleted before the task reads it, the task starts at the partition's new first record.
    """
    by_task = split(
        ranges,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
        max_records=options.max_records,
    )
    # If data loss is tolerated, a topic that was deleted and created again is read as well, so the
    # ranges have no topic ids.
    wanted = ids if options.fail_on_data_loss else {}
    return [
        [
            PartitionRange(
                *r,
                topic_id=wanted.get(r.topic),
                from_first=first_offsets.get(r.topic, {}).get(r.partition) == r.start,
            )
            for r in task
        ]
        for task in by_task
    ]


class _BatchRanges(NamedTuple):
    """The ranges of a batch query, and the ids of its topics.

    `gone` has the ranges of lost records, which are not in `ranges`. `first_offsets` has the
    partitions that are read from their first record, with this record's offset.
    """

    ranges: list[OffsetRange]
    gone: list[OffsetRange]
    first_offsets: Offsets
    ids: dict[str, bytes]


def _report_loss(options: ReadOptions, loss: DataLoss) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(loss)
    log.warning("skipped: %s", loss)


def batch_tasks(options: ReadOptions, pushed: PushedFilters | None = None) -> list[Task]:
    """Return the tasks of a batch query. `pushed` are filters, by which the ranges are narrowed.

    Raises ValueError if the options set an end before the start. Raises DataLossError if the log of
    a partition ends before the requested start, so that records were lost. If data loss is
    tolerated, logs a warning in place of the DataLossError.
    """

    async def look(cluster: Cluster) -> _BatchRanges:
        start = await cluster.starting()
        end = await cluster.ending(start)
        for topic, number, last, first in cluster.contradictory_ranges(start, end):
            raise ValueError(
                f"{topic}-{number}: the query would begin at offset {first} and end before it, at "
                f"{last}: the options for its start and for its end contradict each other"
            )
        gone = cluster.truncated_ranges(start, end)
        first_offsets = cluster.first_offsets(start)
        if pushed is not None and pushed.from_millis is not None:
            start = await cluster.not_before(start, end, pushed.from_millis)
        return _BatchRanges(ranges_between(start, end), gone, first_offsets, cluster.topic_ids())

    found = _query_cluster(options, look)
    for gone in found.gone:
        _report_loss(options, DataLoss(LossKind.TRUNCATION, *gone))
    ranges = found.ranges if pushed is None else pushed.narrow(found.ranges)
    return _tasks(ranges, options, found.ids, found.first_offsets)


class StreamPlan:
    """Plans the batches of a streaming query.

    Spark stores the offsets in the checkpoint. Arguments and results have the JSON format of
    Spark's own Kafka source. One instance on the driver has all the state.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._pinned: Offsets | None = None
        self._is_pin_checked = False
        self._latest: Offsets | None = None
        self._asked_at = -1e9
        self._triggered_at: float | None = None
        self._ids: dict[str, bytes] = {}

    # -- offsets

    def initial(self) -> dict[str, Any]:
        """Return the offsets at which the query starts. They are looked up only once."""
        if self._initial is None:
            self._initial = _query_cluster(self._options, Cluster.starting)
        return to_json(self._initial)

    def pin(self) -> None:
        """Store the current end offsets, up to which a query with the trigger AvailableNow
        reads."""
        self._pinned = _query_cluster(self._options, lambda cluster: cluster.latest())
        self._is_pin_checked = False

    def end(self, start: dict[str, Any], most: int | None, *, wait: bool) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`, after about `most` offsets (None:
        all).

        Returns `start` if there are no new records: then Spark runs no batch. With `wait`, also
        returns `start` while there are fewer than `minOffsetsPerTrigger` new records, but not for
        longer than `maxTriggerDelay`. If data loss is tolerated, only the first of the following
        errors is raised.

        Raises:
            ValueError: `start` has no Kafka offsets.
            ValueError: the checkpoint has topics of another query.
            RuntimeError: partitions are missing.
            DataLossError: an end is before `start`, or records at the start of a new partition were
                deleted.
        """
        begin = from_json(start)
        end = self._end_offsets(begin)
        # Check the end before Spark stores it in the checkpoint, because after every restart Spark
        # plans a stored batch again. If a query was started with the checkpoint of another query by
        # mistake, the other query must still be able to use its checkpoint.
        self._check_same_partitions(begin, end)
        self._check_not_lower(begin, end)
        # Add new partitions after these checks: for the checkpoint of another query all partitions
        # are new, and a DataLossError about them would hide the ValueError. Add them before the
        # offsets are counted, so that their records count, too.
        begin = self._with_new_partitions(begin, end)
        if wait and self._is_too_little(total_between(begin, end)):
            return start
        if most is not None:
            end = pro_rata(self._skip_deleted(begin, end, most), end, most)
        plain = from_json(start)
        # Return `start` itself: if it were converted to JSON again, its text might differ, and
        # Spark would start a batch.
        if end == plain:
            return start
        self._triggered_at = time.monotonic()
        return to_json(end, start=begin if plain == self._initial else None)

    def latest(self) -> dict[str, Any] | None:
        """Return the end offsets that were looked up last; None before the first look-up."""
        return None if self._latest is None else to_json(self._latest)

    def _end_offsets(self, begin: Offsets) -> Offsets:
        """Return the end offsets of the partitions. With AvailableNow, these are the end offsets
        that `pin` has stored. Otherwise they are looked up, and cached for
        `latestOffset.minIntervalMs`: an idle query calls this a hundred times a second.
        """
        now = time.monotonic()
        if self._pinned is not None:
            self._latest = self._pinned = self._checked_pin(self._pinned, begin)
            self._mirror(begin)
        elif self._latest is None or now - self._asked_at >= self._options.latest_interval:
            self._latest = _query_cluster(self._options, lambda cluster: cluster.latest(begin))
            self._asked_at = now
            self._mirror(begin)
        return self._latest

    def _checked_pin(self, pinned: Offsets, begin: Offsets) -> Offsets:
        """Return the pinned end offsets, corrected where they are before the start of the first
        batch.

        Spark calls `pin` before it calls `initial`:

        1. `pin`: partition 0 ends at 10.
        2. Another program writes two records.
        3. `initial`, with startingOffsets=latest: the query starts at 12.

        This is no data loss: the first batch of this partition is empty. An end is also corrected
        if a new leader has reported a too low offset for it.
        """
        if self._is_pin_checked:
            return pinned
        self._is_pin_checked = True
        if corrected_pins(pinned, begin, begin) == pinned:
            return pinned
        return corrected_pins(
            pinned, begin, _query_cluster(self._options, lambda cluster: cluster.latest(begin))
        )

    def _mirror(self, begin: Offsets) -> None:
        """With commitOffsets, commit the start of a batch: all records before this start are
        processed. Do nothing for the first batch."""
        if self._options.commit_offsets and begin != self._initial:
            _query_cluster(self._options, lambda cluster: cluster.mirror.commit(begin))

    def _is_too_little(self, count: int) -> bool:
        """Return whether to wait for more records, because there are fewer than
        minOffsetsPerTrigger.

        Returns False with AvailableNow, for the first batch, and after `maxTriggerDelay`.
        """
        least = self._options.min_offsets
        if least is None or self._pinned is not None or count >= least:
            return False
        last = self._triggered_at
        return last is not None and time.monotonic() - last < self._options.max_delay

    def _with_new_partitions(self, begin: Offsets, end: Offsets) -> Offsets:
        """Return `begin`, extended by the first offsets of the new partitions: those that are in
        `end`, but not in `begin`.

        Deleted records at the start of a new partition are data loss: raises DataLossError, or logs
        a warning if data loss is tolerated.
        """
        new = {
            topic: [number for number in numbers if number not in begin.get(topic, {})]
            for topic, numbers in end.items()
        }
        new = {topic: numbers for topic, numbers in new.items() if numbers}
        if not new:
            return begin
        first = _query_cluster(self._options, lambda cluster: cluster.earliest(new))
        for topic, numbers in first.items():
            for number, offset in numbers.items():
                if offset > 0:
                    _report_loss(
                        self._options, DataLoss(LossKind.RETENTION, topic, number, 0, offset)
                    )
        return {
            topic: {**begin.get(topic, {}), **first.get(topic, {})}
            for topic in begin.keys() | first.keys()
        }

    def _skip_deleted(self, begin: Offsets, end: Offsets, most: int) -> Offsets:
        """If data loss is tolerated and the batch is limited, return `begin` moved beyond deleted
        records; otherwise return `begin`.

        Deleted records must not count for the limit of a batch: otherwise the query would need many
        batches without rows to pass their offsets.
        """
        if self._options.fail_on_data_loss or total_between(begin, end) <= most:
            return begin
        first = _query_cluster(self._options, lambda cluster: cluster.first(begin))
        return {
            topic: {
                number: max(offset, first.get(topic, {}).get(number, offset))
                for number, offset in numbers.items()
            }
            for topic, numbers in begin.items()
        }

    def _check_same_partitions(self, begin: Offsets, end: Offsets) -> None:
        gone = _missing(begin, end)
        if not gone or not self._options.fail_on_data_loss:
            return  # data loss is tolerated: `tasks` logs a warning
        others = [topic for topic in sorted(begin) if not self._options.subscription.has(topic)]
        if others:
            raise ValueError(
                f"the checkpoint has offsets of topics that the query does not subscribe to: "
                f"{', '.join(others)}. If it is the checkpoint of another query, choose another "
                "checkpointLocation; to go on without these topics, set failOnDataLoss to false"
            )
        self._report_missing(gone)

    def _check_not_lower(self, begin: Offsets, end: Offsets) -> None:
        for topic, numbers in begin.items():
            for number, offset in numbers.items():
                last = end.get(topic, {}).get(number)
                if last is not None and last < offset:
                    _report_loss(
                        self._options, DataLoss(LossKind.TRUNCATION, topic, number, last, offset)
                    )

    # -- tasks

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        """Return the tasks of a batch; an empty list if the batch is empty.

        Raises RuntimeError for missing partitions, and DataLossError for recreated topics and for
        deleted records at the start of new partitions; logs warnings instead if data loss is
        tolerated. Raises ValueError if the start of the first batch is unknown (see `_first`).
        """
        first, last = self._first(start, end), from_json(end)
        if first == last:
            return []
        if gone := _missing(first, last):
            self._report_missing(gone)
        ids = _query_cluster(self._options, _topic_ids)
        self._check_ids(ids, ranges_between(first, last))
        # Spark stored the end when the batch was planned. Partitions may have been deleted since.
        if not self._options.fail_on_data_loss:
            last = self._without_deleted(last)
        ranges = ranges_between(self._with_new_partitions(first, last), last)
        return _tasks(ranges, self._options, ids, {})

    def _without_deleted(self, last: Offsets) -> Offsets:
        """Return `last` without partitions that were deleted after Spark had stored `last`."""
        there = _query_cluster(self._options, lambda cluster: cluster.existing(last))
        gone = _missing(last, there)
        if not gone:
            return last
        self._report_missing(gone)
        return {
            topic: {number: offset for number, offset in numbers.items() if number in there[topic]}
            for topic, numbers in last.items()
            if topic in there
        }

    def _first(self, start: dict[str, Any], end: dict[str, Any]) -> Offsets:
        """Return the start offsets of a batch. For the first batch of a query, `end` has them too:
        `end()` has stored them there, because Spark may repeat this batch after a restart.

        If another source (such as Spark's Kafka source) has planned the first batch, its `end` has
        no start offsets. When Spark repeats such a batch, the start is known only if the options
        give a fixed start: otherwise raises ValueError.
        """
        first = from_json(start)
        began_at = None if start_in(start) else start_in(end)
        if began_at is not None:
            return began_at
        if self._latest is None and first == self._initial and not self._options.has_fixed_start:
            raise ValueError(
                "the first batch of this checkpoint was begun by another source and not finished, "
                "and its start offsets are unknown here; set startingOffsets to the content of the "
                "file sources/0/0 of the checkpoint, or let that source finish the batch"
            )
        return first

    def _report_missing(self, gone: Iterable[str]) -> None:
        names = ", ".join(gone)
        if self._options.fail_on_data_loss:
            raise RuntimeError(
                f"partitions do not exist any more: {names}; set failOnDataLoss to false to "
                "continue without them"
            )
        log.warning("partitions do not exist any more: %s", names)

    def _check_ids(self, ids: Mapping[str, bytes], ranges: list[OffsetRange]) -> None:
        """Check for topics that were deleted and created again during the query. If data loss is
        tolerated, log a warning; otherwise raise DataLossError if `ranges` has such a topic.
        """
        replaced = {topic for topic, new in ids.items() if self._ids.get(topic, new) != new}
        if not self._options.fail_on_data_loss:
            if replaced:
                log.warning(
                    "topics were deleted and created again, but are read from the same offsets: %s",
                    sorted(replaced),
                )
            self._ids.update(ids)
            return
        for wanted in ranges:
            if wanted.topic in replaced:
                raise DataLossError(DataLoss(LossKind.NEW_TOPIC, *wanted))
        self._ids = {**ids, **self._ids}


def _missing(wanted: Mapping[str, Iterable[int]], there: Mapping[str, Container[int]]) -> list[str]:
    """Return the names of those `wanted` partitions that are not in `there`."""
    return [
        f"{topic}-{number}"
        for topic, numbers in wanted.items()
        for number in numbers
        if number not in there.get(topic, ())
    ]


async def _topic_ids(cluster: Cluster) -> dict[str, bytes]:
    await cluster.partitions(refresh=False)
    return cluster.topic_ids()


# -- Filters on topic, partition, offset and timestamp that Spark pushes down

_OPERATORS = ("=", "in", ">", ">=", "<", "<=")


class PushedFilters:
    """The filters of a query that narrow the ranges of its tasks."""

    def __init__(self) -> None:
        self.from_millis: int | None = None
        """The earliest wanted timestamp in milliseconds since 1970; None if there is no bound."""

        self._topics: set[str] | None = None
        self._numbers: set[int] | None = None
        self._lowest = 0
        self._highest = 2**63 - 1
        self._lowest_number = 0
        self._highest_number = 2**31 - 1

    def take(self, column: str, operator: str, value: Any) -> bool:
        """Apply a filter. Return whether all rows of the narrowed ranges match it: otherwise Spark
        must apply it to each row as well."""
        if operator not in _OPERATORS:
            return False
        if column == "topic":
            return self._take_topic(operator, value)
        if column == "timestamp":
            self._take_time(operator, value)
            return False  # timestamps may not be in order, so Spark must check each row
        if column in ("partition", "offset"):
            return self._take_number(column, operator, value)
        return False

    def narrow(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges with only those offsets that can match, without empty ranges."""
        return [
            left
            for r in ranges
            if self._has(r) and (left := _cut(r, self._lowest, self._highest)).start < left.until
        ]

    def _has(self, wanted: OffsetRange) -> bool:
        return (
            (self._topics is None or wanted.topic in self._topics)
            and (self._numbers is None or wanted.partition in self._numbers)
            and self._lowest_number <= wanted.partition <= self._highest_number
        )

    def _take_topic(self, operator: str, value: Any) -> bool:
        values = _values(operator, value, str)
        if values is None:
            return False
        self._topics = values if self._topics is None else self._topics & values
        return True

    def _take_number(self, column: str, operator: str, value: Any) -> bool:
        values = _values(operator, value, int)
        if values is not None:
            if column == "partition":
                self._numbers = values if self._numbers is None else self._numbers & values
                return True
            if len(values) != 1:
                return False
            self._bound(column, min(values), min(values))
            return True
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        if operator in (">", ">="):
            self._bound(column, value + (operator == ">"), None)
        else:
            self._bound(column, None, value - (operator == "<"))
        return True

    def _bound(self, column: str, lowest: int | None, highest: int | None) -> None:
        if column == "partition":
            self._lowest_number = max(self._lowest_number, lowest or 0)
            if highest is not None:
                self._highest_number = min(self._highest_number, highest)
        else:
            self._lowest = max(self._lowest, lowest or 0)
            if highest is not None:
                self._highest = min(self._highest, highest)

    def _take_time(self, operator: str, value: Any) -> None:
        if not isinstance(value, datetime) or operator not in ("=", ">", ">="):
            return
        if value.tzinfo is None:
            return  # its time zone is that of the Spark session, which is not known here
        seconds = (value - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()
        millis = max(0, int(seconds * 1000) - 1)
        self.from_millis = millis if self.from_millis is None else max(self.from_millis, millis)


def _values(operator: str, value: Any, kind: type) -> set[Any] | None:
    """Return the values of an `=` or `in` filter as a set; None for other operators, and for values
    of another type."""
    if operator == "=":
        found = {value}
    elif operator == "in":
        found = set(value)
    else:
        return None
    usable = all(isinstance(item, kind) and not isinstance(item, bool) for item in found)
    return found if usable else None


def _cut(whole: OffsetRange, lowest: int, highest: int) -> OffsetRange:
    start = max(whole.start, lowest)
    return whole._replace(start=start, until=max(start, min(whole.until, highest + 1)))
