"""Names of OpenTelemetry's messaging conventions, and attributes of spans."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Mapping, Sequence
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
    "has_own_spans",
    "is_noop",
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
"""Bounds of duration histograms in seconds, as recommended by the conventions."""

_LONGEST_KEY = 256
_TYPES = {"send": "send", "poll": "receive", "fetch": "receive", "process": "process"}

Attributes = dict[str, Any]


class Identity:
    """The common attributes of all spans of a client."""

    def __init__(self) -> None:
        self.attributes: Attributes = {SYSTEM: "kafka"}

    def learn(self, options: Mapping[str, Any]) -> None:
        """Read the arguments of an interceptor's `configure`."""
        self.attributes[CLIENT_ID] = options["client_id"]
        if options.get("group_id") is not None:
            self.attributes[GROUP] = options["group_id"]
        servers: Sequence[tuple[str, int]] = options["bootstrap_servers"]
        # The conventions have attributes for one address only, so several servers are omitted.
        if len(servers) == 1:
            self.attributes[_ADDRESS], self.attributes[_PORT] = servers[0]


def operation(name: str) -> Attributes:
    """Return the attributes of an operation: `"send"`, `"poll"`, `"fetch"`, `"process"`, or a
    commit."""
    return {OPERATION: name, OPERATION_TYPE: _TYPES.get(name, "settle")}


def kind_of(error: BaseException) -> str:
    """Return the `error.type` of an exception."""
    return type(error).__qualname__


def fail(span: Any, error: BaseException) -> None:
    """Set the error status of `span`, and record the exception in it."""
    span.set_attribute(ERROR_TYPE, kind_of(error))
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error) or repr(error)))
    span.record_exception(error)


def text_of(key: Any) -> str | None:
    """Return a key that is a str, an int or UTF-8 bytes as text of at most 256 characters; None for
    other keys."""
    if isinstance(key, (bytes, bytearray, memoryview)):
        try:
            # The last character may be cut in half: the incremental decoder ignores it.
            key = codecs.getincrementaldecoder("utf-8")().decode(bytes(key[:_LONGEST_KEY]))
        except UnicodeDecodeError:
            return None
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    return key[:_LONGEST_KEY] if isinstance(key, str) else None


def durations(meter: metrics.Meter, name: str, description: str) -> Any:
    """Return a new histogram of durations in seconds."""
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=DURATIONS
    )


# -- Import OpenTelemetry's API, or explain how to install it


try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ImportError(
        "aiokafka.otel needs opentelemetry-api: pip install aiokafka[otel]"
    ) from error


_NOOPS = (trace.NoOpTracer, metrics.NoOpHistogram)
_INSTRUMENTATION = "opentelemetry.instrumentation.aiokafka"
_SUPPRESS: Any = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


def is_suppressed() -> bool:
    """Return whether instrumentation is suppressed, such as in an exporter that uses Kafka."""
    return bool(context.get_value(_SUPPRESS))


def is_noop(instrument: Any) -> bool:
    """Return whether a tracer or histogram records nothing, because there is no SDK, or the SDK is
    disabled.

    Until there is a provider, the API returns proxies, whose private attributes refer to the object
    that records. If another version of the API has other attributes, the result is False.
    """
    # `isinstance` is slow, because the classes are abstract base classes.
    real = getattr(instrument, "_tracer", instrument)
    return type(real) in _NOOPS or getattr(real, "_real_instrument", real) is None


def has_own_spans() -> bool:
    """Return whether OpenTelemetry's own instrumentation of aiokafka is active, which wraps the
    methods of the clients."""
    module = sys.modules.get(_INSTRUMENTATION)
    if module is None:
        return False
    # The constructor returns a singleton.
    return bool(module.AIOKafkaInstrumentor().is_instrumented_by_opentelemetry)


# -- Trace context in record headers


Headers = Sequence[tuple[str, bytes | None]]

_LONGEST = 8192
"""Limit of a header value in bytes, as for baggage. Longer headers are ignored."""

_MOST_LINKS = 128
"""Limit of links per span, the default of OpenTelemetry."""


class Propagation:
    """Reads and writes trace contexts with a propagator, by default the propagator of the
    process."""

    def __init__(self, propagator: Any = None) -> None:
        self._propagator = propagator

    @property
    def _current(self) -> Any:
        # The propagator of the process may be set after the clients are created.
        return self._propagator or propagate.get_global_textmap()

    def extract(self, headers: Headers, base: Any = None) -> Any:
        """Return `base`, or an empty context, with the trace context of the headers.

        Of several headers with the same name, the last header counts.
        """
        base = context.Context() if base is None else base
        carrier = {
            name: value.decode(errors="replace")
            for name, value in headers
            if value is not None and len(value) <= _LONGEST
        }
        return self._current.extract(carrier, context=base) if carrier else base

    def creation_of(self, headers: Headers) -> Any:
        """Return the span context in the headers of a record; None without a span context."""
        if not headers:
            return None
        found = trace.get_current_span(self.extract(headers)).get_span_context()
        return found if found.is_valid else None

    def inject(self, headers: Headers, ambient: Any) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers with the trace context of `ambient` in place of their own."""
        carrier: dict[str, str] = {}
        self._current.inject(carrier, context=ambient)
        kept = (pair for pair in headers if pair[0] not in carrier)
        return (*kept, *((name, value.encode()) for name, value in carrier.items()))

    def links(self, records: Iterable[Any]) -> list[trace.Link]:
        """Return links to the distinct producer spans of these records, at most 128."""
        found: dict[tuple[int, int], trace.Link] = {}
        for record in records:
            creation = self.creation_of(record.headers)
            if creation is not None:
                found.setdefault((creation.trace_id, creation.span_id), trace.Link(creation))
                if len(found) >= _MOST_LINKS:
                    break
        return list(found.values())
