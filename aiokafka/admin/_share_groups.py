"""Describing share groups (KIP-932)."""

from __future__ import annotations

from aiokafka.admin._group_values import GroupDescription, GroupMember
from aiokafka.admin._routing import Call, Router
from aiokafka.admin.enums import GroupState, GroupType, operations_of
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages import share_group_describe as wire
from aiokafka.structs import TopicPartition

__all__ = ["describe_share"]


async def describe_share(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Return those of the groups that are share groups; the others are not found."""

    def build(version: int) -> wire.ShareGroupDescribeRequest:
        return wire.ShareGroupDescribeRequest(
            group_ids=group_ids, include_authorized_operations=with_operations
        )

    response = await router.send(node_id, Call(wire.ShareGroupDescribeRequest, build), deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code:
        reason = group.error_message or "cannot be described"
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.SHARE,
        state=GroupState.of(group.group_state),
        protocol_type="share",
        assignor=group.assignor_name,
        coordinator=node_id,
        members=tuple(_member(member) for member in group.members),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        authorized_operations=operations_of(group.authorized_operations),
    )


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
