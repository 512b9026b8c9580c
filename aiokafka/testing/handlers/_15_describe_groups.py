"""DescribeGroups: classic groups."""

from __future__ import annotations

from aiokafka.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.classic_group import ClassicGroup
from aiokafka.testing.group_members import GroupState, Member
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext

REQUEST = DescribeGroupsRequest
_FIRST_STATIC = 4
_FIRST_NOT_FOUND = 6


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each; one that does not exist is Dead."""
    return DescribeGroupsResponse(
        groups=[_describe(context, request, group_id) for group_id in request.groups]
    )


def refuse(
    context: RequestContext, request: DescribeGroupsRequest, errno: int
) -> DescribeGroupsResponse:
    """Say no to every group."""
    return DescribeGroupsResponse(groups=[_empty(g, "", errno) for g in request.groups])


def _empty(group_id: str, state: str, errno: int = 0) -> DescribedGroup:
    return DescribedGroup(
        error_code=errno,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _describe(
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
        answer.error_code = codes.GROUP_ID_NOT_FOUND
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
