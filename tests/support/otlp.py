"""Decode pushed metrics (KIP-714) with OpenTelemetry's own message classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokafka.metrics import Distribution, MetricsSnapshot

Key = tuple[str, tuple[tuple[str, str], ...]]

DELTA, CUMULATIVE = 1, 2


@dataclass
class PushedMetrics:
    """The metrics of one push."""

    resource: dict[str, str] = field(default_factory=dict)
    values: dict[Key, Any] = field(default_factory=dict)
    """By name and labels: a number, or (count, sum, counts of the buckets) of a histogram."""
    temporality: set[int] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)
    units: dict[str, str] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> Any:
        return self.values[f"org.apache.kafka.{name}", tuple(sorted(labels.items()))]


def decode(data: bytes) -> PushedMetrics:
    """Decode the bytes of one push."""
    message = MetricsData()
    assert message.ParseFromString(data) == len(data)
    push = PushedMetrics()
    for resource in message.resource_metrics:
        push.resource |= _pairs(resource.resource.attributes)
        for scope in resource.scope_metrics:
            assert scope.scope.name == "aiokafka"
            for metric in scope.metrics:
                push.units[metric.name] = metric.unit
                _read(push, metric)
    return push


def _read(push: PushedMetrics, metric: Any) -> None:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    if kind != "gauge":
        push.temporality.add(data.aggregation_temporality)
    if kind == "sum":
        assert data.is_monotonic
    for point in data.data_points:
        if kind == "histogram":
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            value: Any = (point.count, point.sum, tuple(point.bucket_counts))
        else:
            value = getattr(point, point.WhichOneof("value"))
        key = (metric.name, tuple(sorted(_pairs(point.attributes).items())))
        assert key not in push.values
        push.values[key] = value
        push.times.add((point.start_time_unix_nano, point.time_unix_nano))


def _pairs(attributes: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def expected(snapshot: MetricsSnapshot) -> dict[Key, Any]:
    """Return the cumulative values that a push of this snapshot should have."""
    values: dict[Key, Any] = {}
    for metric in snapshot:
        tags = {name.replace("-", "_"): value for name, value in metric.tags.items()}
        del tags["client_id"]
        value: Any = metric.value
        if isinstance(value, Distribution):
            totals = [count for _, count in value.buckets]
            each = [after - before for before, after in zip([0, *totals], totals, strict=False)]
            value = (value.count, value.sum, tuple(each))
        values[metric.telemetry_name, tuple(sorted(tags.items()))] = value
    return values
