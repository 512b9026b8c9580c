"""Metrics of all clients of a process for Prometheus (extra `prometheus`)."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aiokafka.metrics._clients import MeasuredClient, as_clients, clients
from aiokafka.metrics._values import Distribution, LastingSums, Metric, MetricKind, Value, added

__all__ = ["KafkaCollector"]

_PER_SECOND = {"ms": 1000, "ns": 1_000_000_000}

# Metrics whose sum over clients has no meaning: for clients with the same client id, the maximum is
# exported.
_NOT_ADDED = re.compile(
    r".*(-max|-avg|-ago|-age|-ms)|position|paused|generation|records-lag|records-lead|.*-total-bytes"
)

Labels = tuple[tuple[str, str], ...]
_Family = tuple[str, MetricKind]
_Families = dict[_Family, dict[Labels, Value]]


class KafkaCollector:
    """Exports `metrics()` of every client in this process to Prometheus.

    Register it once, when the program starts; clients that are created later are included::

        from prometheus_client import REGISTRY
        from aiokafka.metrics.prometheus import KafkaCollector

        REGISTRY.register(KafkaCollector())

    Names begin with `kafka_`; times are in seconds. Labels are `client_id`, and `node_id`, `topic`
    or `partition`. Clients with the same client id have one series. Its value is the sum over these
    clients; for metrics whose sum has no meaning, such as the position in a partition, it is the
    maximum. The last counts of a deleted client are kept in the sum while another client has the
    series, so that counters do not decrease.
    """

    def __init__(
        self,
        only: Iterable[MeasuredClient] | None = None,
        *,
        topics: bool = True,
        partitions: bool = True,
        most_series: int = 10_000,
    ) -> None:
        """
        Args:
            only: The clients to export; None: all clients of the process.
            topics: Whether to export the metrics of single topics.
            partitions: Whether to export the metrics of single partitions.
            most_series: The maximum number of series with the same name. Further series are not
                exported; `kafka_series_dropped` has their number.

        Raises ImportError if the package prometheus-client is not installed.
        """
        _core()
        if not isinstance(most_series, int | float):
            raise TypeError(f"most_series={most_series!r}: must be a number")
        if not most_series >= 1:  # also true for NaN
            raise ValueError(f"most_series={most_series}: must be at least 1")
        self._only = None if only is None else as_clients("only", only)
        self._topics = topics
        self._partitions = partitions
        self._most = most_series
        self._ended = LastingSums()
        # Scrapes may run concurrently, in several threads.
        self._lock = threading.Lock()

    def describe(self) -> list[Any]:
        """Return no metrics, because they depend on clients that are created later."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metric families. The Prometheus client calls this in any thread."""
        with self._lock:
            families, dropped = self._read()
        for (name, kind), series in families.items():
            yield _family_of(name, kind, series)
        yield _core().GaugeMetricFamily(
            "kafka_series_dropped", "Series left out because of most_series", value=dropped
        )

    def _read(self) -> tuple[_Families, int]:
        """Return the values of all clients, by metric family and labels, and the number of values
        that `most_series` has dropped."""
        families: _Families = {}
        counted = []
        dropped = 0
        for client in clients() if self._only is None else self._only:
            counts: dict[tuple[_Family, Labels], Value] = {}
            snapshot = client.metrics()
            for metric in snapshot if self._partitions else snapshot.without_partitions():
                if not self._is_wanted(metric):
                    continue
                family = _family(metric), metric.kind
                series = families.setdefault(family, {})
                labels = _labels(metric)
                if labels not in series and len(series) >= self._most:
                    dropped += 1
                    continue
                value = _in_seconds(metric)
                series[labels] = _merged(metric.name, series.get(labels), value)
                if metric.kind is not MetricKind.GAUGE:
                    counts[family, labels] = value
            counted.append((client, counts))
        for (family, labels), value in self._ended.update(counted).items():
            families[family][labels] = added(families[family][labels], value)
        return families, dropped

    def _is_wanted(self, metric: Metric) -> bool:
        return self._topics or "partition" in metric.tags or "topic" not in metric.tags


def _core() -> Any:
    """Return the module `prometheus_client.core`, which has the classes of metric families.

    Raises ImportError if the package is not installed.
    """
    try:
        return importlib.import_module("prometheus_client.core")
    except ImportError as error:
        raise ImportError(
            'KafkaCollector needs prometheus-client: pip install "aiokafka[prometheus]"'
        ) from error


def _family(metric: Metric) -> str:
    """Return the Prometheus name of a metric. Metrics of clients, topics and partitions have
    different names, so that a sum over the series of a name does not count a value twice."""
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


def _labels(metric: Metric) -> Labels:
    return tuple((name.replace("-", "_"), value) for name, value in sorted(metric.tags.items()))


def _merged(name: str, before: Value | None, value: Value) -> Value:
    """Return the combined value of clients with the same labels. `before` is the combined value of
    the clients so far, None without any; `value` is that of one more client."""
    if isinstance(before, float | int) and isinstance(value, float | int):
        return max(before, value) if _NOT_ADDED.fullmatch(name) else before + value
    return added(before, value)


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
