"""What a program gets to know of its clients' work: snapshots of numbers, and collectors that are
called with events."""

from aiokafka.metrics._collectors import (
    ConsumerMetricsCollector,
    NullConsumerMetricsCollector,
    NullProducerMetricsCollector,
    ProducerMetricsCollector,
)
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
