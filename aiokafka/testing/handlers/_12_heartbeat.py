"""Heartbeat: stay in a group as a member of the classic protocol."""

from __future__ import annotations

from aiokafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafka.testing import codes
from aiokafka.testing.group_members import GroupRefusedError
from aiokafka.testing.script import RequestContext

REQUEST = HeartbeatRequest


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member, which learns of a rebalance."""
    if not request.group_id:
        return refuse(context, request, codes.INVALID_GROUP_ID)
    groups = context.services.groups
    errno = groups.check_coordinator(context.node_id, request.group_id)
    if errno:
        return refuse(context, request, errno)
    who = (request.member_id, request.group_instance_id, request.generation_id)
    try:
        if (modern := groups.consumer.get(request.group_id)) is not None:
            errno = modern.beat(*who)
        elif (group := groups.classic.get(request.group_id)) is not None:
            errno = group.heartbeat(*who)
        else:
            errno = codes.UNKNOWN_MEMBER_ID
    except GroupRefusedError as exc:
        errno = exc.errno
    return HeartbeatResponse(error_code=errno)


def refuse(context: RequestContext, request: HeartbeatRequest, errno: int) -> HeartbeatResponse:
    """Say no."""
    return HeartbeatResponse(error_code=errno)
