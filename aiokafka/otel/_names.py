"""Names from OpenTelemetry's messaging conventions, attributes of spans, and trace contexts."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

__all__ = [
    "BATCH_COUNT",
    "CLIENT_ID",
    "DESTINATION",
    "DURATIONS",
    "ERROR_TYPE",
    "GROUP",
    "KEY",
    "OFFSET",
    "OPERATION",
    "OPERATION_TYPE",
    "PARTITION",
    "SCHEMA",
    "SYSTEM",
    "TOMBSTONE",
    "Headers",
    "Identity",
    "Propagation",
    "context",
    "durations",
    "fail",
    "get_current",
    "has_own_spans",
    "is_noop",
    "is_proxy",
    "is_suppressed",
    "kind_of",
    "metrics",
    "operation",
    "propagate",
    "text_of",
    "trace",
]

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
CLIENT_ID = "messaging.client.id"
BATCH_COUNT = "messaging.batch.message_count"
KEY = "messaging.kafka.message.key"
TOMBSTONE = "messaging.kafka.message.tombstone"
OFFSET = "messaging.kafka.offset"
ERROR_TYPE = "error.type"
_ADDRESS = "server.address"
_PORT = "server.port"

DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds of the buckets of duration histograms, in seconds, as the conventions
recommend."""

_LONGEST_KEY = 256
_TYPES = {"send": "send", "poll": "receive", "fetch": "receive", "process": "process"}

Attributes = dict[str, Any]


class Identity:
    """The attributes that all spans of a client have."""

    def __init__(self) -> None:
        self.attributes: Attributes = {SYSTEM: "kafka"}

    def learn(self, options: Mapping[str, Any]) -> None:
        """Set the attributes of the client's spans: client id, group id, and the bootstrap server
        if there is only one. `options` is the argument of an interceptor's `configure`."""
        self.attributes[CLIENT_ID] = options["client_id"]
        if options.get("group_id") is not None:
            self.attributes[GROUP] = options["group_id"]
        servers: Sequence[tuple[str, int]] = options["bootstrap_servers"]
        # The conventions have attributes for one address only. With several servers, set none.
        if len(servers) == 1:
            self.attributes[_ADDRESS], self.attributes[_PORT] = servers[0]


def operation(name: str) -> Attributes:
    """Return the attributes of an operation: "send", "poll", "fetch" or "process". Other names,
    such as "commit", have the type "settle"."""
    return {OPERATION: name, OPERATION_TYPE: _TYPES.get(name, "settle")}


def kind_of(error: BaseException) -> str:
    """Return the attribute `error.type` of an exception: the name of its class."""
    return type(error).__qualname__


def fail(span: Any, error: BaseException) -> None:
    """Set the status of `span` to error, and add the exception to it."""
    span.set_attribute(ERROR_TYPE, kind_of(error))
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error) or repr(error)))
    span.record_exception(error)


def text_of(key: Any) -> str | None:
    """Return a key as text of at most 256 characters, if it is a str, an int or UTF-8 bytes;
    otherwise None."""
    if isinstance(key, (bytes, bytearray, memoryview)):
        try:
            # The limit may cut the last character in half; the incremental decoder ignores it.
            key = codecs.getincrementaldecoder("utf-8")().decode(bytes(key[:_LONGEST_KEY]))
        except UnicodeDecodeError:
            return None
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    return key[:_LONGEST_KEY] if isinstance(key, str) else None


def durations(meter: metrics.Meter, name: str, description: str) -> Any:
    """Create a histogram of durations in seconds."""
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=DURATIONS
    )


# -- Import OpenTelemetry's API; the error text says how to install it


try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ImportError(
        'aiokafka.otel needs opentelemetry-api: pip install "aiokafka[otel]"'
    ) from error


_NOOPS = (trace.NoOpTracer, metrics.NoOpHistogram)
_INSTRUMENTATION = "opentelemetry.instrumentation.aiokafka"
_SUPPRESS: Any = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


def is_suppressed() -> bool:
    """Return whether instrumentation is suppressed in this context, as in an exporter that itself
    uses Kafka."""
    return bool(context.get_value(_SUPPRESS))


def is_noop(instrument: Any) -> bool:
    """Return whether a tracer or histogram records nothing: there is no SDK, or it is disabled.

    Until there is a provider, the API returns proxies, whose private attributes refer to the real
    object. In a version of the API with other attributes, this returns False.
    """
    # `isinstance` would be slow, because these classes are abstract base classes.
    real = getattr(instrument, "_tracer", instrument)
    return type(real) in _NOOPS or getattr(real, "_real_instrument", real) is None


def is_proxy(tracer: Any) -> bool:
    """Return whether `tracer` records nothing as long as `trace._TRACER_PROVIDER` is None: it is a
    proxy of the API. False if this version of the API has other attributes."""
    return (
        type(tracer) is trace.ProxyTracer
        and hasattr(trace, "_TRACER_PROVIDER")
        and getattr(tracer, "_real_tracer", tracer) is None
    )


def _find_get_current() -> Any:
    """Return the fastest function for the current context. This is the method `get` of the API's
    context variable, if this version of the API has such a variable with a default value; otherwise
    `context.get_current`."""
    runtime = getattr(context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    is_usable = isinstance(variable, ContextVar) and variable.get(None) is not None
    return variable.get if is_usable else context.get_current  # type: ignore[union-attr]


get_current = _find_get_current()
"""Returns the same as `opentelemetry.context.get_current`, in a third of the time, because a
producer calls it for each record."""


def has_own_spans() -> bool:
    """Return whether OpenTelemetry's own instrumentation of aiokafka is active. It wraps the
    methods of the clients, and creates spans itself."""
    module = sys.modules.get(_INSTRUMENTATION)
    if module is None:
        return False
    # The class has only one instance, which its constructor returns.
    return bool(module.AIOKafkaInstrumentor().is_instrumented_by_opentelemetry)


# -- Trace context in record headers


Headers = Sequence[tuple[str, bytes | None]]

_LONGEST = 8192
"""Limit of a header value in bytes, as for baggage. Longer headers are ignored."""

_MOST_LINKS = 128
"""Limit of links per span, the default of OpenTelemetry. Further records are not linked."""


class Propagation:
    """Reads and writes trace contexts in headers, with `propagator`. The default is the global
    propagator of the process."""

    def __init__(self, propagator: Any = None) -> None:
        self._propagator = propagator

    @property
    def _current(self) -> Any:
        # The global propagator may be set after the clients were created.
        return self._propagator or propagate.get_global_textmap()

    def extract(self, headers: Headers, base: Any = None) -> Any:
        """Return the trace context of the headers, added to `base` (default: an empty context).

        If several headers have the same name, the last one is used. Long values are ignored.
        """
        base = context.Context() if base is None else base
        carrier = {
            name: value.decode(errors="replace")
            for name, value in headers
            if value is not None and len(value) <= _LONGEST
        }
        return self._current.extract(carrier, context=base) if carrier else base

    def creation_of(self, headers: Headers) -> Any:
        """Return the span context of the producer in a record's headers; None if there is none."""
        if not headers:
            return None
        found = trace.get_current_span(self.extract(headers)).get_span_context()
        return found if found.is_valid else None

    def inject(self, headers: Headers, ambient: Any) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers with the trace context of `ambient`, which replaces a trace context
        that they already have."""
        carrier: dict[str, str] = {}
        self._current.inject(carrier, context=ambient)
        kept = (pair for pair in headers if pair[0] not in carrier)
        return (*kept, *((name, value.encode()) for name, value in carrier.items()))

    def links(self, records: Iterable[Any]) -> list[trace.Link]:
        """Return links to the producers' spans of these records, without repeats, at most 128."""
        found: dict[tuple[int, int], trace.Link] = {}
        for record in records:
            creation = self.creation_of(record.headers)
            if creation is not None:
                found.setdefault((creation.trace_id, creation.span_id), trace.Link(creation))
                if len(found) >= _MOST_LINKS:
                    break
        return list(found.values())
