"""DeleteGroups: groups without members."""

from __future__ import annotations

from aiokafka.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from aiokafka.testing.script import RequestContext

REQUEST = DeleteGroupsRequest


def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each with its positions."""
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[_delete(context, group_id) for group_id in request.groups_names],
    )


def refuse(
    context: RequestContext, request: DeleteGroupsRequest, errno: int
) -> DeleteGroupsResponse:
    """Say no to every group."""
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[DeletableGroupResult(group_id=g, error_code=errno) for g in request.groups_names],
    )


def _delete(context: RequestContext, group_id: str) -> DeletableGroupResult:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", group_id, "delete")
    errno = errno or groups.check_coordinator(context.node_id, group_id) or groups.delete(group_id)
    return DeletableGroupResult(group_id=group_id, error_code=errno)
