"""The base class of assignors, and the steps that they share."""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from aiokafka._typing import later
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition

__all__ = ["AbstractPartitionAssignor", "Either", "either"]


# -- Methods that can be called on an instance and on the class


F = TypeVar("F", bound=Callable[..., Any])


class Either:
    """A method that can also be called on the class, where it uses one shared instance.

    In aiokafka 0.14 all methods of assignors are class methods: a program may call them on the
    class, and an overriding class method may call them by `super()`. All calls on a class share the
    state of one instance. A consumer makes its own instance if possible.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        if instance is not None:
            return types.MethodType(self._function, instance)
        # An abstract class can have no instance: use the class itself, because
        # mock.create_autospec() reads its methods.
        stand_in = owner if getattr(owner, "__abstractmethods__", None) else _of_class(owner)
        return types.MethodType(self._function, stand_in)


def _of_class(owner: type[Any]) -> Any:
    """Return the shared instance of an assignor class."""
    made = vars(owner).get("_of_class")
    if made is None:
        # Do not call the constructor, because its arguments are unknown. The attributes have
        # defaults in the class.
        made = owner._of_class = object.__new__(owner)
    return made


if TYPE_CHECKING:

    def either(function: F) -> F:
        """Return the method; at run time, an `Either` that is callable on the class, too."""
        return function

else:
    either = Either


if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")


class AbstractPartitionAssignor(abc.ABC):
    """Assigns partitions. The members of a group agree on one assignor that all of them support.

    `partition_assignment_strategy` has classes or instances. A consumer makes its own instance of a
    class, so an assignor may keep state on `self`; class methods work as well.
    """

    supports_cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). Then a partition gets a
    new owner in two rebalances: the consumer omits the partition from the result of `assign()`, its
    present owner revokes it, and the second rebalance assigns it to the new owner. So `assign()`
    must return the same result for the same members."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name by which the members agree on this assignor; usually a class attribute."""

    @abc.abstractmethod
    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of each member, by member id. Called on the group's leader only.
        `members` has the metadata of each member, by member id."""

    @abc.abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the metadata of this member for the leader. Called before each JoinGroup."""

    @abc.abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Called on every member after a rebalance, with the member's own assignment."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Called before `on_assignment` with the group's generation, -1 after a lost assignment."""
        return


# -- Steps that assignors share


Members = Mapping[str, ConsumerProtocolMemberMetadata]


def in_order(members: Members) -> list[str]:
    """Return the members in the order of the Java client: static members first, by instance id,
    which stays the same after a restart; then the other members by member id."""

    def position(member: str) -> tuple[bool, str]:
        instance_id = members[member].group_instance_id
        return (True, member) if instance_id is None else (False, instance_id)

    return sorted(members, key=position)


def subscribers_by_topic(members: Members) -> dict[str, list[str]]:
    """Return the members that subscribe to each topic, with topics and members sorted."""
    found: dict[str, list[str]] = {}
    for member in sorted(members):
        for topic in set(members[member].subscription):
            found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))


def partitions_by_topic(cluster: ClusterMetadata, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each topic, without topics that do not exist."""
    found = {}
    for topic in topics:
        numbers = cluster.partitions_for_topic(topic)
        if numbers:
            found[topic] = sorted(numbers)
    return found


Racks = Mapping[str, Mapping[int, frozenset[str]]]
"""The racks of the replicas of each partition, by topic and number."""


def member_racks(members: Members) -> dict[str, str]:
    """Return the racks of the members that have reported one in their subscription (KIP-881)."""
    return {member: found.rack for member, found in members.items() if found.rack}


def replica_racks(cluster: ClusterMetadata, partitions: Mapping[str, Iterable[int]]) -> Racks:
    """Return the racks of the replicas of these partitions.

    As in the Java client, a replica outside the ISR counts: it is likely to rejoin the ISR soon,
    and no rebalance follows then. The rack of a broker that is offline is unknown.
    """
    rack_of = {broker.nodeId: broker.rack for broker in cluster.brokers() if broker.rack}
    found: dict[str, dict[int, frozenset[str]]] = {}
    for topic, numbers in partitions.items():
        racks = found[topic] = {}
        for number in numbers:
            info = cluster.partition(TopicPartition(topic, number))
            replicas = () if info is None else info.replicas
            racks[number] = frozenset(rack_of[node] for node in replicas if node in rack_of)
    return found


def needs_racks(of_members: Set[str], of_partitions: Collection[frozenset[str]]) -> bool:
    """Return whether racks can affect an assignment: a member shares a rack with a replica, and not
    every partition has a replica in every rack."""
    every = frozenset[str]().union(*of_partitions)
    return not every.isdisjoint(of_members) and any(racks != every for racks in of_partitions)


def build(
    version: int, shares: Mapping[str, Iterable[TopicPartition]]
) -> dict[str, ConsumerProtocolMemberAssignment]:
    """Return the assignment of each member as the object to encode, with sorted partition numbers.
    `shares`: the partitions of each member."""
    result = {}
    for member, share in shares.items():
        topics: dict[str, list[int]] = {}
        for topic, number in share:
            topics.setdefault(topic, []).append(number)
        grouped = [(topic, sorted(numbers)) for topic, numbers in sorted(topics.items())]
        result[member] = ConsumerProtocolMemberAssignment(version, grouped, b"")
    return result
