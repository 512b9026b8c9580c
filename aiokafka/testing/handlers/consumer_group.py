"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from aiokafka import _clock, errors
from aiokafka.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from aiokafka.protocol.messages.consumer_group_heartbeat import Assignment as NextAssignment
from aiokafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokafka.protocol.messages.consumer_group_heartbeat import TopicPartitions as OwnedPartitions
from aiokafka.testing.consumer_group import (
    JOINING,
    ConsumerGroup,
    ConsumerMember,
    Heartbeat,
    TopicIdPartitions,
)
from aiokafka.testing.handlers import handles, require
from aiokafka.testing.handlers._common import authorized_operations, refused_group
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import ClusterState

_LEAVING_STATIC = -2  # epoch of a static member that leaves the group; lower epochs are invalid


@handles(ConsumerGroupHeartbeatRequest, refusal={"error_message": "refused"})
def consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Move a member one step towards its assignment (KIP-848)."""
    require(_check(context, request))
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


def _check(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> int:
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
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(slots):
        by_topic.setdefault(topic_id, []).append(index)
    return NextAssignment(
        topic_partitions=[
            OwnedPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic.items()
        ]
    )


_CLASSIC, _CONSUMER = 0, 1


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group (KIP-848)."""
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[_describe_group(context, request, group_id) for group_id in request.group_ids],
    )


def _refused(group_id: str, errno: int) -> DescribedGroup:
    return refused_group(DescribedGroup, group_id, errno, assignor_name="")


def _describe_group(
    context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", group_id, "describe")
    errno = errno or groups.check_coordinator(context.node_id, group_id)
    group = groups.consumer.get(group_id)
    if errno or group is None:
        return _refused(group_id, errno or errors.GroupIdNotFound.errno)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(context, group, member) for member in group.members.values()],
        authorized_operations=authorized_operations(
            context, request.include_authorized_operations, "group", group_id
        ),
    )


def _member(context: RequestContext, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(context.state, member.assigned),
        target_assignment=_assignment(context.state, group.target[member.member_id]),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(state: ClusterState, slots: TopicIdPartitions) -> Assignment:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(slots):
        by_topic.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=state.topics_by_id[topic_id].name,
                partitions=indexes,
            )
            for topic_id, indexes in by_topic.items()
            if topic_id in state.topics_by_id
        ]
    )
