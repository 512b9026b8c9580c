"""Numbers that clients count, and a snapshot of them as plain data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aiokafka.metrics._histogram import Histogram

__all__ = ["Distribution", "Histogram", "Metric", "MetricKind", "MetricsSnapshot"]


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


class MetricsSnapshot(Sequence[Metric]):
    """All metrics of a client at one moment; it does not change any more."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def __repr__(self) -> str:
        return f"<MetricsSnapshot of {len(self._metrics)} metrics>"

    def __len__(self) -> int:
        return len(self._metrics)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __getitem__(self, index: Any) -> Any:
        return self._metrics[index]

    def find(self, name: str, group: str | None = None, **tags: str | int) -> list[Metric]:
        """Return the metrics of this name, group and tags; of any, where none is given.

        A tag is written with underscores: `find("records-lag", topic="orders", partition=0)`. A
        metric without a tag that is asked for is not among them.
        """
        wanted = {tag.replace("_", "-"): str(value) for tag, value in tags.items()}
        return [
            metric
            for metric in self._metrics
            if metric.name == name
            and group in (None, metric.group)
            and wanted.items() <= metric.tags.items()
        ]

    def value(self, name: str, group: str | None = None, **tags: str | int) -> Any:
        """Return the value of the one metric that `find` finds.

        Of several it takes the one with the fewest tags: without `topic=`, that of the client.
        Raises KeyError if there is none.
        """
        found = sorted(self.find(name, group, **tags), key=_tag_count)
        if not found:
            raise KeyError(name)
        return found[0].value

    def as_list(self) -> list[dict[str, Any]]:
        """Return all of it as data for JSON."""
        return [metric.as_dict() for metric in self._metrics]


def _tag_count(metric: Metric) -> int:
    return len(metric.tags)
