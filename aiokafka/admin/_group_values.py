"""What calls about groups return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation, GroupState, GroupType
from aiokafka.structs import TopicPartition

__all__ = ["GroupDescription", "GroupListing", "GroupMember", "StreamsTasks"]


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
