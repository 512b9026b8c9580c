"""Even assignments that change as little as possible between rebalances (KIP-54)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors._assignment import Claim, balance_members
from aiokafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    Members,
    build,
    either,
)
from aiokafka.coordinator.assignors.sticky.partition_movements import PartitionMovements
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
    read_partitions,
    write_partitions,
)
from aiokafka.errors import KafkaProtocolError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["StickyPartitionAssignor"]

_GENERATION = struct.Struct(">i")


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Assigns evenly, and keeps as many partitions as possible with their owners.

    All members revoke all partitions during a rebalance, but most partitions return to their
    previous owners, whose local state stays valid. The encoding is that of Java's StickyAssignor,
    so that both clients may be in one group.

    Members with a `client_rack` get partitions with a replica in their rack if possible (KIP-881).
    An even assignment takes precedence over racks, and racks over previous owners, as in Java.

    Owns: the last assignment of this member and its generation, for the user data.
    """

    name = "sticky"
    version = 0

    _assignment: Sequence[TopicPartition] = ()
    _generation = -1
    _latest_partition_movements = PartitionMovements()
    """The movements of the last call of `assign()` on any instance. Tests of programs read this."""

    @either
    def assign(
        self, cluster: ClusterMetadata, members: Members
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        claims = {member: _claim(metadata) for member, metadata in members.items()}
        owned, shares = balance_members(cluster, members, claims)
        type(self)._latest_partition_movements = PartitionMovements(owned, shares)
        return build(self.version, shares)

    @either
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return self._metadata(topics, self._assignment, self._generation)

    @classmethod
    def _metadata(
        cls, topics: Iterable[str], partitions: Sequence[TopicPartition], generation: int = -1
    ) -> ConsumerProtocolMemberMetadata:
        """Return the metadata of a member that owned `partitions` in this generation."""
        user_data = b""
        if partitions:
            grouped = build(0, {"": partitions})[""].assignment
            user_data = write_partitions(grouped) + _GENERATION.pack(generation)
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), user_data)

    @either
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        self._assignment = assignment.partitions()

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Keep the generation of the last assignment."""
        self._generation = generation


def _claim(metadata: ConsumerProtocolMemberMetadata) -> Claim:
    """Return the claim in the user data; an empty claim if it is missing or malformed."""
    if not metadata.user_data:
        return Claim(-1, ())
    try:
        partitions, rest = read_partitions(metadata.user_data)
    except KafkaProtocolError:
        return Claim(-1, ())
    # The first version of this user data had no generation.
    generation = _GENERATION.unpack_from(rest)[0] if len(rest) >= 4 else -1
    return Claim(generation, [TopicPartition(t, n) for t, numbers in partitions for n in numbers])
