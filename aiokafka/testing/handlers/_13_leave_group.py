"""LeaveGroup: one member, or several (KIP-345)."""

from __future__ import annotations

from aiokafka.protocol.messages.classic_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.group_members import GroupRefusedError
from aiokafka.testing.script import RequestContext

REQUEST = LeaveGroupRequest
_FIRST_SEVERAL = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Take them out; the others rebalance."""
    errno = context.services.groups.check_coordinator(context.node_id, request.group_id)
    if errno:
        return refuse(context, request, errno)
    members = request.members
    if context.api_version < _FIRST_SEVERAL:
        members = [MemberIdentity(member_id=request.member_id)]
    answers = [_leave(context, request.group_id, member) for member in members]
    if context.api_version < _FIRST_SEVERAL:
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=answers)


def refuse(context: RequestContext, request: LeaveGroupRequest, errno: int) -> LeaveGroupResponse:
    """Say no to the whole."""
    return LeaveGroupResponse(error_code=errno)


def _leave(context: RequestContext, group_id: str, member: MemberIdentity) -> MemberResponse:
    errno = codes.NONE
    groups = context.services.groups
    try:
        if (modern := groups.consumer.get(group_id)) is not None:
            modern.dismiss(member.member_id, member.group_instance_id)
        elif (group := groups.classic.get(group_id)) is not None:
            group.leave(member.member_id, member.group_instance_id)
        else:
            errno = codes.UNKNOWN_MEMBER_ID
    except GroupRefusedError as exc:
        errno = exc.errno
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=errno,
    )
