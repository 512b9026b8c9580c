"""Assign a range of each topic's partitions to each member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.coordinator.assignors._assignment import (
    Members,
    build,
    in_order,
    partitions_by_topic,
    subscribers_by_topic,
)
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")

__all__ = ["RangePartitionAssignor"]


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns to each subscriber of a topic a range of the topic's partitions. If the partitions
    cannot be divided evenly, the first members get one more.

    If topics have the same subscribers and the same number of partitions, equal partition numbers
    go to the same member, so such topics can be joined. With many small topics the first members
    get most of the load.
    """

    name = "range"
    version = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Members
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribers = subscribers_by_topic(members)
        place = {member: number for number, member in enumerate(in_order(members))}
        for topic, numbers in partitions_by_topic(cluster, subscribers).items():
            takers = sorted(subscribers[topic], key=place.__getitem__)
            size, extra = divmod(len(numbers), len(takers))
            start = 0
            for index, member in enumerate(takers):
                end = start + size + (index < extra)
                shares[member] += [TopicPartition(topic, n) for n in numbers[start:end]]
                start = end
        return build(cls.version, shares)

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass
