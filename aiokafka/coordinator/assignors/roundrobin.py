"""Assign the partitions of all topics to the members in turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    Members,
    build,
    in_order,
    partitions_by_topic,
    subscribers_by_topic,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")

__all__ = ["RoundRobinPartitionAssignor"]


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Assigns the partitions of all topics to the members in turn.

    With equal subscriptions the members differ by at most one partition. A member that does not
    subscribe to the topic of a partition is skipped.
    """

    name = "roundrobin"
    version = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Members
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        order = in_order(members)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in order}
        subscribers = subscribers_by_topic(members)
        turn = 0
        for topic, numbers in partitions_by_topic(cluster, subscribers).items():
            takers = set(subscribers[topic])
            for number in numbers:
                while order[turn] not in takers:
                    turn = (turn + 1) % len(order)
                shares[order[turn]].append(TopicPartition(topic, number))
                turn = (turn + 1) % len(order)
        return build(cls.version, shares)

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass
