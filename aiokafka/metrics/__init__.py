"""Metrics of clients: snapshots of all metrics, and collectors that are called for events."""

from typing import TYPE_CHECKING, Any

from aiokafka.metrics._collectors import (
    ConsumerMetricsCollector,
    NullConsumerMetricsCollector,
    NullProducerMetricsCollector,
    ProducerMetricsCollector,
)

if TYPE_CHECKING:
    from aiokafka.metrics._values import Distribution, Metric, MetricKind, MetricsSnapshot

__all__ = [
    "ConsumerMetricsCollector",
    "Distribution",
    "Metric",
    "MetricKind",
    "MetricsSnapshot",
    "NullConsumerMetricsCollector",
    "NullProducerMetricsCollector",
    "ProducerMetricsCollector",
]


def __getattr__(name: str) -> Any:
    # Imported on demand: dataclasses take time to create.
    if name not in __all__:
        raise AttributeError(f"module 'aiokafka.metrics' has no attribute {name!r}")
    from aiokafka.metrics import _values

    value = globals()[name] = getattr(_values, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
