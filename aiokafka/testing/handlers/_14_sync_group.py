"""SyncGroup: fetch the assignment; the leader brings it."""

from __future__ import annotations

from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiokafka.testing import codes
from aiokafka.testing.classic_group import ClassicGroup
from aiokafka.testing.consumer_group import ConsumerGroup
from aiokafka.testing.group_members import GroupRefusedError
from aiokafka.testing.script import RequestContext

REQUEST = SyncGroupRequest


async def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Respond with the assignment, when the leader has sent it."""
    groups = context.services.groups
    errno = groups.check_coordinator(context.node_id, request.group_id)
    if errno:
        return refuse(context, request, errno)
    if (modern := groups.consumer.get(request.group_id)) is not None:
        return _sync_modern(request, modern)
    group = groups.classic.get(request.group_id)
    if group is None:
        return refuse(context, request, codes.UNKNOWN_MEMBER_ID)
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


def _sync_modern(request: SyncGroupRequest, group: ConsumerGroup) -> SyncGroupResponse:
    """Respond to a classic member of a group of the consumer protocol, which has no leader."""
    told = (request.protocol_type, request.protocol_name)
    try:
        assignment = group.sync(
            request.member_id, request.group_instance_id, request.generation_id, told
        )
    except GroupRefusedError as exc:
        return SyncGroupResponse(error_code=exc.errno, assignment=b"")
    return SyncGroupResponse(protocol_type=told[0], protocol_name=told[1], assignment=assignment)


def refuse(context: RequestContext, request: SyncGroupRequest, errno: int) -> SyncGroupResponse:
    """Say no."""
    return SyncGroupResponse(error_code=errno, assignment=b"")


def _real(group: ClassicGroup) -> tuple[str, str]:
    return group.protocol_type, group.protocol
