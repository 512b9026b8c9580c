"""Descriptions of groups of every type: classic, consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin._items import by_coordinator
from aiokafka.admin._routing import Call, Router
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
from aiokafka.protocol.messages import consumer_group_describe as consumer_wire
from aiokafka.protocol.messages import groups as classic_wire
from aiokafka.protocol.messages import share_group_describe as share_wire
from aiokafka.protocol.messages import streams_group_describe as streams_wire
from aiokafka.protocol.schema import Request
from aiokafka.structs import TopicPartition


@dataclass(frozen=True)
class GroupListing(Value):
    """A group, as the list of a broker has it."""

    group_id: str
    #: UNKNOWN before Kafka 3.8.
    type: GroupType
    #: UNKNOWN before Kafka 2.6.
    state: GroupState
    #: "consumer" for consumers of either protocol, "connect" and others by what they are, "" for a
    #: group that only has offsets, without members ever.
    protocol_type: str
    #: The id of the broker that coordinates it.
    coordinator: int


@dataclass(frozen=True)
class StreamsTasks(Value):
    """Tasks of a member of a streams group: partitions by subtopology."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class GroupMember(Value):
    """A member of a group. None stands for what its protocol lacks, or the broker does not tell."""

    member_id: str
    #: The name of a static member (KIP-345).
    instance_id: str | None
    client_id: str
    #: Where it connects from.
    host: str
    rack: str | None = None
    #: The epoch that it has reached; of the consumer, share and streams protocols.
    epoch: int | None = None
    #: The topics that it names.
    topics: tuple[str, ...] | None = None
    #: Its pattern of topics; of the consumer protocol (KIP-848).
    regex: str | None = None
    #: What it is assigned.
    assignment: tuple[TopicPartition, ...] | None = None
    #: What it is to be assigned when the rebalance is over; of the consumer protocol.
    target: tuple[TopicPartition, ...] | None = None
    #: CLASSIC for a member that speaks the classic protocol in a group of the consumer protocol.
    type: GroupType = GroupType.UNKNOWN
    #: What it is assigned in a streams group (KIP-1071).
    tasks: StreamsTasks | None = None
    #: What it is to be assigned in a streams group.
    target_tasks: StreamsTasks | None = None
    #: What it told a classic group, as it was sent; `topics` has it if it is a consumer's.
    raw_subscription: bytes = field(default=b"", repr=False)
    #: What a classic group assigned to it, as it was sent; `assignment` has it if it is a consumer.
    raw_assignment: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class GroupDescription(Value):
    """A group and its members."""

    group_id: str
    type: GroupType
    state: GroupState
    #: "consumer", "share", "streams", "connect" and others; "" without members ever.
    protocol_type: str
    #: The assignor that the members have agreed on, or that the broker uses.
    assignor: str
    #: The id of the broker that coordinates it.
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    #: Counts changes of members and subscriptions; None for a classic group.
    epoch: int | None = None
    #: The `epoch` that the target assignment was made for; None for a classic group.
    assignment_epoch: int | None = None
    #: The epoch of the topology; of a streams group.
    topology_epoch: int | None = None
    #: What the user may do with it; None unless it was asked for.
    authorized_operations: frozenset[AclOperation] | None = None


# -- Consumer, share and streams groups have one form: their coordinator assigns


@dataclass(frozen=True)
class AssignedGroups:
    """One type of group: how it is asked for, and how its response is read."""

    kind: GroupType
    request: type[Request[Any]]
    """Takes `group_ids` and `include_authorized_operations`."""
    member: Callable[[Any], GroupMember]
    """Returns the value of a member in the response."""
    assignor: Callable[[Any], str] = lambda group: str(group.assignor_name)
    """Returns the assignor of a group in the response."""
    topology_epoch: Callable[[Any], int | None] = lambda group: None
    """Returns the epoch of a group's topology; only streams groups have one."""

    async def describe(
        self,
        router: Router,
        node_id: int,
        group_ids: list[str],
        with_operations: bool,
        deadline: float,
    ) -> dict[str, GroupDescription | KafkaError]:
        """Return those of the groups that are of this type; the others are not found."""

        def build(version: int) -> Request[Any]:
            request: Request[Any] = self.request(
                group_ids=group_ids, include_authorized_operations=with_operations
            )
            return request

        response = await router.send(node_id, Call(self.request, build), deadline)
        return {group.group_id: self._described(group, node_id) for group in response.groups}

    def _described(self, group: Any, node_id: int) -> GroupDescription | KafkaError:
        if group.error_code:
            reason = group.error_message or "cannot be described"
            return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
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


# -- Classic groups

_FIRST_WITH_OPERATIONS = 3


async def describe_classic(
    router: Router, node_id: int, group_ids: list[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Return those of the groups that are classic; the others are not found."""

    def build(version: int) -> classic_wire.DescribeGroupsRequest:
        request = classic_wire.DescribeGroupsRequest(groups=group_ids)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_authorized_operations = with_operations
        return request

    response = await router.send(node_id, Call(classic_wire.DescribeGroupsRequest, build), deadline)
    return {group.group_id: _described(group, node_id) for group in response.groups}


def _described(group: classic_wire.DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
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
        members=tuple(_classic_member(member, is_consumer) for member in group.members),
        authorized_operations=operations_of(group.authorized_operations),
    )


def _classic_member(member: classic_wire.DescribedGroupMember, is_consumer: bool) -> GroupMember:
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


# -- Consumer groups (KIP-848)

_CLASSIC_MEMBER = 0


def _consumer_member(member: consumer_wire.Member) -> GroupMember:
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


def _flat(assignment: consumer_wire.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


consumer_groups = AssignedGroups(
    kind=GroupType.CONSUMER,
    request=consumer_wire.ConsumerGroupDescribeRequest,
    member=_consumer_member,
)


# -- Share groups (KIP-932)


def _share_member(member: share_wire.Member) -> GroupMember:
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

Answers = Mapping[str, GroupDescription | KafkaError]
Describe = Callable[[Router, int, list[str], bool, float], Awaitable[Answers]]

# Nearly all groups are of the first types. A group that is not of a type is not found there.
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
    """Return a description of each group; GroupIdNotFound is the error of one that is not there."""

    async def send(node_id: int, part: list[str]) -> Answers:
        found: dict[str, GroupDescription | KafkaError] = {}
        left = part
        for describe in _TYPES:
            try:
                answers = await describe(router, node_id, left, with_operations, deadline)
            except UnsupportedVersionError:
                continue  # This broker has no such groups.
            found |= answers
            left = [g for g in left if isinstance(found.get(g), _OF_ANOTHER_TYPE)]
            if not left:
                break
        return found | {g: GroupIdNotFound(f"group {g!r} does not exist") for g in left}

    return await by_coordinator(router, group_ids, router.in_half(send, deadline), deadline)
