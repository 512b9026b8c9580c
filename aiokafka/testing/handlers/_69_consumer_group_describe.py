"""ConsumerGroupDescribe: next-generation groups (KIP-848)."""

from __future__ import annotations

from aiokafka.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from aiokafka.testing import codes
from aiokafka.testing.consumer_group import ConsumerGroup, ConsumerMember
from aiokafka.testing.embedded import Slots
from aiokafka.testing.group_refusals import refused_group
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import ClusterState

REQUEST = ConsumerGroupDescribeRequest
_CLASSIC, _CONSUMER = 0, 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each."""
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[_describe(context, request, group_id) for group_id in request.group_ids],
    )


def refuse(
    context: RequestContext, request: ConsumerGroupDescribeRequest, errno: int
) -> ConsumerGroupDescribeResponse:
    """Say no to every group."""
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[_refused(g, errno) for g in request.group_ids]
    )


def _refused(group_id: str, errno: int) -> DescribedGroup:
    return refused_group(DescribedGroup, group_id, errno, assignor_name="")


def _describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", group_id, "describe")
    errno = errno or groups.check_coordinator(context.node_id, group_id)
    group = groups.consumer.get(group_id)
    if errno or group is None:
        return _refused(group_id, errno or codes.GROUP_ID_NOT_FOUND)
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


def _assignment(state: ClusterState, slots: Slots) -> Assignment:
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
