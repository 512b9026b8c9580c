"""CreateAcls (KIP-140)."""

from __future__ import annotations

from aiokafka.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.acl_entries import Entry
from aiokafka.testing.script import RequestContext

REQUEST = CreateAclsRequest
_CLUSTER = 4
_ANY, _MATCH = 1, 2


def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add each, unless it cannot be."""
    if not context.services.acls.entries.is_enforced:
        return refuse(context, request, codes.SECURITY_DISABLED)
    return CreateAclsResponse(results=[_create(context, one) for one in request.creations])


def refuse(context: RequestContext, request: CreateAclsRequest, errno: int) -> CreateAclsResponse:
    """Refuse every entry."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=errno, error_message=None) for _ in request.creations]
    )


def _create(context: RequestContext, wanted: AclCreation) -> AclCreationResult:
    problem = _problem(wanted)
    if problem:
        return AclCreationResult(error_code=codes.INVALID_REQUEST, error_message=problem)
    entry = Entry(
        wanted.resource_type,
        wanted.resource_name,
        wanted.resource_pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )
    context.services.acls.entries.add(entry)
    return AclCreationResult(error_message=None)


def _problem(wanted: AclCreation) -> str | None:
    """Say what is wrong with an entry; None if nothing is."""
    if wanted.resource_type == _CLUSTER and wanted.resource_name != "kafka-cluster":
        return "The only valid name for the CLUSTER resource is kafka-cluster"
    if wanted.resource_pattern_type in (_ANY, _MATCH) or not wanted.resource_name:
        return "Invalid resource pattern"
    if ":" not in wanted.principal:
        return "Could not parse principal"
    return None
