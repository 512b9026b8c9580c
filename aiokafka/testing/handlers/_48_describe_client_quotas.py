"""DescribeClientQuotas (KIP-546)."""

from __future__ import annotations

from aiokafka.protocol.messages.quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from aiokafka.testing import codes
from aiokafka.testing.quota_entries import Wanted
from aiokafka.testing.script import RequestContext

REQUEST = DescribeClientQuotasRequest
_KINDS = ("user", "client-id", "ip")


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas that the filter takes."""
    components = request.components
    wanted = {
        each.entity_type: Wanted(each.entity_type, each.match_type, each.match)
        for each in components
    }
    is_odd = "ip" in wanted and len(wanted) > 1
    if len(wanted) < len(components) or is_odd or not wanted.keys() <= set(_KINDS):
        return refuse(context, request, codes.INVALID_REQUEST)
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


def refuse(
    context: RequestContext, request: DescribeClientQuotasRequest, errno: int
) -> DescribeClientQuotasResponse:
    """Say no."""
    return DescribeClientQuotasResponse(error_code=errno, error_message=None, entries=None)
