"""SyncGroup: fetch the assignment; the leader brings it."""

from __future__ import annotations

from aiokafka.protocol.messages.classic_group import SyncGroupRequest, SyncGroupResponse
from aiokafka.testing import codes
from aiokafka.testing.classic_group import ClassicGroup
from aiokafka.testing.group_members import GroupRefusedError
from aiokafka.testing.script import RequestContext

REQUEST = SyncGroupRequest


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Respond with the assignment, when the leader has sent it."""
    groups = context.services.groups
    errno = groups.check_coordinator(context.node_id, request.group_id)
    group = groups.classic.get(request.group_id)
    if not errno and group is None:
        errno = codes.UNKNOWN_MEMBER_ID
    if errno or group is None:
        return refuse(context, request, errno)
    try:
        group.check_member(request.member_id, request.group_instance_id, request.generation_id)
        told = (request.protocol_type, request.protocol_name)
        if any(name not in (None, real) for name, real in zip(told, _real(group), strict=True)):
            raise GroupRefusedError(codes.INCONSISTENT_GROUP_PROTOCOL)
        assignment = await group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            {entry.member_id: entry.assignment for entry in request.assignments},
        )
    except GroupRefusedError as exc:
        return refuse(context, request, exc.errno)
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def refuse(context: RequestContext, request: SyncGroupRequest, errno: int) -> SyncGroupResponse:
    """Say no."""
    return SyncGroupResponse(error_code=errno, assignment=b"")


def _real(group: ClassicGroup) -> tuple[str, str]:
    return group.protocol_type, group.protocol
