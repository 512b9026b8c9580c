"""The assignors of one consumer: its own, Java's, or whatever an application brings along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import InconsistentGroupProtocolError

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["GroupAssignors"]


class GroupAssignors:
    """The assignors in the order of preference, one instance of each.

    `is_cooperative`: whether partitions are kept during a rebalance (KIP-429). Only if every
    assignor supports it: with a list of both kinds a group can move from one to the other.
    """

    def __init__(self, strategies: Iterable[Any]) -> None:
        made = [_instance(strategy) for strategy in strategies]
        self._assignors = made or [RoundRobinPartitionAssignor()]
        self.is_cooperative = all(
            getattr(assignor, "supports_cooperative", False) for assignor in self._assignors
        )

    def protocols(self, topics: Iterable[str]) -> list[tuple[str, bytes]]:
        """Name and subscription of each, for one JoinGroup request."""
        if not self.is_cooperative:
            # An eager member has given up everything. What it claimed nevertheless a cooperative
            # assignor would keep for it, and wait in vain for the join that follows a revocation.
            self.forget()
        names = sorted(topics)
        return [(assignor.name, _encoded(assignor.metadata(names))) for assignor in self._assignors]

    def share_out(
        self, protocol: str, cluster: ClusterMetadata, members: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """What each member gets, as the leader tells it; whatever the assignor raises."""
        subscriptions = subscriptions_of(members)
        shares = self._named(protocol).assign(cluster, subscriptions)
        return {member: _encoded(share) for member, share in shares.items()}

    def accept(
        self, protocol: str, generation: int, data: bytes
    ) -> ConsumerProtocolMemberAssignment:
        """Read what this member got, and have the assignor take note of it."""
        assignor = self._named(protocol)
        assignment = ConsumerProtocolMemberAssignment.decode(data)
        note_generation = getattr(assignor, "on_generation_assignment", None)
        if note_generation is not None:
            note_generation(generation)
        assignor.on_assignment(assignment)
        return assignment

    def forget(self) -> None:
        """The member lost everything: it must not claim to own it."""
        for assignor in self._assignors:
            if getattr(assignor, "supports_cooperative", False):
                assignor.on_generation_assignment(-1)
                assignor.on_assignment(ConsumerProtocolMemberAssignment(0, []))

    def _named(self, protocol: str) -> Any:
        for assignor in self._assignors:
            if assignor.name == protocol:
                return assignor
        raise InconsistentGroupProtocolError(f"the group chose {protocol!r}, which is not ours")


def subscriptions_of(members: Mapping[str, bytes]) -> dict[str, ConsumerProtocolMemberMetadata]:
    """What the members want. Raises KafkaProtocolError for malformed bytes."""
    return {member: ConsumerProtocolMemberMetadata.decode(data) for member, data in members.items()}


def _instance(strategy: Any) -> Any:
    if not isinstance(strategy, type):
        return strategy
    try:
        return strategy()
    except TypeError:
        return strategy  # an assignor of class methods that cannot be instantiated


def _encoded(value: Any) -> bytes:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value.encode()
