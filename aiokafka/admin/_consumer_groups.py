"""Describing groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from aiokafka.admin._assigned_groups import AssignedGroups
from aiokafka.admin._group_values import GroupMember
from aiokafka.admin.enums import GroupType
from aiokafka.protocol.messages import consumer_group_describe as wire
from aiokafka.structs import TopicPartition

__all__ = ["consumer_groups"]

_CLASSIC_MEMBER = 0


def _member(member: wire.Member) -> GroupMember:
    classic = member.member_type == _CLASSIC_MEMBER
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        epoch=member.member_epoch,
        topics=tuple(sorted(member.subscribed_topic_names)),
        regex=member.subscribed_topic_regex or None,
        assignment=_flat(member.assignment),
        target=_flat(member.target_assignment),
        type=GroupType.CLASSIC if classic else GroupType.CONSUMER,
    )


def _flat(assignment: wire.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


consumer_groups = AssignedGroups(
    kind=GroupType.CONSUMER,
    request=wire.ConsumerGroupDescribeRequest,
    member=_member,
)
