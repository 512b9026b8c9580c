"""LeaveGroup: one member, or several (KIP-345)."""

from __future__ import annotations

from aiokafka.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.classic_group import ClassicGroup
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
    answers = _leave(context, request.group_id, members)
    if context.api_version < _FIRST_SEVERAL:
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=answers)


def refuse(context: RequestContext, request: LeaveGroupRequest, errno: int) -> LeaveGroupResponse:
    """Say no to the whole."""
    return LeaveGroupResponse(error_code=errno)


def _leave(
    context: RequestContext, group_id: str, members: list[MemberIdentity]
) -> list[MemberResponse]:
    groups = context.services.groups
    names = [(member.member_id, member.group_instance_id) for member in members]
    if (modern := groups.consumer.get(group_id)) is not None:
        found = modern.dismiss(names)
    else:
        found = [_leave_classic(groups.classic.get(group_id), *name) for name in names]
    return [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=errno)
        for (member_id, instance_id), errno in zip(names, found, strict=True)
    ]


def _leave_classic(group: ClassicGroup | None, member_id: str, instance_id: str | None) -> int:
    if group is None:
        return codes.UNKNOWN_MEMBER_ID
    try:
        group.leave(member_id, instance_id)
    except GroupRefusedError as exc:
        return exc.errno
    return codes.NONE
