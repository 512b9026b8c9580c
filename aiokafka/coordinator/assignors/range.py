"""Assign a range of each topic's partitions to each member."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    Members,
    build,
    in_order,
    member_racks,
    needs_racks,
    partitions_by_topic,
    replica_racks,
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

__all__ = ["RangePartitionAssignor"]


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns to each subscriber of a topic a range of the topic's partitions. If the partitions
    cannot be divided evenly, the first members get one more.

    If topics have the same subscribers and the same number of partitions, equal partition numbers
    go to the same member, so such topics can be joined. With many small topics the first members
    get most of the load.

    Members with a `client_rack` get partitions with a replica in their rack if possible (KIP-881).
    Even ranges, and equal partition numbers of topics that can be joined, take precedence. The
    result equals that of Java's RangeAssignor.
    """

    name = "range"
    version = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Members
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        subscribers = subscribers_by_topic(members)
        place = {member: number for number, member in enumerate(in_order(members))}
        topics = [
            _TopicRanges(topic, numbers, sorted(subscribers[topic], key=place.__getitem__))
            for topic, numbers in partitions_by_topic(cluster, subscribers).items()
        ]
        racks = member_racks(members)
        if racks:
            _assign_by_racks(cluster, topics, racks)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in topics:
            topic.give_rest()
            for member, numbers in topic.given.items():
                shares[member] += [TopicPartition(topic.name, number) for number in numbers]
        return build(cls.version, shares)

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass


class _TopicRanges:
    """The assignment of one topic, while it is built. `takers`: the subscribers, in order.

    Owns: the partition numbers that each member has got, the unassigned partition numbers, and the
    number of members that may still get one partition more than the others (`_extra`).
    """

    def __init__(self, name: str, numbers: Sequence[int], takers: Sequence[str]) -> None:
        self.name = name
        self.numbers = tuple(numbers)
        self.given: dict[str, list[int]] = {taker: [] for taker in takers}
        self._free = dict.fromkeys(numbers)
        self._size, self._extra = divmod(len(numbers), len(takers))

    def room(self, taker: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._size + (self._extra > 0) - len(self.given[taker]))

    def give(self, taker: str, numbers: Sequence[int]) -> None:
        """Assign unassigned partitions to a member."""
        if not numbers:
            return
        given = self.given[taker]
        given += numbers
        self._extra -= len(given) > self._size
        for number in numbers:
            del self._free[number]

    def give_rest(self) -> None:
        """Assign the unassigned partitions in ranges."""
        for taker in self.given:
            self.give(taker, list(islice(self._free, self.room(taker))))

    def give_matching(
        self, racks: Mapping[str, str], replicas: Mapping[int, frozenset[str]]
    ) -> None:
        """Assign to each member, in ranges, partitions with a replica in the member's rack. A
        member without a rack gets any partitions."""

        def matching(rack: str | None) -> Iterator[int]:
            for number in self.numbers:
                if number in self._free and (rack is None or rack in replicas[number]):
                    yield number

        # One iterator serves all members of a rack: it need not go back, because an assigned
        # partition stays assigned.
        of_rack = {rack: matching(rack) for rack in (None, *racks.values())}
        for taker in self.given:
            self.give(taker, list(islice(of_rack[racks.get(taker)], self.room(taker))))


def _assign_by_racks(
    cluster: ClusterMetadata, topics: Iterable[_TopicRanges], racks: Mapping[str, str]
) -> None:
    """Assign the partitions that can be assigned to members in the rack of a replica, as Java's
    RangeAssignor does. `racks`: the racks of the members."""
    known = [topic for topic in topics if not racks.keys().isdisjoint(topic.given)]
    replicas = replica_racks(cluster, {topic.name: topic.numbers for topic in known})
    joined: dict[tuple[tuple[int, ...], tuple[str, ...]], list[_TopicRanges]] = {}
    needing = set()
    for topic in known:
        of_members = {racks[taker] for taker in topic.given if taker in racks}
        if needs_racks(of_members, replicas[topic.name].values()):
            needing.add(topic.name)
        joined.setdefault((topic.numbers, tuple(topic.given)), []).append(topic)
    if not needing:
        return
    for group in joined.values():
        if len(group) > 1:
            _match_joined(group, racks, [replicas[topic.name] for topic in group])
        elif group[0].name in needing:
            group[0].give_matching(racks, replicas[group[0].name])


def _match_joined(
    topics: Sequence[_TopicRanges],
    racks: Mapping[str, str],
    replicas: Sequence[Mapping[int, frozenset[str]]],
) -> None:
    """Assign each partition number, in all of these topics, to the first member that has room and
    matches the number. A member matches a number if its rack has a replica of this partition of
    every topic; a member without a rack matches every number. Numbers without a matching member
    stay unassigned."""
    first = topics[0]
    places = {taker: place for place, taker in enumerate(first.given)}
    waiting: dict[str | None, deque[str]] = {}
    for taker in places:
        waiting.setdefault(racks.get(taker), deque()).append(taker)
    for number in first.numbers:
        common = frozenset.intersection(*(found[number] for found in replicas))
        heads = []
        for rack in (None, *common):
            queue = waiting.get(rack, ())
            # All these topics have the same number of partitions and the same members. So each of
            # them has the same room for a member (the number of further partitions that it may
            # get), and the first topic stands for all. Room only decreases: a member without room
            # is removed from the queue.
            while queue and not first.room(queue[0]):
                queue.popleft()
            if queue:
                heads.append(queue[0])
        if heads:
            taker = min(heads, key=places.__getitem__)
            for topic in topics:
                topic.give(taker, [number])
