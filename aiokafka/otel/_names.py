"""Names of OpenTelemetry's conventions for messaging, and the attributes made of them."""

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
"""Bounds of histograms in seconds, as the conventions advise."""

_LONGEST_KEY = 256
_TYPES = {"send": "send", "poll": "receive", "fetch": "receive", "process": "process"}

Attributes = dict[str, Any]


class Identity:
    """What every span of a client has in common, as far as the client has told it."""

    def __init__(self) -> None:
        self.attributes: Attributes = {SYSTEM: "kafka"}

    def learn(self, options: Mapping[str, Any]) -> None:
        """Take what `configure` of an interceptor is called with."""
        self.attributes[CLIENT_ID] = options["client_id"]
        if options.get("group_id") is not None:
            self.attributes[GROUP] = options["group_id"]
        servers: Sequence[tuple[str, int]] = options["bootstrap_servers"]
        # One of several would be a guess.
        if len(servers) == 1:
            self.attributes[_ADDRESS], self.attributes[_PORT] = servers[0]


def operation(name: str) -> Attributes:
    """Return the attributes that say what is done: `"send"`, `"poll"`, `"fetch"`, `"process"`, or a
    commit of some kind."""
    return {OPERATION: name, OPERATION_TYPE: _TYPES.get(name, "settle")}


def kind_of(error: BaseException) -> str:
    """Return the `error.type` of an exception."""
    return type(error).__qualname__


def fail(span: Any, error: BaseException) -> None:
    """Let `span` tell of `error`."""
    span.set_attribute(ERROR_TYPE, kind_of(error))
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error) or repr(error)))
    span.record_exception(error)


def text_of(key: Any) -> str | None:
    """Return the text of a record's key; None for bytes that are no text, and for anything else."""
    if isinstance(key, (bytes, bytearray, memoryview)):
        try:
            # The end may be the first half of a letter.
            key = codecs.getincrementaldecoder("utf-8")().decode(bytes(key[:_LONGEST_KEY]))
        except UnicodeDecodeError:
            return None
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    return key[:_LONGEST_KEY] if isinstance(key, str) else None


def durations(meter: metrics.Meter, name: str, description: str) -> Any:
    """Return a histogram of seconds."""
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=DURATIONS
    )


# -- OpenTelemetry's API, or what to do to get it


try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ImportError(
        "aiokafka.otel needs opentelemetry-api: pip install aiokafka[otel]"
    ) from error


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


# -- The context of a trace in the headers of a record


Headers = Sequence[tuple[str, bytes | None]]

_LONGEST = 8192
"""Bytes of a header: what baggage may have at most. Longer ones are no context."""

_MOST_LINKS = 128
"""Links of a span: what OpenTelemetry keeps of them unless it is told otherwise."""


class Propagation:
    """Reads and writes contexts with one propagator, or with that of the process."""

    def __init__(self, propagator: Any = None) -> None:
        self._propagator = propagator

    @property
    def _current(self) -> Any:
        # That of the process may be set later than clients are made.
        return self._propagator or propagate.get_global_textmap()

    def extract(self, headers: Headers, base: Any = None) -> Any:
        """Return `base` with what the headers say; without, an empty context with that.

        Of several headers with one name the last counts, which was added last.
        """
        base = context.Context() if base is None else base
        carrier = {
            name: value.decode(errors="replace")
            for name, value in headers
            if value is not None and len(value) <= _LONGEST
        }
        return self._current.extract(carrier, context=base) if carrier else base

    def creation_of(self, headers: Headers) -> Any:
        """Return the context of the span that has made a record; None if there is none."""
        if not headers:
            return None
        found = trace.get_current_span(self.extract(headers)).get_span_context()
        return found if found.is_valid else None

    def inject(self, headers: Headers, ambient: Any) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers with `ambient` in them; what they had under these names goes."""
        carrier: dict[str, str] = {}
        self._current.inject(carrier, context=ambient)
        kept = (pair for pair in headers if pair[0] not in carrier)
        return (*kept, *((name, value.encode()) for name, value in carrier.items()))

    def links(self, records: Iterable[Any]) -> list[trace.Link]:
        """Return links to the spans that have made these records, one for each span."""
        found: dict[tuple[int, int], trace.Link] = {}
        for record in records:
            creation = self.creation_of(record.headers)
            if creation is not None:
                found.setdefault((creation.trace_id, creation.span_id), trace.Link(creation))
                if len(found) >= _MOST_LINKS:
                    break
        return list(found.values())
