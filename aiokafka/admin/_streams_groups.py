"""Describing groups of Kafka Streams instances that the broker assigns (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin._assigned_groups import AssignedGroups
from aiokafka.admin._group_values import GroupMember, StreamsTasks
from aiokafka.admin.enums import GroupType
from aiokafka.protocol.messages import streams_group_describe as wire

__all__ = ["streams_groups"]


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


streams_groups = AssignedGroups(
    kind=GroupType.STREAMS,
    request=wire.StreamsGroupDescribeRequest,
    member=_member,
    assignor=lambda group: "",
    topology_epoch=lambda group: group.topology.epoch if group.topology else None,
)
