"""PushTelemetry: metrics of a client (KIP-714)."""

from __future__ import annotations

from aiokafka.protocol.messages.telemetry import PushTelemetryRequest, PushTelemetryResponse
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import has_receiver

REQUEST = PushTelemetryRequest


def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Keep them."""
    if not has_receiver(context.truth):
        return refuse(context, request, codes.UNSUPPORTED_VERSION)
    errno = context.services.telemetry.receive(context, request)
    return PushTelemetryResponse(error_code=errno)


def refuse(
    context: RequestContext, request: PushTelemetryRequest, errno: int
) -> PushTelemetryResponse:
    """Say no."""
    return PushTelemetryResponse(error_code=errno)
