"""Sticky assignments in two rebalances, which do not interrupt partitions that stay (KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors._assignment import (
    GENERATION,
    balance_members,
    claims_of,
    without_moving,
)
from aiokafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    Members,
    build,
    either,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["CooperativeStickyAssignor"]


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """Assigns as `StickyPartitionAssignor` does, by racks too, without revoking partitions that a
    member keeps.

    The first rebalance assigns a partition with a new owner to no member, so that its previous
    owner revokes the partition. A second rebalance follows at once, and assigns the partition to
    the new owner. All members of a group have to support this assignor. The encoding is that of
    Java's CooperativeStickyAssignor.

    Owns: the generation of this member's last assignment, for the user data. `GroupAssignors` adds
    the owned partitions to the metadata.
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
        owned, shares = balance_members(cluster, members, claims)
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
        """Do nothing: `GroupAssignors` has the assignment."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Keep the generation of the last assignment."""
        self._generation = generation
