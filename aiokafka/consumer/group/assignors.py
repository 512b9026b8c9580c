"""Calls the assignors of one consumer: aiokafka's, kafka-python's, or a program's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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

    `is_cooperative`: whether the member keeps its partitions during a rebalance (KIP-429). True
    only if all assignors are cooperative. With a mixed list the member revokes all partitions, so
    that a group can migrate from eager to cooperative assignors.

    Owns: the last assignment and its generation. A cooperative member reports both in the metadata
    of each assignor. The assignors themselves cannot do that: only the assignor that the group
    chose gets the assignment. If the group chose another assignor for the next generation, a
    leader would not know the owned partitions, and would assign them to other members.
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
        """Return the name and encoded subscription of each assignor for a JoinGroup. Include a
        `generation` other than -1 in the subscription, so that it differs from earlier ones: the
        coordinator then starts a rebalance."""
        if not self.is_cooperative:
            # An eager member has revoked all partitions. If it reported some as owned, a
            # cooperative leader would wait in vain for their revocation.
            self.forget()
        names = frozenset(topics)  # as in aiokafka 0.14: assignors of programs use set operations
        found = [(each.name, self._with_owned(each.metadata(names))) for each in self._assignors]
        return [
            (name, _encoded(self._with_rack(_with_generation(generation, metadata))))
            for name, metadata in found
        ]

    def _with_owned(self, metadata: Any) -> Any:
        """Return a copy of `metadata` with the owned partitions and their generation. Return
        `metadata` itself if the member is eager, or `metadata` is of another class (an assignor of
        a program may return any class)."""
        if not self.is_cooperative or not isinstance(metadata, ConsumerProtocolMemberMetadata):
            return metadata
        copied = _copied(metadata)
        copied.version = max(copied.version, _FIRST_VERSION_WITH_GENERATION)
        copied.owned_partitions = [(topic, list(numbers)) for topic, numbers in self._assigned]
        copied.generation = self._generation
        return copied

    def _with_rack(self, metadata: Any) -> Any:
        """Return a copy of `metadata` with the rack if `client_rack` is set, else `metadata`:
        Java's assignors prefer partitions with a replica in the member's rack (KIP-881)."""
        if self._rack is None or not isinstance(metadata, ConsumerProtocolMemberMetadata):
            return metadata
        copied = _copied(metadata)
        copied.version = max(copied.version, _FIRST_VERSION_WITH_RACK)
        copied.rack = self._rack
        return copied

    def assign(
        self,
        protocol: str,
        cluster: ClusterMetadata,
        members: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> dict[str, bytes]:
        """Return the encoded assignment of each member for SyncGroup. Raises the exceptions of the
        assignor, and InconsistentGroupProtocolError if no assignor has the name `protocol`."""
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
        """Return this member's decoded assignment, and pass it to the assignor with the name
        `protocol`. A cooperative member reports the assigned partitions as owned in the next
        JoinGroup. Raises InconsistentGroupProtocolError without such an assignor,
        KafkaProtocolError if `data` is malformed."""
        assignor = self._named(protocol)
        assignment = ConsumerProtocolMemberAssignment.decode(data)
        if self.is_cooperative:
            self._assigned, self._generation = assignment.assignment, generation
        _notify(assignor, generation, assignment)
        return assignment

    def forget(self) -> None:
        """Report no owned partitions in the next JoinGroup, because the member no longer has
        any."""
        self._assigned, self._generation = (), -1
        for assignor in self._assignors:
            if getattr(assignor, "supports_cooperative", False):
                _notify(assignor, -1, ConsumerProtocolMemberAssignment(0, []))

    def _named(self, protocol: str) -> Any:
        for assignor in self._assignors:
            if assignor.name == protocol:
                return assignor
        raise InconsistentGroupProtocolError(
            f"the group chose the assignor {protocol!r}, which partition_assignment_strategy lacks"
        )


def subscriptions_of(
    members: Mapping[str, bytes], instances: Mapping[str, str]
) -> tuple[dict[str, ConsumerProtocolMemberMetadata], dict[str, KafkaProtocolError]]:
    """Return the subscription of each member, and the error of each malformed subscription. A
    malformed subscription is returned without topics. `instances`: the instance ids of static
    members."""
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
    """Return the assignment without partitions that are to move from one member to another: their
    present owners must first revoke them, and rejoin (KIP-429). The assignment of the next
    generation includes these partitions.

    CooperativeStickyAssignor omits such partitions itself; an assignor of a program may not.
    """
    # Only the leader of a group with a cooperative assignor needs this module.
    from aiokafka.coordinator.assignors._assignment import claims_of, settle, without_moving

    claims = claims_of(members)
    known = {
        member: share.partitions()
        for member, share in shares.items()
        if isinstance(share, ConsumerProtocolMemberAssignment)
    }
    found = dict(shares)
    for member, kept in without_moving(known, claims, settle(claims)).items():
        if len(kept) < len(known[member]):
            found[member] = _copied(shares[member])
            found[member].assignment = _by_topic(kept)
    return found


def assignment_of(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the encoded assignment of these partitions."""
    return ConsumerProtocolMemberAssignment(0, _by_topic(sorted(partitions))).encode()


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def partitions_of(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an encoded assignment."""
    return frozenset(ConsumerProtocolMemberAssignment.decode(data).partitions())


class _Member(NamedTuple):
    """A member in the form that assignors of kafka-python expect."""

    member_id: str
    metadata: ConsumerProtocolMemberMetadata
    group_instance_id: str | None


def _listed(members: Mapping[str, ConsumerProtocolMemberMetadata]) -> list[_Member]:
    return [_Member(name, found, found.group_instance_id) for name, found in members.items()]


def _notify(assignor: Any, generation: int, assignment: ConsumerProtocolMemberAssignment) -> None:
    """Pass this member's assignment to an assignor. An assignor of the application need not have
    the method `on_generation_assignment`."""
    on_generation = getattr(assignor, "on_generation_assignment", None)
    if on_generation is not None:
        on_generation(generation)
    if _is_of_kafka_python(assignor):
        assignor.on_assignment(assignment, generation)
    else:
        assignor.on_assignment(assignment)


def _is_of_kafka_python(assignor: Any) -> bool:
    """Return whether `assign` takes a list of members, and `on_assignment` the generation, as in
    kafka-python 3."""
    return hasattr(assignor, "supported_protocols")


def _instance(strategy: Any) -> Any:
    """Return an instance of an assignor class. Return `strategy` itself if it is an instance, or a
    class with class methods only (its state is on the class), or cannot be instantiated."""
    if not isinstance(strategy, type) or _is_of_class_methods(strategy):
        return strategy
    try:
        return strategy()
    except TypeError:
        return strategy  # an abstract class, or a constructor with required arguments


def _is_of_class_methods(strategy: type[Any]) -> bool:
    methods = [inspect.getattr_static(strategy, name, None) for name in _METHODS]
    found = [method for method in methods if method is not None]
    of_class = (classmethod, staticmethod)
    return any(isinstance(method, of_class) for method in found) and all(
        isinstance(method, (*of_class, Either)) for method in found
    )


def _with_generation(generation: int, metadata: Any) -> Any:
    """Return a copy of `metadata` whose generation is at least `generation`. Return `metadata`
    itself if `generation` is -1, or if `metadata` is of another class."""
    if generation < 0 or not isinstance(metadata, ConsumerProtocolMemberMetadata):
        return metadata
    copied = _copied(metadata)
    copied.version = max(copied.version, _FIRST_VERSION_WITH_GENERATION)
    copied.generation = max(copied.generation, generation)
    return copied


def _copied(value: Any) -> Any:
    import copy  # not at import: most members copy nothing

    return copy.copy(value)


def _encoded(value: Any) -> bytes:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value.encode()
