"""Names of OpenTelemetry's conventions for messaging, and the attributes made of them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.otel._api import metrics, trace

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
    "Identity",
    "durations",
    "fail",
    "kind_of",
    "operation",
    "text_of",
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
