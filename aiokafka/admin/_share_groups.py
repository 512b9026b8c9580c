"""Describing share groups (KIP-932)."""

from __future__ import annotations

from aiokafka.admin._assigned_groups import AssignedGroups
from aiokafka.admin._group_values import GroupMember
from aiokafka.admin.enums import GroupType
from aiokafka.protocol.messages import share_group_describe as wire
from aiokafka.structs import TopicPartition

__all__ = ["share_groups"]


def _member(member: wire.Member) -> GroupMember:
    assigned = [
        TopicPartition(topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    ]
    return GroupMember(
        member_id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        epoch=member.member_epoch,
        topics=tuple(sorted(member.subscribed_topic_names)),
        assignment=tuple(sorted(assigned)),
        type=GroupType.SHARE,
    )


share_groups = AssignedGroups(
    kind=GroupType.SHARE,
    request=wire.ShareGroupDescribeRequest,
    member=_member,
)
