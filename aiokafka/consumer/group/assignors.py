"""The assignors of one consumer: its own, Java's, or whatever an application brings along."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.coordinator.assignors._assignment import claims_of, settle, without_moving
from aiokafka.coordinator.assignors.abstract import Either
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
    PartitionsByTopic,
)
from aiokafka.errors import InconsistentGroupProtocolError, KafkaProtocolError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["GroupAssignors"]

_FIRST_VERSION_WITH_GENERATION = 2
_FIRST_VERSION_WITH_RACK = 3
_METHODS = ("assign", "metadata", "on_assignment", "on_generation_assignment")


class GroupAssignors:
    """The assignors in the order of preference, one instance of each.

    `is_cooperative`: whether partitions are kept during a rebalance (KIP-429). Only if every
    assignor supports it: with a list of both kinds a group can move from one to the other.

    Owns: the last assignment and its generation, which a cooperative member tells with the name of
    each assignor. Only the one that the group has chosen hears of it, and the next choice may be
    another: its leader would give away what this member still reads.
    """

    def __init__(self, strategies: Iterable[Any], rack: str | None = None) -> None:
        self._rack = rack or None
        made = [_instance(strategy) for strategy in strategies]
        self._assignors = made or [RoundRobinPartitionAssignor()]
        self.is_cooperative = all(
            getattr(assignor, "supports_cooperative", False) for assignor in self._assignors
        )
        self._assigned: PartitionsByTopic = ()
        self._generation = -1

    def protocols(self, topics: Iterable[str], generation: int = -1) -> list[tuple[str, bytes]]:
        """Return name and subscription of each, for one JoinGroup request; with the member's
        `generation`, if that is not -1, so that no join before said the same."""
        if not self.is_cooperative:
            # An eager member has given up everything. What it claimed nevertheless a cooperative
            # assignor would keep for it, and wait in vain for the join that follows a revocation.
            self.forget()
        names = frozenset(topics)  # as in aiokafka: assignors of programs compute with it
        told = [(each.name, self._with_claims(each.metadata(names))) for each in self._assignors]
        return [
            (name, _encoded(self._with_rack(_of(generation, metadata)))) for name, metadata in told
        ]

    def _with_claims(self, metadata: Any) -> Any:
        """Tell the leader what we have, if this member keeps it while it joins."""
        if not self.is_cooperative or not isinstance(metadata, ConsumerProtocolMemberMetadata):
            return metadata
        told = copy.copy(metadata)
        told.version = max(told.version, _FIRST_VERSION_WITH_GENERATION)
        told.owned_partitions = [(topic, list(numbers)) for topic, numbers in self._assigned]
        told.generation = self._generation
        return told

    def _with_rack(self, metadata: Any) -> Any:
        """Tell the leader where we are: Java's assignors give members partitions with a replica in
        their rack (KIP-881)."""
        if self._rack is None or not isinstance(metadata, ConsumerProtocolMemberMetadata):
            return metadata
        told = copy.copy(metadata)
        told.version = max(told.version, _FIRST_VERSION_WITH_RACK)
        told.rack = self._rack
        return told

    def share_out(
        self,
        protocol: str,
        cluster: ClusterMetadata,
        members: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> dict[str, bytes]:
        """Return each member's assignment, encoded for SyncGroup. Raises whatever the assignor
        does."""
        assignor = self._named(protocol)
        if _is_of_kafka_python(assignor):
            shares = assignor.assign(cluster, _listed(members))
        else:
            shares = assignor.assign(cluster, members)
        if self.is_cooperative:
            shares = _in_two_steps(shares, members)
        return {member: _encoded(share) for member, share in shares.items()}

    def accept(
        self, protocol: str, generation: int, data: bytes
    ) -> ConsumerProtocolMemberAssignment:
        """Decode this member's assignment, and pass it to the assignor."""
        assignor = self._named(protocol)
        assignment = ConsumerProtocolMemberAssignment.decode(data)
        if self.is_cooperative:
            self._assigned, self._generation = assignment.assignment, generation
        _tell(assignor, generation, assignment)
        return assignment

    def forget(self) -> None:
        """Let the assignors claim nothing with the next join: the member has lost everything."""
        self._assigned, self._generation = (), -1
        for assignor in self._assignors:
            if getattr(assignor, "supports_cooperative", False):
                _tell(assignor, -1, ConsumerProtocolMemberAssignment(0, []))

    def _named(self, protocol: str) -> Any:
        for assignor in self._assignors:
            if assignor.name == protocol:
                return assignor
        raise InconsistentGroupProtocolError(f"the group chose {protocol!r}, which is not ours")


def subscriptions_of(
    members: Mapping[str, bytes], instances: Mapping[str, str]
) -> tuple[dict[str, ConsumerProtocolMemberMetadata], dict[str, KafkaProtocolError]]:
    """Return what the members want; `instances` are the names of static ones. One whose bytes are
    malformed wants nothing, and is returned with the error as well."""
    found: dict[str, ConsumerProtocolMemberMetadata] = {}
    malformed: dict[str, KafkaProtocolError] = {}
    for member, data in members.items():
        try:
            found[member] = ConsumerProtocolMemberMetadata.decode(data)
        except KafkaProtocolError as error:
            found[member] = ConsumerProtocolMemberMetadata(0, ())
            malformed[member] = error
    for member, instance_id in instances.items():
        found[member].group_instance_id = instance_id
    return found, malformed


def _in_two_steps(
    shares: Mapping[str, Any], members: Mapping[str, ConsumerProtocolMemberMetadata]
) -> dict[str, Any]:
    """Leave out what others claim: they are to give it up first, and join again then.

    CooperativeStickyAssignor has done so already; a program's own may not have thought of it.
    """
    claims = claims_of(members)
    known = {
        member: share.partitions()
        for member, share in shares.items()
        if isinstance(share, ConsumerProtocolMemberAssignment)
    }
    found = dict(shares)
    for member, kept in without_moving(known, claims, settle(claims)).items():
        if len(kept) < len(known[member]):
            found[member] = copy.copy(shares[member])
            found[member].assignment = _by_topic(kept)
    return found


def assignment_of(partitions: Iterable[TopicPartition]) -> bytes:
    """Return an assignment of these partitions, as a leader would write it."""
    return ConsumerProtocolMemberAssignment(0, _by_topic(sorted(partitions))).encode()


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def partitions_of(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an assignment."""
    return frozenset(ConsumerProtocolMemberAssignment.decode(data).partitions())


class _Member(NamedTuple):
    """A member as the assignors of kafka-python know it."""

    member_id: str
    metadata: ConsumerProtocolMemberMetadata
    group_instance_id: str | None


def _listed(members: Mapping[str, ConsumerProtocolMemberMetadata]) -> list[_Member]:
    return [_Member(name, found, found.group_instance_id) for name, found in members.items()]


def _tell(assignor: Any, generation: int, assignment: ConsumerProtocolMemberAssignment) -> None:
    """Tell an assignor what this member has; one of a program may not want to hear of
    generations."""
    note_generation = getattr(assignor, "on_generation_assignment", None)
    if note_generation is not None:
        note_generation(generation)
    if _is_of_kafka_python(assignor):
        assignor.on_assignment(assignment, generation)
    else:
        assignor.on_assignment(assignment)


def _is_of_kafka_python(assignor: Any) -> bool:
    """Return whether it takes a list of members, and the generation: kafka-python 3."""
    return hasattr(assignor, "supported_protocols")


def _instance(strategy: Any) -> Any:
    """Return an instance of a class, unless class methods of its own are all that it has.

    A class method that overrides one notes what it notes on the class, and calls the others there.
    """
    if not isinstance(strategy, type) or _is_of_class_methods(strategy):
        return strategy
    try:
        return strategy()
    except TypeError:
        return strategy  # an assignor that cannot be instantiated


def _is_of_class_methods(strategy: type[Any]) -> bool:
    methods = [inspect.getattr_static(strategy, name, None) for name in _METHODS]
    found = [method for method in methods if method is not None]
    of_class = (classmethod, staticmethod)
    return any(isinstance(method, of_class) for method in found) and all(
        isinstance(method, (*of_class, Either)) for method in found
    )


def _of(generation: int, metadata: Any) -> Any:
    """Return the subscription of a member of this generation; as it is if it names one, or cannot
    name any."""
    if generation < 0 or not isinstance(metadata, ConsumerProtocolMemberMetadata):
        return metadata
    told = copy.copy(metadata)
    told.version = max(told.version, _FIRST_VERSION_WITH_GENERATION)
    told.generation = max(told.generation, generation)
    return told


def _encoded(value: Any) -> bytes:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value.encode()
