"""Metrics that clients push to a fake cluster (KIP-714)."""

from __future__ import annotations

import re
import uuid
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import _clock, errors
from aiokafka.errors import CorruptRecordError
from aiokafka.protocol.messages.telemetry import PushTelemetryRequest
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.record import compression
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import METRICS_DEFAULTS
from aiokafka.testing.state import ClusterState

__all__ = ["ACCEPTED", "TelemetryPush", "TelemetryReceiver", "has_receiver"]

ACCEPTED = (compression.ZSTD, compression.LZ4, compression.GZIP, compression.SNAPPY)
"""The compression types that brokers accept, in the order of preference."""
_METRICS = 16  # resource type CLIENT_METRICS
_JMX = "org.apache.kafka.common.metrics.JmxReporter"
_KEPT = 1000
# After these errors of a push, the client may fetch its subscription before the interval is over.
_PAST_THROTTLING = (errors.UnknownSubscriptionId.errno, errors.UnsupportedCompressionType.errno)


def has_receiver(state: ClusterState) -> bool:
    """Return whether the brokers have a plug-in for client metrics: any class in
    ``metric.reporters`` except Kafka's own. Without a plug-in they do not offer the telemetry APIs.
    """
    named = state.config["metric.reporters"].split(",")
    return any(name.strip() not in ("", _JMX) for name in named)


@dataclass(frozen=True, slots=True)
class TelemetryPush:
    """Metrics that a client has pushed."""

    client_instance_id: uuid.UUID
    client_id: str | None
    is_terminating: bool
    compression_type: int
    metrics: bytes
    """The decompressed metrics."""


class _Instance:
    """The state of one client instance: the times of its last requests, and its last error."""

    def __init__(self) -> None:
        self.asked_at = -1e9
        self.pushed_at = -1e9
        self.error = 0
        self.is_ended = False


class TelemetryReceiver:
    """Receives client metrics. Owns the last 1000 pushes, and the state of each client instance."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._instances: dict[bytes, _Instance] = {}
        self.pushes: deque[TelemetryPush] = deque(maxlen=_KEPT)

    def subscription(
        self, context: RequestContext, instance_id: bytes
    ) -> tuple[int, int, tuple[str, ...]]:
        """Return id, push interval in milliseconds, and requested metrics of a client's
        subscription.
        """
        names: dict[str, None] = {}
        intervals = []
        for (kind, _), config in sorted(self._state.other_configs.items()):
            settings = {**METRICS_DEFAULTS, **config}
            if kind == _METRICS and _matches(settings["match"], context, instance_id):
                names |= dict.fromkeys(filter(None, settings["metrics"].split(",")))
                intervals.append(int(settings["interval.ms"]))
        interval = min(intervals, default=int(METRICS_DEFAULTS["interval.ms"]))
        wanted = ("*",) if "*" in names else tuple(sorted(names))
        text = f"{interval} {wanted}"
        return zlib.crc32(text.encode()) & 0x7FFFFFFF, interval, wanted

    def admit(self, context: RequestContext, instance_id: bytes) -> tuple[int, bytes]:
        """Handle a GetTelemetrySubscriptions request; return (error code, client instance id). A
        client without an id gets a new id.

        A request before the push interval is over gets THROTTLING_QUOTA_EXCEEDED, unless the last
        push failed with one of the errors `_PAST_THROTTLING`.
        """
        if instance_id == ZERO_UUID:
            instance_id = _clock.random_uuid().bytes
        instance = self._instances.setdefault(instance_id, _Instance())
        _, interval, _ = self.subscription(context, instance_id)
        latest = max(instance.asked_at, instance.pushed_at)
        if _is_early(context, latest, interval) and instance.error not in _PAST_THROTTLING:
            return errors.ThrottlingQuotaExceeded.errno, instance_id
        instance.asked_at = context.received_at
        instance.error = 0
        return 0, instance_id

    def receive(self, context: RequestContext, request: PushTelemetryRequest) -> int:
        """Store the metrics of a PushTelemetry request and return 0; return the error code of an
        invalid or too early request."""
        if request.client_instance_id == ZERO_UUID:
            return errors.InvalidRequestError.errno
        instance = self._instances.setdefault(request.client_instance_id, _Instance())
        instance.error = self._check(context, request, instance)
        return instance.error

    def _check(
        self, context: RequestContext, request: PushTelemetryRequest, instance: _Instance
    ) -> int:
        if instance.is_ended:
            return errors.InvalidRequestError.errno
        known, interval, _ = self.subscription(context, request.client_instance_id)
        is_first = instance.pushed_at < instance.asked_at
        is_free = is_first or request.terminating
        if not is_free and _is_early(context, instance.pushed_at, interval):
            return errors.ThrottlingQuotaExceeded.errno
        if request.subscription_id != known:
            return errors.UnknownSubscriptionId.errno
        if request.compression_type not in (compression.NONE, *ACCEPTED):
            return errors.UnsupportedCompressionType.errno
        if len(request.metrics) > int(self._state.config["telemetry.max.bytes"]):
            return errors.TelemetryTooLarge.errno
        instance.pushed_at = context.received_at
        instance.is_ended = request.terminating
        return self._keep(context, request)

    def _keep(self, context: RequestContext, request: PushTelemetryRequest) -> int:
        data = bytes(request.metrics)
        if data and request.compression_type:
            try:
                data = compression.decompress(request.compression_type, data)
            except CorruptRecordError:
                return errors.InvalidRecord.errno
        self.pushes.append(
            TelemetryPush(
                uuid.UUID(bytes=request.client_instance_id),
                context.client_id,
                request.terminating,
                request.compression_type,
                data,
            )
        )
        return 0


def _is_early(context: RequestContext, latest: float, interval_ms: int) -> bool:
    return context.received_at - latest < interval_ms / 1000


def _matches(match: str, context: RequestContext, instance_id: bytes) -> bool:
    """Return whether a client matches a pattern such as ``client_id=orders-.*``."""
    fields: Mapping[str, str] = {
        "client_id": context.client_id or "",
        "client_instance_id": str(uuid.UUID(bytes=instance_id)),
    }
    pairs = [part.partition("=") for part in match.split(",") if part]
    return all(re.fullmatch(regex, fields.get(name, "")) for name, _, regex in pairs)
