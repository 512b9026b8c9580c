"""Steps that sticky assignors share: finding the owners, and balancing with few moves.

The load of a member is its number of partitions. In a chain of moves, member A gives a partition to
B, B gives a partition to C, and each member subscribes to the topic that it receives. An assignment
is as even as possible when there is no chain whose last member has at least two partitions fewer
than the first (an optimal semi-matching; Harvey, Ladner, Lovász and Tamir 2006). So `balance()`
keeps owned partitions, assigns unowned partitions to the members with the least load, and then
moves partitions along shortest chains until there is no such chain.

Topics with the same subscribers are interchangeable, so the search runs over groups of topics.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.structs import TopicPartition

# -- The owners before a rebalance, when members may report different generations


GENERATION = struct.Struct(">i")
"""The user data of cooperative members: the generation of their owned partitions."""


class Claim:
    """The partitions that a member claims to own, and their generation (-1: unknown)."""

    __slots__ = ("generation", "partitions")

    def __init__(self, generation: int, partitions: Iterable[TopicPartition]) -> None:
        self.generation = generation
        self.partitions = partitions


def settle(claims: Mapping[str, Claim]) -> dict[str, list[TopicPartition]]:
    """Return the owned partitions of each member, each partition at most once.

    The claim of the newest generation takes precedence. A partition that two members claim in the
    same newest generation has no owner.
    """
    best: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for member, claim in claims.items():
        for tp in set(claim.partitions):
            if tp not in best or claim.generation > best[tp]:
                best[tp], owners[tp] = claim.generation, member
            elif claim.generation == best[tp]:
                owners[tp] = None
    owned: dict[str, list[TopicPartition]] = {member: [] for member in claims}
    for tp, owner in owners.items():
        if owner is not None:
            owned[owner].append(tp)
    return owned


def claims_of(members: Mapping[str, ConsumerProtocolMemberMetadata]) -> dict[str, Claim]:
    """Return the claim of each member, with the owned partitions and generation that it reports."""
    return {member: _claim(metadata) for member, metadata in members.items()}


def _claim(metadata: ConsumerProtocolMemberMetadata) -> Claim:
    generation = metadata.generation
    if generation < 0 and metadata.user_data and len(metadata.user_data) >= GENERATION.size:
        # Before version 2 the generation was in the user data.
        generation = GENERATION.unpack_from(metadata.user_data)[0]
    return Claim(generation, metadata.owned())


def without_moving(
    shares: Mapping[str, Iterable[TopicPartition]],
    claims: Mapping[str, Claim],
    owned: Mapping[str, Iterable[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Return the partitions to assign now, by member: `shares` without partitions that other
    members claim (KIP-429). The next rebalance can assign the claimed partitions.

    A claim of an older generation blocks a new assignment, too, because the member may still read
    the partition. But only the owner in `owned` keeps a claimed partition.
    """
    taken = set().union(*(claim.partitions for claim in claims.values()))
    mine = {member: set(owned.get(member, ())) for member in shares}
    return {
        member: [tp for tp in share if tp in mine[member] or tp not in taken]
        for member, share in shares.items()
    }


Shares = dict[str, list[TopicPartition]]


def balance(
    subscribers: Mapping[str, Sequence[str]],
    partitions: Mapping[str, Sequence[int]],
    owned: Mapping[str, Iterable[TopicPartition]],
    claims: Mapping[str, Claim] = MappingProxyType({}),
) -> Shares:
    """Return an even assignment: the partitions of each member, for the members in `owned`.

    Args:
        subscribers: The members that subscribe to a topic, in sorted order.
        partitions: The partitions of each existing topic.
        owned: The present partitions of each member, no partition twice. Partitions that the member
            no longer subscribes to, or that no longer exist, are ignored.
        claims: The claims that `owned` was settled from. A member that receives a partition of
            another member receives one that it owned in an earlier generation, if there is one.
    """
    sharing = _Sharing(subscribers, partitions, list(owned))
    sharing.remember(owned, claims)
    sharing.keep(owned, {topic: set(numbers) for topic, numbers in partitions.items()})
    sharing.deal(partitions)
    sharing.even_out()
    return sharing.result()


class _Sharing:
    """An assignment that `balance()` builds. Members, and groups of topics with the same
    subscribers, are identified by numbers. `takers` has the subscribers of each group, `groups` the
    groups to which each member subscribes.

    Owns: `shares[member][group]`, the partitions of a member in a group of topics, in the order in
    which it received them; `load[member]`, the number of its partitions.
    """

    def __init__(
        self,
        subscribers: Mapping[str, Sequence[str]],
        partitions: Mapping[str, Sequence[int]],
        members: list[str],
    ) -> None:
        self.names = sorted(members)
        numbers = {name: number for number, name in enumerate(self.names)}
        self.group_of: dict[str, int] = {}
        self.takers: list[tuple[int, ...]] = []
        known: dict[tuple[int, ...], int] = {}
        for topic in sorted(partitions):
            takers = tuple(numbers[name] for name in subscribers[topic])
            group = known.setdefault(takers, len(known))
            if group == len(self.takers):
                self.takers.append(takers)
            self.group_of[topic] = group
        self.shares: list[dict[int, list[TopicPartition]]] = [{} for _ in self.names]
        self.load = [0] * len(self.names)
        self.groups: list[list[int]] = [[] for _ in self.names]
        for group, takers in enumerate(self.takers):
            for member in takers:
                self.groups[member].append(group)
        self._kept: set[TopicPartition] = set()
        self._former: dict[int, set[TopicPartition]] = {}

    def remember(
        self, owned: Mapping[str, Iterable[TopicPartition]], claims: Mapping[str, Claim]
    ) -> None:
        """Note the partitions that each member claims, but that another member owns by now."""
        for member, name in enumerate(self.names):
            if name in claims:
                former = set(claims[name].partitions).difference(owned[name])
                if former:
                    self._former[member] = former

    def keep(
        self, owned: Mapping[str, Iterable[TopicPartition]], there: Mapping[str, Set[int]]
    ) -> None:
        """Assign each owned partition to its owner, if the partition exists and the owner still
        subscribes to the topic. `there`: the numbers of the existing partitions by topic."""
        wanted = [set(groups) for groups in self.groups]
        for member, name in enumerate(self.names):
            for tp in sorted(owned[name]):
                group = self.group_of.get(tp.topic, -1)
                if group in wanted[member] and tp.partition in there[tp.topic]:
                    self._give(member, group, tp)
                    self._kept.add(tp)

    def deal(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """Assign every unowned partition to the subscriber with the least load. Topics with the
        fewest subscribers come first."""
        free: dict[int, list[TopicPartition]] = {}
        for topic in sorted(partitions):
            rest = [TopicPartition(topic, number) for number in partitions[topic]]
            rest = [tp for tp in rest if tp not in self._kept]
            free.setdefault(self.group_of[topic], []).extend(rest)
        for group in sorted(free, key=lambda group: len(self.takers[group])):
            heap = [(self.load[member], member) for member in self.takers[group]]
            heapq.heapify(heap)
            for tp in free[group]:
                load, member = heap[0]
                heapq.heapreplace(heap, (load + 1, member))
                self._give(member, group, tp)

    def even_out(self) -> None:
        """Move partitions along chains from members with a higher load to members with a lower
        load, until no chain begins at a member with at least two partitions more than its end."""
        # Begin with chains of one move, within one group of topics: they are the most frequent, and
        # need no search.
        moved = True
        while moved:
            moved = sum(map(self._even_out_group, range(len(self.takers)))) > 0
        open_members = set(range(len(self.names)))
        while open_members:
            least = min(self.load[member] for member in open_members)
            if max(self.load[member] for member in open_members) <= least + 1:
                return
            poorest = sorted(m for m in open_members if self.load[m] == least)
            chain, seen = self._find_chain(poorest, open_members)
            if chain:
                self._move_along(chain)
            else:
                # `seen` has all members that could give partitions to the poorest members, directly
                # or along a chain, and none of these members has two partitions more.
                open_members -= seen

    def _even_out_group(self, group: int) -> bool:
        """Move partitions of one group of topics from the subscriber with the highest load to the
        subscriber with the lowest load, until these loads differ by less than two. Return whether
        any partition was moved."""
        poorest = [(self.load[taker], taker) for taker in self.takers[group]]
        richest = [(-load, taker) for load, taker in poorest if self.shares[taker].get(group)]
        heapq.heapify(poorest)
        heapq.heapify(richest)
        moved = False
        while richest:
            load, taker = poorest[0]
            above, giver = richest[0]
            if -above - load < 2:
                break
            moved = True
            self._move_along([(giver, taker, group)])
            heapq.heapreplace(poorest, (load + 1, taker))
            if self.shares[giver][group]:
                heapq.heapreplace(richest, (above + 1, giver))
            else:
                heapq.heappop(richest)
        return moved

    def _find_chain(
        self, poorest: list[int], open_members: set[int]
    ) -> tuple[list[tuple[int, int, int]], set[int]]:
        """Search for a member that can give a partition to one of `poorest`, the members with the
        least load, by a chain of moves, and has at least two partitions more than they have.

        Return the moves (giver, taker, group) of a shortest chain, from that member on, and the
        members seen; no moves if there is no such member.
        """
        enough = self.load[poorest[0]] + 2
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(poorest)
        searched: set[int] = set()
        queue = list(poorest)
        for taker in queue:
            for group in self.groups[taker]:
                if group in searched:
                    continue
                searched.add(group)
                givers = [g for g in self.takers[group] if self.shares[g].get(group)]
                fresh = [g for g in givers if g not in came and g in open_members]
                for giver in fresh:
                    came[giver] = (taker, group)
                richest = max(fresh, key=self.load.__getitem__, default=None)
                if richest is not None and self.load[richest] >= enough:
                    return self._trace(richest, came), set(came)
                queue.extend(fresh)
        return [], set(came)

    def _trace(
        self, giver: int, came: Mapping[int, tuple[int, int] | None]
    ) -> list[tuple[int, int, int]]:
        moves = []
        step = came[giver]
        while step is not None:
            taker, group = step
            moves.append((giver, taker, group))
            giver, step = taker, came[taker]
        return moves

    def _move_along(self, chain: list[tuple[int, int, int]]) -> None:
        for giver, taker, group in chain:
            share = self.shares[giver][group]
            # Take the partition received last: if the giver did not own it before, moving it breaks
            # no stickiness.
            index = len(share) - 1
            if taker in self._former and share[index] in self._kept:
                # The taker may still have the state of partitions of an earlier generation.
                back = (at for at, tp in enumerate(share) if tp in self._former[taker])
                index = next(back, index)
            tp = share.pop(index)
            self.load[giver] -= 1
            self._give(taker, group, tp)

    def _give(self, member: int, group: int, tp: TopicPartition) -> None:
        self.shares[member].setdefault(group, []).append(tp)
        self.load[member] += 1

    def result(self) -> Shares:
        """Return the partitions of each member, by member id."""
        return {
            name: sorted(tp for group in self.shares[member].values() for tp in group)
            for member, name in enumerate(self.names)
        }
