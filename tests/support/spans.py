"""Spans and metrics of OpenTelemetry, kept in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Seen:
    """Records the spans and metrics that a program creates."""

    def __init__(self, sampler: Any = None) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracing = TracerProvider(sampler=sampler)
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.metering = MeterProvider([self._reader])
        self.tracer = self.tracing.get_tracer("program")

    @property
    def providers(self) -> dict[str, Any]:
        """The arguments with which the classes of this package use these providers."""
        return {"tracer_provider": self.tracing, "meter_provider": self.metering}

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Return the ended spans, in the order of their ends."""
        found = self._spans.get_finished_spans()
        return [span for span in found if name is None or span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def close(self) -> None:
        self.tracing.shutdown()
        self.metering.shutdown()
