"""Steps that several assignors share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

Members = Mapping[str, ConsumerProtocolMemberMetadata]


def in_order(members: Members) -> list[str]:
    """Return the members in the order of Java's client: static ones first, by the name that they
    keep when they are restarted, unlike the member id."""

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].group_instance_id
        return (True, member) if instance_id is None else (False, instance_id)

    return sorted(members, key=place)


def subscribers_by_topic(members: Members) -> dict[str, list[str]]:
    """Return the members of each topic, both in sorted order."""
    found: dict[str, list[str]] = {}
    for member in sorted(members):
        for topic in set(members[member].subscription):
            found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def partitions_by_topic(cluster: ClusterMetadata, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the sorted partitions of each topic; topics that do not exist are left out."""
    found = {}
    for topic in topics:
        numbers = cluster.partitions_for_topic(topic)
        if numbers:
            found[topic] = sorted(numbers)
    return found


def build(
    version: int, shares: Mapping[str, Iterable[TopicPartition]]
) -> dict[str, ConsumerProtocolMemberAssignment]:
    """Return the assignments for the partitions of each member."""
    result = {}
    for member, share in shares.items():
        topics: dict[str, list[int]] = {}
        for topic, number in share:
            topics.setdefault(topic, []).append(number)
        grouped = [(topic, sorted(numbers)) for topic, numbers in sorted(topics.items())]
        result[member] = ConsumerProtocolMemberAssignment(version, grouped, b"")
    return result
