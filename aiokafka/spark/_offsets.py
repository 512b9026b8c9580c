"""Offsets of a query: their JSON, the sizes of batches, the ranges of tasks, and the lag.

`Offsets` maps topics and partitions to offsets. Its JSON has the format of Spark's own Kafka
source, `{"topic": {"0": 23}}`, so that each source can continue from a checkpoint of the other.

Spark does not store the initial offset of a Python source: to repeat the first batch, it calls
`initialOffset` again. But Spark stores the end of that batch. Therefore the end includes the start,
under the number of the partition with a leading zero: `{"topic": {"00": 5, "0": 23}}`. Spark's own
source parses both keys as partition 0 and uses the last value, so it can read this end, too.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka.spark._options import EARLIEST, LATEST, Bound
from aiokafka.structs import TopicPartition

__all__ = [
    "Lag",
    "OffsetRange",
    "Offsets",
    "RequestedOffset",
    "corrected_pins",
    "from_json",
    "lag",
    "lag_listener",
    "lag_of",
    "pro_rata",
    "ranges_between",
    "requested_offsets",
    "split",
    "start_in",
    "to_json",
    "total_between",
]

Offsets = dict[str, dict[int, int]]


class OffsetRange(NamedTuple):
    """A range of offsets of one partition, from `start` up to but not including `until`."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets in the range. The range may have fewer records, for example after
        compaction."""
        return self.until - self.start


class RequestedOffset(NamedTuple):
    """The offset that the options request for a partition, as an offset or as a timestamp."""

    offset: int | None = None
    """An offset, EARLIEST or LATEST; None for a timestamp."""

    timestamp: int | None = None
    """Milliseconds since 1970: requests the first record with this or a later timestamp. None for
    an offset."""


# -- JSON


def to_json(offsets: Offsets, start: Offsets | None = None) -> dict[str, Any]:
    """Convert offsets to Spark's JSON. If `offsets` is the end of the first batch, `start` is the
    start of this batch, and the JSON includes it; otherwise `start` is None."""
    return {
        topic: {**_before((start or {}).get(topic, {}), numbers), **_numbers(numbers)}
        for topic, numbers in sorted(offsets.items())
    }


def _before(start: dict[int, int], end: dict[int, int]) -> dict[str, int]:
    return {f"0{partition}": start[partition] for partition in sorted(start.keys() & end.keys())}


def _numbers(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def from_json(raw: Mapping[str, Any]) -> Offsets:
    """Convert Spark's JSON to offsets. If the JSON also has the offsets at which the batch starts,
    they are ignored.

    Raises ValueError for JSON of another form, as in the checkpoint of a query with another source.
    """
    try:
        return {
            topic: {
                int(partition): int(offset)
                for partition, offset in numbers.items()
                if not _is_start(partition)
            }
            for topic, numbers in raw.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"the checkpoint has {json.dumps(raw)} in place of offsets of Kafka, such as "
            '{"topic": {"0": 23}}: it belongs to another query, or the order of the query\'s '
            "sources has changed"
        ) from None


def start_in(raw: Mapping[str, Any]) -> Offsets | None:
    """Return the start offsets that the JSON of an end includes; None if it includes none. Only the
    end of the first batch includes them."""
    found = {
        topic: {int(number): int(offset) for number, offset in numbers.items() if _is_start(number)}
        for topic, numbers in raw.items()
    }
    return {topic: numbers for topic, numbers in found.items() if numbers} or None


def _is_start(partition: str) -> bool:
    return len(partition) > 1 and partition.startswith("0")


# -- Starts and ends


def requested_offsets(
    bound: Bound, partitions: Mapping[str, Iterable[int]], side: str
) -> dict[str, dict[int, RequestedOffset]]:
    """Return the requested start (`side` "starting") or end ("ending") of each partition.

    `bound.word` must not be "committed". Raises ValueError if `bound` has offsets or timestamps by
    partition, and their partitions differ from `partitions`.
    """
    if bound.timestamp is not None:
        return _for_all(partitions, RequestedOffset(timestamp=bound.timestamp))
    if bound.timestamps is not None:
        _check_same(f"{side}OffsetsByTimestamp", bound.timestamps, partitions)
        return {
            topic: {number: RequestedOffset(timestamp=value) for number, value in values.items()}
            for topic, values in bound.timestamps.items()
        }
    if bound.offsets is not None:
        _check_same(f"{side}Offsets", bound.offsets, partitions)
        return {
            topic: {number: RequestedOffset(offset=value) for number, value in values.items()}
            for topic, values in bound.offsets.items()
        }
    return _for_all(
        partitions, RequestedOffset(offset=EARLIEST if bound.word == "earliest" else LATEST)
    )


def _for_all(
    partitions: Mapping[str, Iterable[int]], wish: RequestedOffset
) -> dict[str, dict[int, RequestedOffset]]:
    return {topic: dict.fromkeys(numbers, wish) for topic, numbers in partitions.items()}


def _check_same(
    name: str, given: Mapping[str, Mapping[int, int]], partitions: Mapping[str, Iterable[int]]
) -> None:
    named = {(topic, number) for topic, numbers in given.items() for number in numbers}
    wanted = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
    if named == wanted:
        return
    missing = ", ".join(f"{topic}-{number}" for topic, number in sorted(wanted - named))
    extra = ", ".join(f"{topic}-{number}" for topic, number in sorted(named - wanted))
    raise ValueError(
        f"{name}: must name every partition that is read, and no other"
        + (f"; missing: {missing}" if missing else "")
        + (f"; not read: {extra}" if extra else "")
    )


# -- Sizes of batches


def total_between(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets from `start` to `end`. Partitions without a start are
    ignored."""
    return sum(r.size for r in ranges_between(start, end))


def pro_rata(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Return an end that is about `limit` offsets after `start`; at most `end`. The limit is
    divided among the partitions in proportion to their sizes.

    Each partition with new offsets gets at least one, so that every partition makes progress.
    """
    total = total_between(start, end)
    if total <= limit:
        return end
    limited: Offsets = {}
    for topic, numbers in end.items():
        for partition, until in numbers.items():
            first = start.get(topic, {}).get(partition, until)
            size = until - first
            share = max(1, limit * size // total) if size > 0 else 0
            limited.setdefault(topic, {})[partition] = first + share if size > 0 else until
    return limited


def corrected_pins(pinned: Offsets, start: Offsets, now: Offsets) -> Offsets:
    """Return the end offsets that `StreamPlan.pin` has stored (`pinned`). An end that is missing or
    before `start` is replaced by the start, or by the current end (`now`) if that is lower.

    An end may be before the start, because Spark calls `pin` before the start is known. The ends of
    partitions that `now` lacks are not changed.
    """
    ends = {topic: dict(numbers) for topic, numbers in pinned.items()}
    for topic, numbers in start.items():
        for partition, first in numbers.items():
            end, latest = ends.get(topic, {}).get(partition), now.get(topic, {}).get(partition)
            if latest is not None and (end is None or end < first):
                ends.setdefault(topic, {})[partition] = min(first, latest)
    return ends


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges from `start` to `end`, sorted by topic and partition. Empty ranges are
    omitted."""
    return [
        OffsetRange(topic, partition, first, until)
        for topic, numbers in sorted(end.items())
        for partition, until in sorted(numbers.items())
        if (first := start.get(topic, {}).get(partition, until)) < until
    ]


# -- Ranges of tasks


def split(
    ranges: list[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[OffsetRange]]:
    """Divide ranges among tasks. Each list of the result is read by one task.

    By default, each range is a task. A range is divided if it has more than `max_records` offsets,
    or if there would be fewer than `min_partitions` tasks. Ranges are combined if there would be
    more than `max_partitions` tasks. The result depends only on the arguments, so a repeated batch
    has the same tasks.
    """
    pieces = [piece for r in ranges for piece in _divide(r, _pieces_for(r, max_records))]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _spread(pieces, min_partitions)
    if max_partitions is None or len(pieces) <= max_partitions:
        return [[piece] for piece in pieces]
    return _pack(pieces, max_partitions)


def _pieces_for(whole: OffsetRange, max_records: int | None) -> int:
    return 1 if max_records is None else -(-whole.size // max_records)


def _divide(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Divide a range into `count` pieces of nearly equal size; into fewer if it has fewer
    offsets."""
    count = max(1, min(count, whole.size))
    marks = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [whole._replace(start=first, until=until) for first, until in itertools.pairwise(marks)]


def _spread(ranges: list[OffsetRange], count: int) -> list[OffsetRange]:
    """Divide ranges into about `count` pieces. A small range is one piece. Large ranges are divided
    into the other pieces in proportion to their sizes.
    """
    total = sum(r.size for r in ranges)
    large = [r for r in ranges if _share(r.size, total, count) > 1]
    total_large = sum(r.size for r in large)
    rest = max(1, count - (len(ranges) - len(large)))
    pieces = []
    for r in ranges:
        is_large = _share(r.size, total, count) > 1
        pieces += _divide(r, _share(r.size, total_large, rest)) if is_large else [r]
    return pieces


def _share(size: int, total: int, count: int) -> int:
    return max(1, int(size * count / total + 0.5))


def _pack(pieces: list[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Divide the pieces among `count` tasks of similar size: the largest remaining piece goes to
    the task that is smallest so far.
    """
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for piece in sorted(pieces, key=lambda p: (-p.size, p)):
        load, index = heapq.heappop(loads)
        tasks[index].append(piece)
        heapq.heappush(loads, (load + piece.size, index))
    return [sorted(task) for task in tasks]


# -- The lag of a query


class Lag(NamedTuple):
    """The lag of a query in each partition, as a number of offsets, at the end of a batch."""

    partitions: dict[TopicPartition, int]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of Spark's own Kafka source, with the same names."""
        behind = list(self.partitions.values()) or [0]
        return {
            "minOffsetsBehindLatest": min(behind),
            "maxOffsetsBehindLatest": max(behind),
            "avgOffsetsBehindLatest": sum(behind) / len(behind),
        }


def lag_of(progress: Any) -> Lag:
    """Return the lag that a `StreamingQueryProgress`, or its JSON as a mapping, reports for all
    Kafka sources of the query."""
    report = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind: dict[TopicPartition, int] = {}
    for source in report.get("sources") or ():
        end, latest = (
            _offsets_of_source(source.get("endOffset")),
            _offsets_of_source(source.get("latestOffset")),
        )
        for topic, numbers in latest.items():
            for number, offset in numbers.items():
                done = end.get(topic, {}).get(number, offset)
                behind[TopicPartition(topic, number)] = max(0, offset - done)
    return Lag(behind)


def lag(query: Any) -> Lag | None:
    """Return the lag of a running `StreamingQuery` after its last batch; None before its first
    batch."""
    progress = query.lastProgress
    return None if progress is None else lag_of(progress)


def _offsets_of_source(raw: Any) -> dict[str, dict[int, int]]:
    """Return the offsets of a source; {} if the source is not a Kafka source."""
    try:
        return from_json(json.loads(raw) if isinstance(raw, str) else raw or {})
    except (ValueError, AttributeError, TypeError):
        return {}


def lag_listener(callback: Callable[[str | None, Lag], None]) -> Any:
    """Return a `StreamingQueryListener` that calls `callback(query name, lag)` after each batch.

    ::

        spark.streams.addListener(lag_listener(lambda name, lag: print(name, lag.metrics)))
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class LagListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            """Do nothing: there is no progress yet."""

        def onQueryProgress(self, event: Any) -> None:
            callback(event.progress.name, lag_of(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            """Do nothing: no batch has run."""

        def onQueryTerminated(self, event: Any) -> None:
            """Do nothing: there is no more progress."""

    return LagListener()
