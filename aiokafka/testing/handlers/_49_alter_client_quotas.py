"""AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
)
from aiokafka.testing import codes
from aiokafka.testing.quota_entries import problem_of
from aiokafka.testing.script import RequestContext

REQUEST = AlterClientQuotasRequest


def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Change the quotas of each entity, or only check."""
    return AlterClientQuotasResponse(
        entries=[_alter(context, each, request.validate_only) for each in request.entries]
    )


def refuse(
    context: RequestContext, request: AlterClientQuotasRequest, errno: int
) -> AlterClientQuotasResponse:
    """Say no to every entity."""
    return AlterClientQuotasResponse(
        entries=[
            AlteredEntryData(error_code=errno, error_message=None, entity=each.entity)
            for each in request.entries
        ]
    )


def _alter(context: RequestContext, wanted: AlterEntryData, only_check: bool) -> AlteredEntryData:
    entity = tuple(sorted((each.entity_type, each.entity_name) for each in wanted.entity))
    changes = {op.key: None if op.remove else op.value for op in wanted.ops}
    problem = problem_of(entity, changes)
    if problem is not None:
        return AlteredEntryData(
            error_code=codes.INVALID_REQUEST, error_message=problem, entity=wanted.entity
        )
    if not only_check:
        context.services.quotas.alter(entity, changes)
    return AlteredEntryData(error_message=None, entity=wanted.entity)
