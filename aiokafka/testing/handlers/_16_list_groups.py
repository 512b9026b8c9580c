"""ListGroups: the groups that a broker coordinates."""

from __future__ import annotations

from aiokafka.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from aiokafka.testing.script import RequestContext

REQUEST = ListGroupsRequest


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups of this broker that the client may know of, filtered by state and type."""
    groups, acls = context.services.groups, context.services.acls
    sees_all = not acls.check_named(context, "cluster", "", "describe")
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(groups=[])
    for group_id in sorted({*groups.classic, *groups.consumer, *groups.offsets}):
        if groups.check_coordinator(context.node_id, group_id):
            continue
        if not sees_all and acls.check_named(context, "group", group_id, "describe"):
            continue
        entry = _entry(context, group_id)
        if states and entry.group_state.lower() not in states:
            continue
        if types and entry.group_type.lower() not in types:
            continue
        response.groups.append(entry)
    return response


def refuse(context: RequestContext, request: ListGroupsRequest, errno: int) -> ListGroupsResponse:
    """Say no."""
    return ListGroupsResponse(error_code=errno, groups=[])


def _entry(context: RequestContext, group_id: str) -> ListedGroup:
    groups = context.services.groups
    next_generation = group_id in groups.consumer
    classic = groups.classic.get(group_id)
    protocol_type = classic.protocol_type if classic is not None else ""
    return ListedGroup(
        group_id=group_id,
        protocol_type="consumer" if next_generation else protocol_type,
        group_state=groups.state_of(group_id),
        group_type="consumer" if next_generation else "classic",
    )
