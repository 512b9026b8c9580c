"""The metrics of all clients of a process, for Prometheus (`pip install aiokafka[prometheus]`)."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aiokafka.metrics._clients import MeasuredClient, clients
from aiokafka.metrics._values import Distribution, Metric, MetricKind

__all__ = ["KafkaCollector"]

_PER_SECOND = {"ms": 1000, "ns": 1_000_000_000}

# Of several clients with the same client id these are not added up: the largest counts.
_NOT_ADDED = re.compile(
    r".*(-max|-avg|-ago|-age|-ms)|position|paused|generation|records-lag|records-lead|.*-total-bytes"
)

Labels = tuple[tuple[str, str], ...]
Value = float | Distribution


class KafkaCollector:
    """Gives Prometheus what `metrics()` of every client in this process returns.

    Register it once, when the program starts; clients made later are included::

        from prometheus_client import REGISTRY
        from aiokafka.metrics.prometheus import KafkaCollector

        REGISTRY.register(KafkaCollector())

    Names begin with `kafka_`; times are in seconds. Labels are `client_id`, and `node_id`, `topic`
    or `partition`. Clients with the same client id share a series: their numbers are added, and of
    what cannot be added, such as the position in a partition, the largest counts.
    """

    def __init__(
        self,
        only: Iterable[MeasuredClient] | None = None,
        *,
        topics: bool = True,
        partitions: bool = True,
        most_series: int = 10_000,
    ) -> None:
        """Collect from `only` these clients; None: from all of the process.

        Without `topics`, or without `partitions`, there are no series for each of them. Of one name
        there are at most `most_series`; `kafka_series_dropped` tells how many were left out.
        Raises ImportError without the package prometheus-client.
        """
        _core()
        if most_series < 1:
            raise ValueError(f"most_series={most_series}: must be at least 1")
        self._only = None if only is None else tuple(only)
        self._topics = topics
        self._partitions = partitions
        self._most = most_series

    def describe(self) -> list[Any]:
        """Return nothing: what there is depends on the clients, which are made later."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics. Prometheus' client calls it, from any thread."""
        families: dict[tuple[str, MetricKind], dict[Labels, Value]] = {}
        dropped = 0
        for client in clients() if self._only is None else self._only:
            for metric in client.metrics():
                if not self._is_wanted(metric):
                    continue
                series = families.setdefault((_family(metric), metric.kind), {})
                labels = tuple(
                    (name.replace("-", "_"), value) for name, value in sorted(metric.tags.items())
                )
                if labels not in series and len(series) >= self._most:
                    dropped += 1
                    continue
                value = _in_seconds(metric)
                series[labels] = _merged(metric.name, series.get(labels), value)
        for (name, kind), series in families.items():
            yield _family_of(name, kind, series)
        yield _core().GaugeMetricFamily(
            "kafka_series_dropped", "Series left out because of most_series", value=dropped
        )

    def _is_wanted(self, metric: Metric) -> bool:
        if "partition" in metric.tags:
            return self._partitions
        return self._topics or "topic" not in metric.tags


def _core() -> Any:
    """Return the part of Prometheus' client that makes families of metrics."""
    try:
        return importlib.import_module("prometheus_client.core")
    except ImportError as error:
        raise ImportError(
            "KafkaCollector needs prometheus-client: pip install aiokafka[prometheus]"
        ) from error


def _family(metric: Metric) -> str:
    """Return the name of a metric, other for a topic or partition than for the client: sums over
    one of them count nothing twice."""
    group = metric.group.removesuffix("-metrics")
    for tag in ("partition", "topic"):
        if tag in metric.tags:
            group = f"{group.removesuffix('-topic')}-{tag}"
            break
    if "node-id" in metric.tags and not group.endswith("-node"):
        group += "-node"
    name = metric.name
    if metric.unit in _PER_SECOND:
        for ending in ("-total", "-ms", "-ns"):
            name = name.removesuffix(ending)
        name += "-seconds"
    return f"kafka-{group}-{name.removesuffix('-total')}".replace("-", "_")


def _in_seconds(metric: Metric) -> Value:
    divisor = _PER_SECOND.get(metric.unit)
    value = metric.value
    if divisor is None:
        return value
    if isinstance(value, Distribution):
        buckets = tuple((bound / divisor, count) for bound, count in value.buckets)
        return Distribution(value.count, value.sum / divisor, value.max / divisor, buckets)
    return value / divisor


def _merged(name: str, before: Value | None, value: Value) -> Value:
    """Return one value for two clients with the same labels."""
    if before is None:
        return value
    if isinstance(value, Distribution) and isinstance(before, Distribution):
        pairs = zip(before.buckets, value.buckets, strict=True)
        buckets = tuple((bound, count + more) for (bound, count), (_, more) in pairs)
        largest = max(before.max, value.max)
        return Distribution(before.count + value.count, before.sum + value.sum, largest, buckets)
    assert not isinstance(value, Distribution) and not isinstance(before, Distribution)
    return max(before, value) if _NOT_ADDED.fullmatch(name) else before + value


def _family_of(name: str, kind: MetricKind, series: dict[Labels, Value]) -> Any:
    names: Sequence[str] = [label for label, _ in next(iter(series))]
    text = f"{name.replace('_', ' ').capitalize()}: see the manual of aiokafka"
    if kind is MetricKind.HISTOGRAM:
        histogram = _core().HistogramMetricFamily(name, text, labels=names)
        for labels, value in series.items():
            if isinstance(value, Distribution):
                buckets = [
                    ("+Inf" if bound == float("inf") else repr(float(bound)), count)
                    for bound, count in value.buckets
                ]
                histogram.add_metric([label for _, label in labels], buckets, value.sum)
        return histogram
    is_counter = kind is MetricKind.COUNTER
    family = _core().CounterMetricFamily if is_counter else _core().GaugeMetricFamily
    made = family(name, text, labels=names)
    for labels, value in series.items():
        made.add_metric([label for _, label in labels], value)
    return made
