"""OpenTelemetry's API, or what to do to get it."""

from __future__ import annotations

import sys
from typing import Any

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ImportError(
        "aiokafka.otel needs opentelemetry-api: pip install aiokafka[otel]"
    ) from error

__all__ = ["context", "has_own_spans", "is_suppressed", "metrics", "propagate", "trace"]

_INSTRUMENTATION = "opentelemetry.instrumentation.aiokafka"
_SUPPRESS: Any = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


def is_suppressed() -> bool:
    """Return whether the program wants no spans here, such as an exporter that uses Kafka."""
    return bool(context.get_value(_SUPPRESS))


def has_own_spans() -> bool:
    """Return whether OpenTelemetry's instrumentation of aiokafka makes spans of sends and
    receives: it wraps the methods of the clients."""
    module = sys.modules.get(_INSTRUMENTATION)
    if module is None:
        return False
    # There is one object of this class.
    return bool(module.AIOKafkaInstrumentor().is_instrumented_by_opentelemetry)
