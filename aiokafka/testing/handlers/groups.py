"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from aiokafka.testing.classic_group import ClassicGroup, GroupState, Member
from aiokafka.testing.handlers import handles
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext

_FIRST_STATIC = 4
_FIRST_NOT_FOUND = 6


@handles(DescribeGroupsRequest)
def describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group. A group that is not a classic group has the state Dead, and since
    version 6 the error GROUP_ID_NOT_FOUND (KIP-1043).
    """
    return DescribeGroupsResponse(
        groups=[_describe_group(context, request, group_id) for group_id in request.groups]
    )


def _empty(group_id: str, state: str, errno: int = 0) -> DescribedGroup:
    return DescribedGroup(
        error_code=errno,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _describe_group(
    context: RequestContext, request: DescribeGroupsRequest, group_id: str
) -> DescribedGroup:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", group_id, "describe")
    errno = errno or groups.check_coordinator(context.node_id, group_id)
    if errno:
        return _empty(group_id, "", errno)
    group = groups.classic.get(group_id)
    if group is None:
        answer = _not_classic(context, group_id)
    else:
        answer = _empty(group_id, group.state.value)
        answer.protocol_type = group.protocol_type
        if group.state is GroupState.STABLE:
            answer.protocol_data = group.protocol
        answer.members = [_member(context, group, m) for m in group.members.values()]
    if request.include_authorized_operations:
        answer.authorized_operations = authorized_operations(context, True, "group", group_id)
    return answer


def _not_classic(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.services.groups
    if group_id in groups.offsets and group_id not in groups.consumer:
        return _empty(group_id, GroupState.EMPTY.value)
    answer = _empty(group_id, GroupState.DEAD.value)
    if context.api_version >= _FIRST_NOT_FOUND:
        answer.error_code = errors.GroupIdNotFound.errno
        answer.error_message = f"Group {group_id} is not a classic group."
    return answer


def _member(context: RequestContext, group: ClassicGroup, member: Member) -> DescribedGroupMember:
    stable = group.state is GroupState.STABLE
    answer = DescribedGroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if stable else b"",
        member_assignment=member.assignment,
    )
    if context.api_version >= _FIRST_STATIC:
        answer.group_instance_id = member.instance_id
    return answer


@handles(ListGroupsRequest)
def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups of this coordinator that the client may describe, by state and type."""
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
        entry = _listed(context, group_id)
        if states and entry.group_state.lower() not in states:
            continue
        if types and entry.group_type.lower() not in types:
            continue
        response.groups.append(entry)
    return response


def _listed(context: RequestContext, group_id: str) -> ListedGroup:
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


@handles(DeleteGroupsRequest)
def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group, with its offsets."""
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[_delete_group(context, group_id) for group_id in request.groups_names],
    )


def _delete_group(context: RequestContext, group_id: str) -> DeletableGroupResult:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", group_id, "delete")
    errno = errno or groups.check_coordinator(context.node_id, group_id) or groups.delete(group_id)
    return DeletableGroupResult(group_id=group_id, error_code=errno)
