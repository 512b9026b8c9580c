"""GetTelemetrySubscriptions and PushTelemetry: metrics of clients (KIP-714)."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from aiokafka.testing.handlers import handles, refuse
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import ACCEPTED, has_receiver


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the client's subscription: the metrics to push, and the push interval (KIP-714)."""
    if not has_receiver(context.cluster_state):
        return refuse(context, request, errors.UnsupportedVersionError.errno)
    receiver = context.services.telemetry
    errno, instance_id = receiver.admit(context, request.client_instance_id)
    if errno:
        return refuse(context, request, errno)
    subscription_id, interval_ms, metrics = receiver.subscription(context, instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=interval_ms,
        telemetry_max_bytes=int(context.cluster_state.config["telemetry.max.bytes"]),
        delta_temporality=True,
        requested_metrics=list(metrics),
    )


@handles(PushTelemetryRequest)
def push_telemetry(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Store the pushed metrics (KIP-714)."""
    if not has_receiver(context.cluster_state):
        return refuse(context, request, errors.UnsupportedVersionError.errno)
    errno = context.services.telemetry.receive(context, request)
    return PushTelemetryResponse(error_code=errno)
