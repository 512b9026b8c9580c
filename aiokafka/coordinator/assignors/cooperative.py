"""Sticky assignments, reached in two steps so that reading never stops for what stays (KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors._assignment import (
    GENERATION,
    Members,
    balance,
    build,
    claims_of,
    partitions_by_topic,
    settle,
    subscribers_by_topic,
    without_moving,
)
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor, either
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["CooperativeStickyAssignor"]


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """Assigns as `StickyPartitionAssignor` does, without revoking what a member keeps.

    A partition that moves is assigned to no member in the first rebalance, so that its owner can
    give it up, and to its new owner in a second rebalance that follows at once. All members of a
    group have to support it. The bytes are those of Java's CooperativeStickyAssignor.

    Owns: the generation of this member's last assignment, which goes into the user data. The
    assignment itself is told for whatever assignor, by the group.
    """

    name = "cooperative-sticky"
    version = 3
    supports_cooperative = True

    _generation = -1

    @either
    def assign(
        self, cluster: ClusterMetadata, members: Members
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        claims = claims_of(members)
        owned = settle(claims)
        subscribers = subscribers_by_topic(members)
        partitions = partitions_by_topic(cluster, subscribers)
        shares = balance(subscribers, partitions, owned)
        return build(self.version, without_moving(shares, claims, owned))

    @either
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(
            self.version,
            sorted(topics),
            GENERATION.pack(self._generation),
            generation=self._generation,
        )

    @either
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: the group knows it."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Take note of the generation in which the last assignment was made."""
        self._generation = generation
