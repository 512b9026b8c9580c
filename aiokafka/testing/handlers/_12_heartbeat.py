"""Heartbeat: stay in a classic group."""

from __future__ import annotations

from aiokafka.protocol.messages.classic_group import HeartbeatRequest, HeartbeatResponse
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
    group = groups.classic.get(request.group_id)
    if errno:
        return refuse(context, request, errno)
    if group is None:
        return refuse(context, request, codes.UNKNOWN_MEMBER_ID)
    try:
        errno = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    except GroupRefusedError as exc:
        errno = exc.errno
    return HeartbeatResponse(error_code=errno)


def refuse(context: RequestContext, request: HeartbeatRequest, errno: int) -> HeartbeatResponse:
    """Say no."""
    return HeartbeatResponse(error_code=errno)
