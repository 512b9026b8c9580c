"""Requests about client quotas (KIP-546), and metrics that clients push (KIP-714)."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from aiokafka.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import answer_items, handles, refuse
from aiokafka.testing.quotas import Wanted, problem_of
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import ACCEPTED, has_receiver

_KINDS = ("user", "client-id", "ip")


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas that match the filter (KIP-546)."""
    components = request.components
    wanted = {
        each.entity_type: Wanted(each.entity_type, each.match_type, each.match)
        for each in components
    }
    is_odd = "ip" in wanted and len(wanted) > 1
    if len(wanted) < len(components) or is_odd or not wanted.keys() <= set(_KINDS):
        return refuse(context, request, errors.InvalidRequestError.errno)
    found = context.services.quotas.entries.find(wanted, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            for entity, limits in found
        ],
    )


@handles(AlterClientQuotasRequest)
def alter_client_quotas(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity; with `validate_only`, only check the changes (KIP-546)."""
    return answer_items(request, lambda wanted: _alter(context, wanted, request.validate_only))


def _alter(context: RequestContext, wanted: AlterEntryData, only_check: bool) -> None:
    entity = tuple(sorted((each.entity_type, each.entity_name) for each in wanted.entity))
    changes = {op.key: None if op.remove else op.value for op in wanted.ops}
    problem = problem_of(entity, changes)
    if problem is not None:
        raise RefusedError(errors.InvalidRequestError, problem)
    if not only_check:
        context.services.quotas.alter(entity, changes)


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
