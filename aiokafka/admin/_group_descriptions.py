"""Describe groups of every type: classic, consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin._items import by_coordinator
from aiokafka.admin._routing import Call, Outcomes, Router, call_of
from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation, GroupState, GroupType, operations_of
from aiokafka.coordinator.protocol import (
    ConsumerProtocol,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    GroupIdNotFound,
    KafkaError,
    KafkaProtocolError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages import groups as wire
from aiokafka.protocol.messages import share_groups as share_wire
from aiokafka.protocol.messages import streams_groups as streams_wire
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition


@dataclass(frozen=True)
class GroupListing(Value):
    """A group in a broker's response to ListGroups."""

    group_id: str
    #: UNKNOWN before Kafka 3.8.
    type: GroupType
    #: UNKNOWN before Kafka 2.6.
    state: GroupState
    #: "consumer" for consumers with the classic or the consumer protocol, "connect", "share" and
    #: others; "" for a group that has offsets and never had members.
    protocol_type: str
    #: The id of the broker that coordinates the group.
    coordinator: int


@dataclass(frozen=True)
class StreamsTasks(Value):
    """The tasks of a member of a streams group: partitions by subtopology."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class GroupMember(Value):
    """A member of a group. A field is None if the protocol of the group or the version of the
    broker does not have it, or if the member has not set it."""

    member_id: str
    #: The `group_instance_id` of a static member (KIP-345).
    instance_id: str | None
    client_id: str
    #: The address from which the member connects.
    host: str
    rack: str | None = None
    #: The member epoch, in the consumer, share and streams protocols.
    epoch: int | None = None
    #: The subscribed topics.
    topics: tuple[str, ...] | None = None
    #: The pattern to which a member with the consumer protocol is subscribed (KIP-848).
    regex: str | None = None
    #: The current assignment.
    assignment: tuple[TopicPartition, ...] | None = None
    #: The target assignment: the partitions that the member has after the rebalance; None except in
    #: the consumer protocol.
    target: tuple[TopicPartition, ...] | None = None
    #: The protocol that the member uses. In consumer and streams groups it may be CLASSIC.
    type: GroupType = GroupType.UNKNOWN
    #: The current assignment in a streams group (KIP-1071).
    tasks: StreamsTasks | None = None
    #: The target assignment in a streams group.
    target_tasks: StreamsTasks | None = None
    #: The encoded metadata of a member of a classic group; `topics` has the decoded topics.
    raw_subscription: bytes = field(default=b"", repr=False)
    #: The encoded assignment in a classic group; `assignment` has the decoded partitions.
    raw_assignment: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class GroupDescription(Value):
    """A group and its members."""

    group_id: str
    type: GroupType
    state: GroupState
    #: "consumer", "share", "streams", "connect" and others; "" for a group that never had members.
    protocol_type: str
    #: The assignor that the members have agreed on, or that the broker uses.
    assignor: str
    #: The id of the broker that coordinates the group.
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    #: The group epoch, which grows when members or subscriptions change; None for a classic group.
    epoch: int | None = None
    #: The group epoch for which the target assignment was computed; None for a classic group.
    assignment_epoch: int | None = None
    #: The epoch of the topology of a streams group.
    topology_epoch: int | None = None
    #: The operations that the user may do with the group; None unless requested.
    authorized_operations: frozenset[AclOperation] | None = None


# -- Groups whose members use the classic protocol

_FIRST_WITH_OPERATIONS = 3


async def describe_classic(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> Outcomes[str, GroupDescription]:
    """Describe classic groups. A group of another type has GroupIdNotFound as its outcome."""

    def build(version: int) -> wire.DescribeGroupsRequest:
        request = wire.DescribeGroupsRequest(groups=group_ids)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_authorized_operations = with_operations
        return request

    response = await router.send(node_id, Call(wire.DescribeGroupsRequest, build), deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if group.error_code:
        return _error_in(group)
    state = GroupState.of(group.group_state)
    if state is GroupState.DEAD:
        # Brokers before Kafka 4.0 return "Dead" if the group does not exist, or is not classic.
        return GroupIdNotFound(f"group {group.group_id!r} does not exist")
    is_consumer = group.protocol_type == ConsumerProtocol.PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CLASSIC,
        state=state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=node_id,
        members=tuple(_classic_member(member, is_consumer) for member in group.members),
        authorized_operations=operations_of(group.authorized_operations),
    )


def _error_in(group: Any) -> KafkaError:
    reason = group.error_message or "cannot be described"
    return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")


def _classic_member(member: wire.DescribedGroupMember, is_consumer: bool) -> GroupMember:
    metadata = _metadata(member.member_metadata) if is_consumer else None
    assignment = _assignment(member.member_assignment) if is_consumer else None
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=metadata.rack if metadata else None,
        topics=tuple(sorted(metadata.subscription)) if metadata else None,
        assignment=tuple(sorted(assignment.partitions())) if assignment else None,
        type=GroupType.CLASSIC,
        raw_subscription=bytes(member.member_metadata),
        raw_assignment=bytes(member.member_assignment),
    )


def _metadata(data: bytes) -> ConsumerProtocolMemberMetadata | None:
    """Return the decoded metadata of a consumer.

    Returns None for empty metadata, which members have until they agree on a protocol, and for
    malformed metadata, because brokers do not check it.
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


# -- Consumer, share and streams groups, whose brokers assign the partitions


@dataclass(frozen=True)
class AssignedGroups:
    """The request that describes one type of group, and functions that read its response."""

    kind: GroupType
    request: type[Request[Any]]
    """The class of the request, with fields `group_ids` and `include_authorized_operations`."""
    member: Callable[[Any], GroupMember]
    """Converts a member of the response."""
    assignor: Callable[[Any], str] = lambda group: str(group.assignor_name)
    """Returns the assignor of a group in the response."""
    topology_epoch: Callable[[Any], int | None] = lambda group: None
    """Returns the epoch of the topology of a streams group in the response."""

    async def describe(
        self,
        router: Router,
        node_id: int,
        group_ids: list[str],
        with_operations: bool,
        deadline: float,
    ) -> Outcomes[str, GroupDescription]:
        """Describe groups of this type. A group of another type has GroupIdNotFound as its
        outcome."""
        request = self.request(group_ids=group_ids, include_authorized_operations=with_operations)
        response = await router.send(node_id, call_of(request), deadline)
        return {group.group_id: self._described(group, node_id) for group in response.groups}

    def _described(self, group: Any, node_id: int) -> GroupDescription | KafkaError:
        if group.error_code:
            return _error_in(group)
        return GroupDescription(
            group_id=group.group_id,
            type=self.kind,
            state=GroupState.of(group.group_state),
            protocol_type=self.kind.name.lower(),
            assignor=self.assignor(group),
            coordinator=node_id,
            members=tuple(self.member(member) for member in group.members),
            epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            topology_epoch=self.topology_epoch(group),
            authorized_operations=operations_of(group.authorized_operations),
        )


# -- Consumer groups (KIP-848)

_CLASSIC_MEMBER = 0


def _consumer_member(member: wire.DescribedConsumerGroupMember) -> GroupMember:
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


def _flat(
    assignment: wire.Assignment | share_wire.DescribedAssignment,
) -> tuple[TopicPartition, ...]:
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
    member=_consumer_member,
)


# -- Share groups (KIP-932)


def _share_member(member: share_wire.Member) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        epoch=member.member_epoch,
        topics=tuple(sorted(member.subscribed_topic_names)),
        assignment=_flat(member.assignment),
        type=GroupType.SHARE,
    )


share_groups = AssignedGroups(
    kind=GroupType.SHARE,
    request=share_wire.ShareGroupDescribeRequest,
    member=_share_member,
)


# -- Streams groups (KIP-1071)


def _streams_member(member: streams_wire.Member) -> GroupMember:
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


def _tasks(assignment: streams_wire.Assignment) -> StreamsTasks:
    return StreamsTasks(
        active=_by_subtopology(assignment.active_tasks),
        standby=_by_subtopology(assignment.standby_tasks),
        warmup=_by_subtopology(assignment.warmup_tasks),
    )


def _by_subtopology(tasks: Iterable[streams_wire.TaskIds]) -> dict[str, tuple[int, ...]]:
    return {each.subtopology_id: tuple(sorted(each.partitions)) for each in tasks}


streams_groups = AssignedGroups(
    kind=GroupType.STREAMS,
    request=streams_wire.StreamsGroupDescribeRequest,
    member=_streams_member,
    assignor=lambda group: "",
    topology_epoch=lambda group: group.topology.epoch if group.topology else None,
)


# -- Groups of any type

Describe = Callable[
    [Router, int, list[str], bool, float], Awaitable[Outcomes[str, GroupDescription]]
]

# Requests are sent in this order until all groups are found. Classic and consumer groups come
# first, because most groups are of these types.
_TYPES: tuple[Describe, ...] = (
    describe_classic,
    consumer_groups.describe,
    share_groups.describe,
    streams_groups.describe,
)
_OF_ANOTHER_TYPE = (GroupIdNotFound, UnsupportedVersionError)


async def describe_groups(
    router: Router, group_ids: Iterable[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription]:
    """Describe groups of any type. The error of a group that does not exist is GroupIdNotFound.

    Raises the same errors as `by_coordinator`.
    """

    async def send(node_id: int, part: list[str]) -> Outcomes[str, GroupDescription]:
        found: dict[str, GroupDescription | KafkaError] = {}
        left = part
        for describe in _TYPES:
            try:
                found |= await describe(router, node_id, left, with_operations, deadline)
            except UnsupportedVersionError:
                continue  # the broker has no groups of this type
            left = [g for g in left if isinstance(found.get(g), _OF_ANOTHER_TYPE)]
            if not left:
                break
        return found | {g: GroupIdNotFound(f"group {g!r} does not exist") for g in left}

    return await by_coordinator(router, group_ids, router.in_half(send, deadline), deadline)
