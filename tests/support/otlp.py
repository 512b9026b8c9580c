"""Read pushed metrics with OpenTelemetry's own messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokafka.metrics import Distribution, MetricsSnapshot

Key = tuple[str, tuple[tuple[str, str], ...]]

DELTA, CUMULATIVE = 1, 2


@dataclass
class Told:
    """What one push tells."""

    resource: dict[str, str] = field(default_factory=dict)
    values: dict[Key, Any] = field(default_factory=dict)
    """Numbers and (count, sum, counts of buckets), by name and labels."""
    temporality: set[int] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)
    units: dict[str, str] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> Any:
        return self.values[f"org.apache.kafka.{name}", tuple(sorted(labels.items()))]


def decode(data: bytes) -> Told:
    """Read the bytes of one push."""
    message = MetricsData()
    assert message.ParseFromString(data) == len(data)
    told = Told()
    for resource in message.resource_metrics:
        told.resource |= _pairs(resource.resource.attributes)
        for scope in resource.scope_metrics:
            assert scope.scope.name == "aiokafka"
            for metric in scope.metrics:
                told.units[metric.name] = metric.unit
                _read(told, metric)
    return told


def _read(told: Told, metric: Any) -> None:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    if kind != "gauge":
        told.temporality.add(data.aggregation_temporality)
    if kind == "sum":
        assert data.is_monotonic
    for point in data.data_points:
        if kind == "histogram":
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            value: Any = (point.count, point.sum, tuple(point.bucket_counts))
        else:
            value = getattr(point, point.WhichOneof("value"))
        key = (metric.name, tuple(sorted(_pairs(point.attributes).items())))
        assert key not in told.values
        told.values[key] = value
        told.times.add((point.start_time_unix_nano, point.time_unix_nano))


def _pairs(attributes: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def expected(snapshot: MetricsSnapshot) -> dict[Key, Any]:
    """Return what a push of this snapshot tells, counted from the beginning."""
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
