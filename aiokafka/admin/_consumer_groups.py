"""Describing groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from aiokafka.admin._group_values import GroupDescription, GroupMember
from aiokafka.admin._routing import Call, Router
from aiokafka.admin.enums import GroupState, GroupType, operations_of
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages import consumer_group_describe as wire
from aiokafka.structs import TopicPartition

__all__ = ["describe_consumer"]

_CLASSIC_MEMBER = 0


async def describe_consumer(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Return those of the groups that are of the consumer protocol; the others are not found."""

    def build(version: int) -> wire.ConsumerGroupDescribeRequest:
        return wire.ConsumerGroupDescribeRequest(
            group_ids=group_ids, include_authorized_operations=with_operations
        )

    call = Call(wire.ConsumerGroupDescribeRequest, build)
    response = await router.send(node_id, call, deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code:
        reason = group.error_message or "cannot be described"
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CONSUMER,
        state=GroupState.of(group.group_state),
        protocol_type="consumer",
        assignor=group.assignor_name,
        coordinator=node_id,
        members=tuple(_member(member) for member in group.members),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        authorized_operations=operations_of(group.authorized_operations),
    )


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
