"""Metrics of clients as plain data."""

from __future__ import annotations

import enum
import functools
import weakref
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

from aiokafka.metrics._clients import Histogram

__all__ = [
    "Distribution",
    "GroupWriter",
    "Histogram",
    "LastingSums",
    "Metric",
    "MetricKind",
    "MetricRows",
    "MetricsSnapshot",
    "Value",
    "added",
    "is_total",
    "not_found",
]


# -- Totals that are 0 before their first event, and the errors for unknown names


_OF_NODES = ("request-total", "response-total", "outgoing-byte-total", "incoming-byte-total")
_CONNECTIONS = {
    "connection-creation-total": "",
    "connection-close-total": "",
    "connection-failure-total": "",
    **dict.fromkeys(_OF_NODES, ""),
}
_NODES = {**dict.fromkeys(_OF_NODES, "node-id"), "throttle-time-total": "node-id"}
_BATCHES = (
    "record-send-total",
    "byte-total",
    "batch-total",
    "record-retry-total",
    "record-error-total",
)

_TOTALS: dict[str, dict[str, str]] = {
    "client-metrics": _CONNECTIONS,
    "client-node-metrics": _NODES,
    "admin-client-metrics": _CONNECTIONS,
    "admin-client-node-metrics": _NODES,
    "producer-metrics": {
        **_CONNECTIONS,
        **dict.fromkeys(_BATCHES, ""),
        "batch-split-total": "",
        "flush-time-ns-total": "",
        "bufferpool-wait-time-ns-total": "",
        "buffer-exhausted-total": "",
        "txn-init-time-ns-total": "",
        "txn-begin-time-ns-total": "",
        "txn-send-offsets-time-ns-total": "",
        "txn-commit-time-ns-total": "",
        "txn-abort-time-ns-total": "",
    },
    "producer-node-metrics": _NODES,
    "producer-topic-metrics": dict.fromkeys(_BATCHES, "topic"),
    "consumer-metrics": _CONNECTIONS,
    "consumer-node-metrics": _NODES,
    "consumer-fetch-manager-metrics": {
        "records-consumed-total": "topic partition",
        "bytes-consumed-total": "topic",
        "records-skipped-total": "topic",
        "records-unreadable-total": "topic",
        "fetch-total": "",
    },
    "consumer-coordinator-metrics": {
        "rebalance-total": "",
        "commit-total": "",
        "commit-failed-total": "",
    },
    "parallel-consumer-metrics": {
        "records-finished-total": "",
        "records-failed-total": "",
        "process-time-total": "",
    },
    "retry-topics-metrics": {
        "record-retry-total": "topic",
        "record-dead-letter-total": "topic",
    },
}
"""The tags of each total, by group and name. Some totals are in a snapshot only after the first
event: the first record of a topic, the first partition, or the first connection."""

_UNKNOWN_AT_FIRST = frozenset(
    {
        "metadata-age",
        "compression-rate-avg",
        "request-latency",
        "records-lag",
        "records-lag-max",
        "records-lead",
        "position",
        "paused",
        "generation",
        "last-rebalance-seconds-ago",
        "last-heartbeat-seconds-ago",
        "time-between-poll-avg",
        "time-between-poll-max",
        "poll-idle-ratio-avg",
        "last-poll-seconds-ago",
    }
)
"""Metrics that have no value before the first event, not even 0."""


def is_total(name: str, group: str | None, tags: Collection[str], groups: Collection[str]) -> bool:
    """Return whether a client that has metrics of `groups` has this total, even if it is not in a
    snapshot before its first event."""
    return any(
        name in totals
        and group in (None, counted)
        and set(tags) <= set(totals[name].split())
        and _client_group(counted) in groups
        for counted, totals in _TOTALS.items()
    )


def not_found(
    name: str, group: str | None, tags: Mapping[str, str], here: Collection[str]
) -> KeyError:
    """Return a KeyError whose text says why there is no such metric. `here` has the names of the
    metrics in the snapshot."""
    known = {*here, *_UNKNOWN_AT_FIRST}.union(*_TOTALS.values())
    if name not in known:
        import difflib  # imported here, because only this error text needs it

        close = difflib.get_close_matches(name.replace("_", "-"), sorted(known), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return KeyError(f"no metric is called {name!r}{hint}")
    asked = [f"{tag}={value!r}" for tag, value in {"group": group, **tags}.items() if value]
    where = f" with {', '.join(asked)}" if asked else ""
    missing = "is not known" if name in _UNKNOWN_AT_FIRST else "is not among these metrics"
    return KeyError(f"{name!r}{where} {missing}")


def _client_group(group: str) -> str:
    """Return the group of the whole client for a group of metrics of nodes or topics; other groups
    are returned unchanged."""
    return group.replace("-node-metrics", "-metrics").replace("-topic-metrics", "-metrics")


class MetricKind(str, enum.Enum):
    """The kinds of metrics. The members are strings, such as "counter"."""

    COUNTER = "counter"
    """A total that only grows, counted since the client was created."""

    GAUGE = "gauge"
    """A value at the moment of the snapshot."""

    HISTOGRAM = "histogram"
    """A `Distribution` of values since the client was created."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of observed values."""

    count: int
    """The number of values."""

    sum: float
    """The sum of the values."""

    max: float
    """The largest value; 0 without values."""

    buckets: tuple[tuple[float, int], ...]
    """Pairs (upper bound, number of values up to this bound). The last bound is infinite."""

    @property
    def mean(self) -> float:
        """The mean of all values; 0 without values."""
        return self.sum / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a client at one moment."""

    group: str
    """The group in the Java client, such as `"producer-metrics"`."""

    name: str
    """The name in the Java client, such as `"record-send-total"`."""

    value: float | Distribution
    """The value; a Distribution for a histogram."""

    kind: MetricKind
    unit: str
    """The unit: `"records"`, `"bytes"`, `"ms"`, `"ns"`, `"s"`, or `""` if the name implies it."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """The tag `client-id`, and `topic`, `partition` or `node-id` for a metric of a single topic,
    partition or node."""

    @property
    def telemetry_name(self) -> str:
        """The name in pushed metrics (KIP-714), such as
        `"org.apache.kafka.producer.record.send.total"`."""
        group = self.group.removesuffix("-metrics")
        return f"org.apache.kafka.{group}.{self.name}".replace("-", ".")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data. The infinite bound of a histogram becomes None."""
        value: Any = self.value
        if isinstance(value, Distribution):
            finite = [[bound, count] for bound, count in value.buckets[:-1]]
            value = {**asdict(value), "buckets": [*finite, [None, value.count]]}
        return {
            "group": self.group,
            "name": self.name,
            "value": value,
            "kind": str(self.kind),
            "unit": self.unit,
            "tags": dict(self.tags),
        }


class MetricRows(Protocol):
    """The metrics of many partitions, stored as numbers. Metric objects are created only when they
    are iterated."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Metric]: ...

    def named(self, name: str) -> Iterator[Metric]:
        """Return the metrics with the name `name`."""


class MetricsSnapshot(Sequence[Metric]):
    """All metrics of a client at one moment. It does not change.

    All numbers are read when the snapshot is created. The `Metric` objects of partitions are
    created only when they are needed, because there may be very many.
    """

    def __init__(self, metrics: Iterable[Metric], partitions: MetricRows | None = None) -> None:
        self._metrics = tuple(metrics)
        self._partitions = partitions
        self._all: tuple[Metric, ...] | None = self._metrics if partitions is None else None

    def __repr__(self) -> str:
        return f"<MetricsSnapshot of {len(self)} metrics>"

    def __len__(self) -> int:
        return len(self._metrics) + (0 if self._partitions is None else len(self._partitions))

    def __iter__(self) -> Iterator[Metric]:
        if self._all is None and self._partitions is not None:
            return chain(self._metrics, self._partitions)
        return iter(self._metrics if self._all is None else self._all)

    def __getitem__(self, index: Any) -> Any:
        if self._all is None:
            self._all = tuple(self)
        return self._all[index]

    def without_partitions(self) -> MetricsSnapshot:
        """Return a snapshot with the same metrics, except those of single partitions."""
        return MetricsSnapshot(self._metrics)

    def find(self, name: str, group: str | None = None, **tags: str | int) -> list[Metric]:
        """Return the metrics with this name and, if given, this group and these tags.

        Tags are written with underscores: `find("records-lag", topic="orders", partition=0)`. A
        metric matches if it has all given tags; it may have more.
        """
        wanted = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        of_partitions = () if self._partitions is None else self._partitions.named(name)
        return [
            metric
            for metric in chain(self._metrics, of_partitions)
            if metric.name == name
            and group in (None, metric.group)
            and wanted.items() <= metric.tags.items()
        ]

    def value(self, name: str, group: str | None = None, **tags: str | int) -> Any:
        """Return the value of the metric that `find` returns for these arguments.

        If `find` returns several metrics, the metric with the fewest tags is used: without
        `topic=`, the total of the client. A total without an event is 0, for example the total of a
        topic without records. Raises KeyError for an unknown metric; the text of the error suggests
        a similar name.
        """
        found = sorted(self.find(name, group, **tags), key=_tag_count)
        if found:
            return found[0].value
        wanted = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        groups = {
            one.group
            for one in self._metrics
            if one.tags.get("client-id") == wanted.get("client-id", one.tags.get("client-id"))
        }
        if is_total(name, group, wanted.keys() - {"client-id"}, groups):
            return 0
        raise not_found(name, group, wanted, {one.name for one in self._metrics})

    def as_list(self) -> list[dict[str, Any]]:
        """Return all metrics as JSON data."""
        return [metric.as_dict() for metric in self]


def _tag_count(metric: Metric) -> int:
    return len(metric.tags)


# -- The kind and unit of each metric, by group and name


_UNITS = {
    "bytes": "bytes",
    "byte": "bytes",
    "size": "bytes",
    "records": "records",
    "record": "records",
}
_TIMES = {
    "-ms": "ms",
    "-latency": "ms",
    "-time": "ms",
    "-time-total": "ms",
    "-ns-total": "ns",
    "-seconds-ago": "s",
    "-age": "s",
    "-poll-avg": "ms",
    "-poll-max": "ms",
}


class GroupWriter(NamedTuple):
    """Creates the metrics of one group. They all have the same tags."""

    group: str
    tags: Mapping[str, str]

    def counters(self, **values: float) -> Iterator[Metric]:
        """Yield a counter for each value. A keyword is the name of its metric, with underscores
        instead of hyphens: `bytes_total=1` is the metric `bytes-total`."""
        return self._each(MetricKind.COUNTER, values)

    def gauges(self, **values: float | None) -> Iterator[Metric]:
        """Yield a gauge for each value that is not None. For the keywords, see `counters`."""
        return self._each(MetricKind.GAUGE, {n: v for n, v in values.items() if v is not None})

    def histograms(self, **values: Histogram) -> Iterator[Metric]:
        """Yield a metric with a `Distribution` for each histogram. For the keywords, see
        `counters`."""
        return self._each(
            MetricKind.HISTOGRAM, {n: Distribution(*v.read()) for n, v in values.items()}
        )

    def tagged(self, group: str, **tags: str | int) -> GroupWriter:
        """Return a writer for another group, with the tags of this writer and those in `tags`."""
        named = {name.replace("_", "-"): str(value) for name, value in tags.items()}
        return GroupWriter(group, {**self.tags, **named})

    def _each(
        self, kind: MetricKind, values: Mapping[str, float | Distribution]
    ) -> Iterator[Metric]:
        for key, value in values.items():
            name, unit = _name_and_unit(key)
            yield Metric(self.group, name, value, kind, unit, self.tags)


@functools.cache  # not too large: the keys are a few hundred literals in the code
def _name_and_unit(key: str) -> tuple[str, str]:
    name = key.replace("_", "-")
    for ending, unit in _TIMES.items():
        if name.endswith(ending):
            return name, unit
    return name, next((_UNITS[word] for word in name.split("-") if word in _UNITS), "")


# -- Sums over clients with the same labels. They do not decrease when a client is deleted


K = TypeVar("K", bound=Hashable)
Value = float | Distribution


class LastingSums:
    """Keeps the last counts of deleted clients, and counts that are not in a client's metrics any
    more.

    A monitoring system takes a decrease of a counter for a reset to 0: it would count the whole
    remaining sum once more. Therefore the last count of a client is part of the sum as long as
    another client has a count with the same key.

    Owns: the counts of each client at the last `update`, and the sums of the ended counts. A sum is
    deleted when no client has a count with its key any more.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[weakref.ref[Any], Mapping[Any, Value]]] = {}
        self._sums: dict[Any, Value] = {}

    def update(self, current: Iterable[tuple[Any, Mapping[K, Value]]]) -> Mapping[K, Value]:
        """Return the sums of ended counts, which exporters add to the sums of current counts, by
        the keys of `current`.

        `current` has the counts of each client now. A count has ended if it was in `current` at an
        earlier call and is not there now.
        """
        now = {id(client): (weakref.ref(client), counts) for client, counts in current}
        for number, (client, before) in self._last.items():
            # Another client may have got the id of a deleted client.
            counts = now[number][1] if number in now and now[number][0]() is client() else {}
            for key in before.keys() - counts.keys():
                self._sums[key] = added(self._sums.get(key), before[key])
        self._last = now
        alive = {key for _, counts in now.values() for key in counts}
        self._sums = {key: value for key, value in self._sums.items() if key in alive}
        return self._sums


def added(before: Value | None, value: Value) -> Value:
    """Return the sum of two numbers, or of two distributions with the same bounds."""
    if before is None:
        return value
    if isinstance(value, Distribution) and isinstance(before, Distribution):
        pairs = zip(before.buckets, value.buckets, strict=True)
        buckets = tuple((bound, count + more) for (bound, count), (_, more) in pairs)
        largest = max(before.max, value.max)
        return Distribution(before.count + value.count, before.sum + value.sum, largest, buckets)
    assert not isinstance(value, Distribution) and not isinstance(before, Distribution)
    return before + value
