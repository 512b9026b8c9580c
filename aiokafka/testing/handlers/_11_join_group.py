"""JoinGroup: enter a classic group and wait until all its members have; or at once a group of the
consumer protocol (KIP-848)."""

from __future__ import annotations

from aiokafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from aiokafka.testing import codes
from aiokafka.testing.group_members import Application, GroupRefusedError, Joined
from aiokafka.testing.script import RequestContext

REQUEST = JoinGroupRequest
_FIRST_NEEDING_ID = 4  # KIP-394
_FIRST_STATIC = 5
_FIRST_WITH_TYPE = 7
_FIRST_SKIPPING = 9  # KIP-814


async def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Add a member, and respond when the group has its next generation."""
    errno = _check(context, request)
    if errno:
        return _refused(context, request.member_id, errno)
    try:
        group = context.services.groups.for_join(request.group_id)
        answer = group.join(_application(context, request))
        joined = answer if isinstance(answer, Joined) else await answer
    except GroupRefusedError as exc:
        return _refused(context, exc.member_id or request.member_id, exc.errno)
    return _joined(context, joined)


def refuse(context: RequestContext, request: JoinGroupRequest, errno: int) -> JoinGroupResponse:
    """Say no."""
    return _refused(context, request.member_id, errno)


def _check(context: RequestContext, request: JoinGroupRequest) -> int:
    setting = context.state.setting
    shortest = setting("group.min.session.timeout.ms")
    longest = setting("group.max.session.timeout.ms")
    if not request.group_id:
        return codes.INVALID_GROUP_ID
    if not shortest <= request.session_timeout_ms <= longest:
        return codes.INVALID_SESSION_TIMEOUT
    return context.services.groups.check_coordinator(context.node_id, request.group_id)


def _application(context: RequestContext, request: JoinGroupRequest) -> Application:
    session_timeout = request.session_timeout_ms / 1000
    rebalance_timeout = request.rebalance_timeout_ms / 1000
    return Application(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout=session_timeout,
        rebalance_timeout=rebalance_timeout if context.api_version >= 1 else session_timeout,
        protocol_type=request.protocol_type,
        protocols=[(p.name, p.metadata) for p in request.protocols],
        needs_member_id=context.api_version >= _FIRST_NEEDING_ID,
        knows_skip=context.api_version >= _FIRST_SKIPPING,
    )


def _refused(context: RequestContext, member_id: str, errno: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=errno,
        protocol_name=None if context.api_version >= _FIRST_WITH_TYPE else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def _joined(context: RequestContext, joined: Joined) -> JoinGroupResponse:
    response = JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        members=[],
    )
    if joined.skip_assignment:
        response.skip_assignment = True
    for member in joined.members:
        entry = JoinGroupResponseMember(
            member_id=member.member_id, metadata=member.metadata(joined.protocol)
        )
        if context.api_version >= _FIRST_STATIC:
            entry.group_instance_id = member.instance_id
        response.members.append(entry)
    return response
