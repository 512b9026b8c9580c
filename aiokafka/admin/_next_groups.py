"""Describe groups of the consumer protocol (KIP-848) in the form of classic groups."""

from __future__ import annotations

from aiokafka.admin._routing import Call
from aiokafka.admin.results import DescribedGroup, DescribedMember, DescribeGroupsResult
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import GroupIdNotFound
from aiokafka.protocol.messages import consumer_group_describe as wire

__all__ = ["describe_call", "may_be_of_next_protocol", "result_of"]

_PROTOCOL_TYPE = "consumer"
# A classic member would have sent these bytes. Version 1 also has the partitions it owns.
_METADATA_VERSION = 1


def may_be_of_next_protocol(group: DescribedGroup) -> bool:
    """Return whether a classic response leaves open that the group uses the consumer protocol.

    A classic DescribeGroups reports such a group as "Dead", and from version 6 on as not found
    (KIP-1043).
    """
    return group.error_code == GroupIdNotFound.errno or (
        group.error_code == 0 and group.state == "Dead"
    )


def describe_call(
    group_id: str, include_authorized_operations: bool
) -> Call[wire.ConsumerGroupDescribeResponse]:
    """Return the call that describes one group."""

    def build(version: int) -> wire.ConsumerGroupDescribeRequest:
        return wire.ConsumerGroupDescribeRequest(
            group_ids=[group_id], include_authorized_operations=include_authorized_operations
        )

    return Call(
        wire.ConsumerGroupDescribeRequest,
        build,
        lambda answer: [g.error_code for g in answer.groups],
    )


def result_of(response: wire.ConsumerGroupDescribeResponse) -> DescribeGroupsResult | None:
    """Convert the response to the classic form; return None if the group uses another protocol."""
    if any(group.error_code == GroupIdNotFound.errno for group in response.groups):
        return None
    groups = [_group(group) for group in response.groups]
    return DescribeGroupsResult(response.throttle_time_ms, groups)


def _group(group: wire.DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        _PROTOCOL_TYPE,
        group.assignor_name,
        [_member(member) for member in group.members],
        authorized_operations=group.authorized_operations,
    )


def _member(member: wire.Member) -> DescribedMember:
    owned = [(t.topic_name, list(t.partitions)) for t in member.assignment.topic_partitions]
    topics = sorted(member.subscribed_topic_names)
    metadata = ConsumerProtocolMemberMetadata(_METADATA_VERSION, topics, b"", owned)
    assignment = ConsumerProtocolMemberAssignment(0, owned, b"")
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        metadata.encode(),
        assignment.encode(),
        group_instance_id=member.instance_id,
    )
