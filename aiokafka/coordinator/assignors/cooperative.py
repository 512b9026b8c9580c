"""Sticky assignments, reached in two steps so that reading never stops for what stays (KIP-429)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors._balance import Shares, balance
from aiokafka.coordinator.assignors._common import (
    Members,
    build,
    partitions_by_topic,
    subscribers_by_topic,
)
from aiokafka.coordinator.assignors._either import either
from aiokafka.coordinator.assignors._ownership import Claim, settle
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["CooperativeStickyAssignor"]

_GENERATION = struct.Struct(">i")


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
        claims = {member: _claim(metadata) for member, metadata in members.items()}
        owned = settle(claims)
        subscribers = subscribers_by_topic(members)
        partitions = partitions_by_topic(cluster, subscribers)
        shares = balance(subscribers, partitions, owned)
        return build(self.version, _without_moving(shares, claims, owned))

    @either
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(
            self.version,
            sorted(topics),
            _GENERATION.pack(self._generation),
            generation=self._generation,
        )

    @either
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: the group knows it."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Take note of the generation in which the last assignment was made."""
        self._generation = generation


def _claim(metadata: ConsumerProtocolMemberMetadata) -> Claim:
    generation = metadata.generation
    if generation < 0 and metadata.user_data and len(metadata.user_data) >= 4:
        # Before version 2 the generation went into the user data.
        generation = _GENERATION.unpack_from(metadata.user_data)[0]
    return Claim(generation, metadata.owned())


def _without_moving(shares: Shares, claims: dict[str, Claim], owned: Shares) -> Shares:
    """Leave out partitions that other members claim: the next rebalance can assign them.

    Claims that did not count are included, because their members may be reading the partition. They
    do not entitle to it: the member whose claim counted is reading it, too.
    """
    taken = set().union(*(claim.partitions for claim in claims.values()))
    mine = {member: set(partitions) for member, partitions in owned.items()}
    return {
        member: [tp for tp in share if tp in mine[member] or tp not in taken]
        for member, share in shares.items()
    }
