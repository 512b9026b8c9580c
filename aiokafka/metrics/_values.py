"""Numbers that clients count, and a snapshot of them as plain data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Protocol

from aiokafka.metrics._histogram import Histogram
from aiokafka.metrics._names import is_total, not_found

__all__ = ["Distribution", "Histogram", "Metric", "MetricKind", "MetricRows", "MetricsSnapshot"]


class MetricKind(str, enum.Enum):
    """How a number behaves. Each is a string, such as `"counter"`."""

    COUNTER = "counter"
    """It only grows, from the making of the client on."""

    GAUGE = "gauge"
    """It is what it is at the moment of the snapshot."""

    HISTOGRAM = "histogram"
    """It is a `Distribution`."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values that were observed, by size."""

    count: int
    """How many there were."""

    sum: float
    """What they add up to."""

    max: float
    """The largest; 0 without any."""

    buckets: tuple[tuple[float, int], ...]
    """Pairs of a bound and how many values were at most that; the last bound is infinite."""

    @property
    def mean(self) -> float:
        """The mean of all values; 0 without any."""
        return self.sum / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a client at one moment."""

    group: str
    """The group of Java's client that the metric belongs to, such as `"producer-metrics"`."""

    name: str
    """The name that Java's client gives it, such as `"record-send-total"`."""

    value: float | Distribution
    """The number; of a histogram its distribution."""

    kind: MetricKind
    unit: str
    """What is counted: `"records"`, `"bytes"`, `"ms"`, or `""` for things that the name names."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """What it is about: `client-id`, and `topic`, `partition` or `node-id` where it is one of
    several."""

    @property
    def telemetry_name(self) -> str:
        """The name by the rules of KIP-714: `"org.apache.kafka.producer.record.send.total"`."""
        group = self.group.removesuffix("-metrics")
        return f"org.apache.kafka.{group}.{self.name}".replace("-", ".")

    def as_dict(self) -> dict[str, Any]:
        """Return it as data for JSON, in which the last bound of a histogram is None."""
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
    """Metrics of many partitions, of which the numbers are known; the rest is made when it is
    asked for."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Metric]: ...

    def named(self, name: str) -> Iterator[Metric]:
        """Return those of one name."""


class MetricsSnapshot(Sequence[Metric]):
    """All metrics of a client at one moment; it does not change any more.

    The numbers are read when the snapshot is made. The `Metric` objects of single partitions, of
    which there may be very many, are made when they are asked for.
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
        """Return the snapshot without the metrics of single partitions."""
        return MetricsSnapshot(self._metrics)

    def find(self, name: str, group: str | None = None, **tags: str | int) -> list[Metric]:
        """Return the metrics of this name, group and tags; of any, where none is given.

        A tag is written with underscores: `find("records-lag", topic="orders", partition=0)`. A
        metric without a tag that is asked for is not among them.
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
        """Return the value of the one metric that `find` finds.

        Of several it takes the one with the fewest tags: without `topic=`, that of the client. A
        total of which nothing has been counted is 0, as that of a topic to which no record was
        sent. Raises KeyError for any other that there is not, naming what is called nearly so.
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
        """Return all of it as data for JSON."""
        return [metric.as_dict() for metric in self]


def _tag_count(metric: Metric) -> int:
    return len(metric.tags)
