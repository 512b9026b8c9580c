"""Describing groups of the classic protocol."""

from __future__ import annotations

from aiokafka.admin._group_values import GroupDescription, GroupMember
from aiokafka.admin._routing import Call, Router
from aiokafka.admin.enums import GroupState, GroupType, operations_of
from aiokafka.coordinator.protocol import (
    ConsumerProtocol,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import GroupIdNotFound, KafkaError, KafkaProtocolError, for_code
from aiokafka.protocol.messages import groups as wire

__all__ = ["describe_classic"]

_FIRST_WITH_OPERATIONS = 3


async def describe_classic(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Return those of the groups that are classic; the others are not found."""

    def build(version: int) -> wire.DescribeGroupsRequest:
        request = wire.DescribeGroupsRequest(groups=group_ids)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_authorized_operations = with_operations
        return request

    response = await router.send(node_id, Call(wire.DescribeGroupsRequest, build), deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code:
        reason = group.error_message or "cannot be described"
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    state = GroupState.of(group.group_state)
    if state is GroupState.DEAD:
        # What brokers before Kafka 4.0 say of a group that is not there, or not classic.
        return GroupIdNotFound(f"group {group.group_id!r} does not exist")
    is_consumer = group.protocol_type == ConsumerProtocol.PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CLASSIC,
        state=state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=node_id,
        members=tuple(_member(member, is_consumer) for member in group.members),
        authorized_operations=operations_of(group.authorized_operations),
    )


def _member(member: wire.DescribedGroupMember, is_consumer: bool) -> GroupMember:
    said = _subscription(member.member_metadata) if is_consumer else None
    has = _assignment(member.member_assignment) if is_consumer else None
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=said.rack if said else None,
        topics=tuple(sorted(said.subscription)) if said else None,
        assignment=tuple(sorted(has.partitions())) if has else None,
        type=GroupType.CLASSIC,
        raw_subscription=bytes(member.member_metadata),
        raw_assignment=bytes(member.member_assignment),
    )


def _subscription(data: bytes) -> ConsumerProtocolMemberMetadata | None:
    """Return what a consumer wants; None before the members have agreed, or if it makes no sense.

    Any client may have written it.
    """
    try:
        return ConsumerProtocolMemberMetadata.decode(data) if data else None
    except KafkaProtocolError:
        return None


def _assignment(data: bytes) -> ConsumerProtocolMemberAssignment | None:
    try:
        return ConsumerProtocolMemberAssignment.decode(data)
    except KafkaProtocolError:
        return None
