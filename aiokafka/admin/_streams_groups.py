"""Describing groups of Kafka Streams instances that the broker assigns (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin._group_values import GroupDescription, GroupMember, StreamsTasks
from aiokafka.admin._routing import Call, Router
from aiokafka.admin.enums import GroupState, GroupType, operations_of
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages import streams_group_describe as wire

__all__ = ["describe_streams"]


async def describe_streams(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Return those of the groups that are streams groups; the others are not found."""

    def build(version: int) -> wire.StreamsGroupDescribeRequest:
        return wire.StreamsGroupDescribeRequest(
            group_ids=group_ids, include_authorized_operations=with_operations
        )

    response = await router.send(node_id, Call(wire.StreamsGroupDescribeRequest, build), deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code:
        reason = group.error_message or "cannot be described"
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.STREAMS,
        state=GroupState.of(group.group_state),
        protocol_type="streams",
        assignor="",
        coordinator=node_id,
        members=tuple(_member(member) for member in group.members),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology_epoch=group.topology.epoch if group.topology else None,
        authorized_operations=operations_of(group.authorized_operations),
    )


def _member(member: wire.Member) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        epoch=member.member_epoch,
        type=GroupType.CLASSIC if member.is_classic else GroupType.STREAMS,
        tasks=_tasks(member.assignment),
        target_tasks=_tasks(member.target_assignment),
    )


def _tasks(assignment: wire.Assignment) -> StreamsTasks:
    return StreamsTasks(
        active=_by_subtopology(assignment.active_tasks),
        standby=_by_subtopology(assignment.standby_tasks),
        warmup=_by_subtopology(assignment.warmup_tasks),
    )


def _by_subtopology(tasks: Iterable[wire.TaskIds]) -> dict[str, tuple[int, ...]]:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in tasks}
