"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat: members of groups."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from aiokafka import _clock, errors
from aiokafka.protocol.messages.group_members import Assignment as NextAssignment
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka.protocol.messages.group_members import TopicPartitions as OwnedPartitions
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.classic_group import ClassicGroup, GroupRefusedError, Joined, JoinRequest
from aiokafka.testing.consumer_group import (
    JOINING,
    Heartbeat,
    TopicIdPartitions,
)
from aiokafka.testing.handlers import handles, refuses, require
from aiokafka.testing.handlers._common import grouped
from aiokafka.testing.script import RequestContext

# First version in which the response to a new dynamic member has only a member id, with which the
# member must join again (KIP-394).
_FIRST_NEEDING_ID = 4
_FIRST_STATIC = 5
_FIRST_WITH_TYPE = 7
_FIRST_SKIPPING = 9  # first version with the field SkipAssignment (KIP-814)


@handles(JoinGroupRequest)
async def join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Add a member, and respond when the next generation of the group begins. If the group has the
    consumer protocol, respond at once (KIP-848).
    """
    _check_join(context, request)
    try:
        group = context.services.groups.for_join(request.group_id)
        answer = group.join(_join_request(context, request))
        joined = answer if isinstance(answer, Joined) else await answer
    except GroupRefusedError as exc:
        return _refused_join(context, exc.member_id or request.member_id, exc.errno)
    return _joined(context, joined)


@refuses(JoinGroupRequest)
def refuse_join_group(
    context: RequestContext, request: JoinGroupRequest, errno: int
) -> JoinGroupResponse:
    """Return a response with `errno` and the member id of the request."""
    return _refused_join(context, request.member_id, errno)


def _check_join(context: RequestContext, request: JoinGroupRequest) -> None:
    setting = context.state.setting
    shortest = setting("group.min.session.timeout.ms")
    longest = setting("group.max.session.timeout.ms")
    if not request.group_id:
        raise RefusedError(errors.InvalidGroupIdError)
    if not shortest <= request.session_timeout_ms <= longest:
        raise RefusedError(errors.InvalidSessionTimeoutError)
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))


def _join_request(context: RequestContext, request: JoinGroupRequest) -> JoinRequest:
    session_timeout = request.session_timeout_ms / 1000
    rebalance_timeout = request.rebalance_timeout_ms / 1000
    return JoinRequest(
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


def _refused_join(context: RequestContext, member_id: str, errno: int) -> JoinGroupResponse:
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


@handles(SyncGroupRequest)
async def sync_group(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Return the member's assignment as soon as the leader has sent the assignments. In a group of
    the consumer protocol, return it at once (KIP-848)."""
    groups = context.services.groups
    require(groups.check_coordinator(context.node_id, request.group_id))
    if (modern := groups.consumer.get(request.group_id)) is not None:
        named = _protocol(request)
        assignment = modern.sync(
            request.member_id, request.group_instance_id, request.generation_id, named
        )
        return SyncGroupResponse(
            protocol_type=named[0], protocol_name=named[1], assignment=assignment
        )
    group = groups.classic.get(request.group_id)
    if group is None:
        raise RefusedError(errors.UnknownMemberIdError)
    group.check_member(request.member_id, request.group_instance_id, request.generation_id)
    named, actual = _protocol(request), (group.protocol_type, group.protocol)
    if any(name not in (None, real) for name, real in zip(named, actual, strict=True)):
        raise RefusedError(errors.InconsistentGroupProtocolError)
    assignment = await group.sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        {entry.member_id: entry.assignment for entry in request.assignments},
    )
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def _protocol(request: SyncGroupRequest) -> tuple[str | None, str | None]:
    return request.protocol_type, request.protocol_name


@handles(HeartbeatRequest)
def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member; return REBALANCE_IN_PROGRESS if the member must rejoin."""
    if not request.group_id:
        raise RefusedError(errors.InvalidGroupIdError)
    groups = context.services.groups
    require(groups.check_coordinator(context.node_id, request.group_id))
    member = (request.member_id, request.group_instance_id, request.generation_id)
    if (modern := groups.consumer.get(request.group_id)) is not None:
        errno = modern.classic_heartbeat(*member)
    elif (group := groups.classic.get(request.group_id)) is not None:
        errno = group.heartbeat(*member)
    else:
        errno = errors.UnknownMemberIdError.errno
    return HeartbeatResponse(error_code=errno)


_FIRST_SEVERAL = 3


@handles(LeaveGroupRequest)
def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member, or several members (KIP-345). The other members rebalance."""
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))
    members = request.members
    if context.api_version < _FIRST_SEVERAL:
        members = [MemberIdentity(member_id=request.member_id)]
    answers = _leave(context, request.group_id, members)
    if context.api_version < _FIRST_SEVERAL:
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=answers)


def _leave(
    context: RequestContext, group_id: str, members: list[MemberIdentity]
) -> list[MemberResponse]:
    groups = context.services.groups
    names = [(member.member_id, member.group_instance_id) for member in members]
    if (modern := groups.consumer.get(group_id)) is not None:
        found = modern.remove_named(names)
    else:
        found = [_leave_classic(groups.classic.get(group_id), *name) for name in names]
    return [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=errno)
        for (member_id, instance_id), errno in zip(names, found, strict=True)
    ]


def _leave_classic(group: ClassicGroup | None, member_id: str, instance_id: str | None) -> int:
    if group is None:
        return errors.UnknownMemberIdError.errno
    try:
        group.leave(member_id, instance_id)
    except GroupRefusedError as exc:
        return exc.errno
    return 0


_LEAVING_STATIC = -2  # epoch with which a static member leaves; lower epochs are invalid


@handles(ConsumerGroupHeartbeatRequest, refusal={"error_message": "refused"})
def consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat of a joining, present or leaving member (KIP-848). The response may have a
    new assignment.
    """
    require(_check_heartbeat(context, request))
    joining = request.member_epoch == JOINING
    group = context.services.groups.consumer_for_heartbeat(request.group_id, joining=joining)
    reply = group.heartbeat(_heartbeat(context, request))
    interval = context.state.setting("group.consumer.heartbeat.interval.ms")
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=interval if reply.epoch >= 0 else 0,
        assignment=None if reply.assignment is None else _next_assignment(reply.assignment),
    )


def _check_heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> int:
    if context.cluster_state.profile.level("group.version") < 1:
        return errors.UnsupportedVersionError.errno
    if not request.group_id:
        return errors.InvalidRequestError.errno
    if not request.member_id and (context.api_version >= 1 or request.member_epoch != JOINING):
        return errors.InvalidRequestError.errno
    if request.member_epoch < _LEAVING_STATIC:
        return errors.InvalidRequestError.errno
    if request.member_epoch == JOINING:
        # A joining member must send an empty list of owned partitions.
        owns_nothing = request.topic_partitions is not None and not request.topic_partitions
        if not owns_nothing or request.rebalance_timeout_ms < 0:
            return errors.InvalidRequestError.errno
    for name in request.subscribed_topic_names or ():
        errno = context.check_topic(name)
        if errno:
            return errno
    return context.services.groups.check_coordinator(context.node_id, request.group_id)


def _heartbeat(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    timeout = request.rebalance_timeout_ms
    return Heartbeat(
        member_id=request.member_id or _new_member_id(),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout=None if timeout < 0 else timeout / 1000,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
    )


def _new_member_id() -> str:
    return base64.urlsafe_b64encode(_clock.random_uuid().bytes).decode().rstrip("=")


def _owned(topics: Iterable[OwnedPartitions] | None) -> TopicIdPartitions | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _next_assignment(slots: TopicIdPartitions) -> NextAssignment:
    return NextAssignment(
        topic_partitions=[
            OwnedPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in grouped(sorted(slots)).items()
        ]
    )
