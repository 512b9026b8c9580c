"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from aiokafka.testing.handlers import handles, refuse
from aiokafka.testing.quotas import Wanted, problem_of
from aiokafka.testing.script import RequestContext

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
    return AlterClientQuotasResponse(
        entries=[_alter(context, each, request.validate_only) for each in request.entries]
    )


def _alter(context: RequestContext, wanted: AlterEntryData, only_check: bool) -> AlteredEntryData:
    entity = tuple(sorted((each.entity_type, each.entity_name) for each in wanted.entity))
    changes = {op.key: None if op.remove else op.value for op in wanted.ops}
    problem = problem_of(entity, changes)
    if problem is not None:
        return AlteredEntryData(
            error_code=errors.InvalidRequestError.errno, error_message=problem, entity=wanted.entity
        )
    if not only_check:
        context.services.quotas.alter(entity, changes)
    return AlteredEntryData(error_message=None, entity=wanted.entity)
