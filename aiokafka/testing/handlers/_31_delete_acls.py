"""DeleteAcls (KIP-140)."""

from __future__ import annotations

from aiokafka.protocol.messages.acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.acl_entries import Entry, Filter
from aiokafka.testing.script import RequestContext

REQUEST = DeleteAclsRequest


def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove what each filter takes. An entry that several take belongs to each of them."""
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, codes.SECURITY_DISABLED)
    wanted = [_filter(one) for one in request.filters]
    found = [entries.find(one) for one in wanted]
    for one in wanted:
        entries.remove(one)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_message=None, matching_acls=[_gone(e) for e in gone])
            for gone in found
        ]
    )


def refuse(context: RequestContext, request: DeleteAclsRequest, errno: int) -> DeleteAclsResponse:
    """Refuse every filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=errno, error_message=None, matching_acls=[])
            for _ in request.filters
        ]
    )


def _filter(wanted: DeleteAclsFilter) -> Filter:
    return Filter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _gone(entry: Entry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
