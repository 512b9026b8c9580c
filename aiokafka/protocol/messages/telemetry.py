"""Messages for metrics subscriptions and pushed client metrics (KIP-714)."""

from aiokafka.protocol.schema import I8, I16, I32, Bool, Bytes, Request, Response, Str, Uuid


class GetTelemetrySubscriptionsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    client_instance_id: Uuid
    subscription_id: I32
    accepted_compression_types: list[I8]
    push_interval_ms: I32
    telemetry_max_bytes: I32
    delta_temporality: Bool
    requested_metrics: list[Str]


class GetTelemetrySubscriptionsRequest(
    Request[GetTelemetrySubscriptionsResponse], api_key=71, versions="0", flexible="0+"
):
    """Request the metrics subscription of this client (KIP-714)."""

    client_instance_id: Uuid


class PushTelemetryResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0


class PushTelemetryRequest(Request[PushTelemetryResponse], api_key=72, versions="0", flexible="0+"):
    """Push the client's metrics to a broker (KIP-714)."""

    client_instance_id: Uuid
    subscription_id: I32
    terminating: Bool
    compression_type: I8
    metrics: Bytes
