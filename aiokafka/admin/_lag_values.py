"""What calls about the lag of groups return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.admin._values import Value
from aiokafka.admin.enums import GroupState, GroupType
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

__all__ = ["GroupLag", "PartitionLag", "PartitionOwner"]


@dataclass(frozen=True)
class PartitionOwner(Value):
    """The member of a group that a partition is assigned to."""

    member_id: str
    #: The name of a static member.
    instance_id: str | None
    client_id: str
    #: Where it connects from.
    host: str


@dataclass(frozen=True)
class PartitionLag(Value):
    """How far a group is behind in a partition."""

    #: What the group has committed: the offset of the next record it will read; of a share group
    #: the first one that is not acknowledged by all. None without one.
    committed: int | None
    #: The first offset of the partition. None if it could not be found out: see `error`.
    start_offset: int | None
    #: The offset that the next record gets. None if it could not be found out.
    end_offset: int | None
    #: The end for a `read_committed` consumer: before the first open transaction.
    stable_offset: int | None
    #: Offsets from the committed one to the end. More than the number of records in a compacted
    #: topic, and where there are transactions. None without a committed offset or an end. Of a
    #: share group the records that are yet to be delivered, where the broker tells (Kafka 4.2).
    lag: int | None
    #: The same to `stable_offset`: what is left for a `read_committed` consumer.
    stable_lag: int | None
    #: Offsets that were deleted before the group has read them; part of `lag`.
    lost: int | None
    #: The timestamp of the first unread record, in milliseconds since 1970. None if there is none,
    #: if the group has nothing committed, or if it was not asked for or could not be read.
    unread_since: int | None
    #: Milliseconds from `unread_since` to now; 0 if nothing is unread, None if it is not known.
    time_lag_ms: int | None
    #: The member that has the partition; None if no member has.
    owner: PartitionOwner | None
    #: Why the offsets of the partition are not known, such as a deleted topic.
    error: KafkaError | None = None


@dataclass(frozen=True)
class GroupLag(Value):
    """How far a group is behind."""

    group_id: str
    type: GroupType
    state: GroupState
    #: The partitions that the group has offsets for, and those that its members are assigned.
    partitions: Mapping[TopicPartition, PartitionLag]
    #: The sum over partitions where it is known.
    lag: int
    #: The greatest of all partitions in milliseconds; None if it is known for none.
    time_lag_ms: int | None
