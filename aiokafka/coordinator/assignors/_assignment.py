"""Steps that sticky assignors share: finding the owners, and balancing with few moves.

The load of a member is its number of partitions. In a chain of moves, member A gives a partition to
B, B gives a partition to C, and each member subscribes to the topic that it receives. An assignment
is as even as possible when there is no chain whose last member has at least two partitions fewer
than the first (an optimal semi-matching; Harvey, Ladner, Lovász and Tamir 2006). So `balance()`
keeps owned partitions, assigns unowned partitions to the members with the least load, and then
moves partitions along shortest chains until there is no such chain.

Members with a rack should get partitions with a replica in their rack (KIP-881): such a partition
is a match. Evenness takes precedence over racks, and racks over ownership, as in the Java client.
An even assignment has as many matches as possible when no cycle of moves adds a match. In a cycle,
each member receives and gives one partition. A chain that ends at a member with one partition less
than its first member counts as a cycle, too: it only exchanges the loads of these two members.

Partitions with the same subscribers and racks are interchangeable, so the searches run over groups
of partitions.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from aiokafka._typing import later
from aiokafka.coordinator.assignors.abstract import (
    Members,
    Racks,
    member_racks,
    needs_racks,
    partitions_by_topic,
    replica_racks,
    subscribers_by_topic,
)
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")

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
    """Return the partitions to assign to each member now: `shares` without partitions that other
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


def balance_members(
    cluster: ClusterMetadata, members: Members, claims: Mapping[str, Claim]
) -> tuple[Shares, Shares]:
    """Return the partitions that each member owns now, and the partitions of each member in an even
    assignment."""
    owned = settle(claims)
    subscribers = subscribers_by_topic(members)
    partitions = partitions_by_topic(cluster, subscribers)
    racks = member_racks(members)
    replicas: Racks = {}
    if racks:
        replicas = replica_racks(cluster, partitions)
        found = [each for numbers in replicas.values() for each in numbers.values()]
        if not needs_racks(set(racks.values()), found):
            racks, replicas = {}, {}
    return owned, balance(subscribers, partitions, owned, claims, racks, replicas)


def balance(
    subscribers: Mapping[str, Sequence[str]],
    partitions: Mapping[str, Sequence[int]],
    owned: Mapping[str, Iterable[TopicPartition]],
    claims: Mapping[str, Claim] = MappingProxyType({}),
    racks: Mapping[str, str] = MappingProxyType({}),
    replicas: Racks = MappingProxyType({}),
) -> Shares:
    """Return an even assignment: the partitions of each member, for the members in `owned`.

    Args:
        subscribers: The members that subscribe to a topic, in sorted order.
        partitions: The partitions of each existing topic.
        owned: The present partitions of each member, no partition twice. Partitions that the member
            no longer subscribes to, or that no longer exist, are ignored.
        claims: The claims that `owned` was settled from. If a partition moves to another member, a
            partition that this member owned in an earlier generation is preferred.
        racks: The racks of members. A member without a rack matches every partition.
        replicas: The racks of the replicas of each partition, if there are `racks`.
    """
    sharing = _Sharing(subscribers, partitions, list(owned), racks, replicas)
    sharing.remember(owned, claims)
    sharing.keep(owned)
    if not racks:
        sharing.deal(partitions)
        sharing.even_out()
        return sharing.result()
    # First assign the unowned partitions, without moving owned ones. Then move owned partitions
    # only if the loads become more even, or the number of rack matches increases. So the second
    # rebalance of cooperative members revokes nothing: members own a part of the first rebalance's
    # assignment, and assigning the rest alone leads to an equally good assignment.
    kept = sharing.set_aside()
    sharing.deal(partitions)
    sharing.even_out()
    sharing.match_racks()
    sharing.put_back(kept)
    sharing.even_out()
    sharing.match_racks()
    return sharing.result()


_MOST_EDGES = 3_000
"""`match_racks()` searches for exchanges between racks only in graphs with at most this number of
edges. The search blocks the event loop of the leader: for about 0.1 s with this number, and four
times as long with twice as many. If all members have the same subscription, there are far fewer
edges, even with many members."""


class _Sharing:
    """An assignment that `balance()` builds. Members, and groups of partitions with the same
    subscribers and racks, are identified by numbers. `takers` has the subscribers of each group,
    `groups` the groups to which each member subscribes.

    Owns: `shares[member][group]`, the partitions of a member in a group, in the order in which it
    received them; `load[member]`, the number of its partitions.
    """

    def __init__(
        self,
        subscribers: Mapping[str, Sequence[str]],
        partitions: Mapping[str, Sequence[int]],
        members: list[str],
        racks: Mapping[str, str],
        replicas: Racks,
    ) -> None:
        self.names = sorted(members)
        numbers = {name: number for number, name in enumerate(self.names)}
        self.racks = [racks.get(name) for name in self.names]
        self.group_of: dict[TopicPartition, int] = {}
        self.takers: list[tuple[int, ...]] = []
        self.replicas: list[frozenset[str]] = []
        known: dict[tuple[tuple[int, ...], frozenset[str]], int] = {}
        every = frozenset(racks.values())
        no_racks = frozenset[str]()
        for topic in sorted(partitions):
            takers = tuple(numbers[name] for name in subscribers[topic])
            for number in partitions[topic]:
                there = replicas[topic][number] & every if replicas else no_racks
                group = known.setdefault((takers, there), len(known))
                if group == len(self.takers):
                    self.takers.append(takers)
                    self.replicas.append(there)
                self.group_of[TopicPartition(topic, number)] = group
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
        """Store the partitions that each member claims, but does not own any more."""
        for member, name in enumerate(self.names):
            if name in claims:
                former = set(claims[name].partitions).difference(owned[name])
                if former:
                    self._former[member] = former

    def keep(self, owned: Mapping[str, Iterable[TopicPartition]]) -> None:
        """Assign each owned partition to its owner, if the partition exists and the owner still
        subscribes to the topic."""
        wanted = [set(groups) for groups in self.groups]
        for member, name in enumerate(self.names):
            for tp in sorted(owned[name]):
                group = self.group_of.get(tp, -1)
                if group in wanted[member]:
                    self._give(member, group, tp)
                    self._kept.add(tp)

    def set_aside(self) -> list[dict[int, list[TopicPartition]]]:
        """Remove all partitions from the assignment and return them, so that they cannot move until
        `put_back()`. They still count for the load."""
        shares, self.shares = self.shares, [{} for _ in self.names]
        return shares

    def put_back(self, aside: list[dict[int, list[TopicPartition]]]) -> None:
        """Add the partitions that `set_aside()` has returned to the assignment."""
        for share, received in zip(aside, self.shares, strict=True):
            for group, partitions in received.items():
                share.setdefault(group, []).extend(partitions)
        self.shares = aside

    def deal(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """Assign every unowned partition to the subscriber with the least load, in the rack of a
        replica if possible. Partitions with the fewest subscribers come first."""
        free: dict[int, list[TopicPartition]] = {}
        for topic in sorted(partitions):
            for number in partitions[topic]:
                tp = TopicPartition(topic, number)
                if tp not in self._kept:
                    free.setdefault(self.group_of[tp], []).append(tp)
        for group in sorted(free, key=lambda group: len(self.takers[group])):
            heap = [
                (self.load[member], self._is_mismatch(self.racks[member], group), member)
                for member in self.takers[group]
            ]
            heapq.heapify(heap)
            for tp in free[group]:
                load, mismatch, member = heap[0]
                heapq.heapreplace(heap, (load + 1, mismatch, member))
                self._give(member, group, tp)

    def _is_mismatch(self, rack: str | None, group: int) -> bool:
        """Return whether the partitions of a group have no replica in the rack of a member."""
        return rack is not None and rack not in self.replicas[group]

    def even_out(self) -> None:
        """Move partitions along chains from members with a higher load to members with a lower
        load, until no chain begins at a member with at least two partitions more than its end."""
        # Begin with chains of one move, within one group: they are the most frequent, and need no
        # search.
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
                # or along a chain. None of them has two or more partitions more than the poorest
                # members.
                open_members -= seen

    def _even_out_group(self, group: int) -> bool:
        """Move partitions of one group from the subscriber with the highest load to the
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
        """Search for a shortest chain of moves that ends at one of `poorest`, the members with the
        least load, and begins at a member with at least two partitions more than they have.

        Return the moves (giver, taker, group) from the first member on, and all members that the
        search has reached; no moves if there is no such chain.
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

    # The graph of `match_racks()`. Members with the same rack, load and groups of partitions are
    # interchangeable and share a node. Other nodes connect the nodes of members:
    # - A node for each group, with edges from members that have a partition of the group, and to
    #   the subscribers.
    # - A node for each load, with edges from members with this load, and to members with one
    #   partition more: a chain begins at a member with one partition more, and ends at a member
    #   with this load.
    # An edge costs 1 if it adds a mismatch, and -1 if it removes one.

    def match_racks(self) -> None:
        """Exchange partitions along cycles of negative cost until there is no such cycle. Loads
        change only if two members exchange their loads.

        Does nothing if the graph is large (`_MOST_EDGES`): then only `deal()` has considered the
        racks.
        """
        is_better = True
        while is_better:
            edges, members = self._graph()
            if len(edges) > _MOST_EDGES:
                return
            is_better = False
            # The cycles have no node in common, so an exchange along one affects no other.
            for cycle in _negative_cycles(edges):
                chain = self._chain(cycle, members)
                while chain:
                    is_better = True
                    self._move_along(chain)
                    # A chain that changes loads changes the nodes of its members, too.
                    is_closed = 2 * len(chain) == len(cycle)
                    chain = self._chain(cycle, members) if is_closed else []

    def _graph(self) -> tuple[list[tuple[int, int, int]], dict[int, list[int]]]:
        """Return the edges (start, end, cost), and for each node of members the members that share
        it. The node of a group has the number of the group."""
        first_load = len(self.takers)
        first = first_load + max(self.load, default=0) + 1
        members: dict[int, list[int]] = {}
        nodes: dict[tuple[str | None, int, tuple[int, ...]], int] = {}
        for member, rack in enumerate(self.racks):
            alike = (rack, self.load[member], tuple(self.groups[member]))
            members.setdefault(nodes.setdefault(alike, first + len(nodes)), []).append(member)
        edges = []
        for (rack, load, groups), node in nodes.items():
            held = {g for each in members[node] for g, share in self.shares[each].items() if share}
            edges += [(node, group, -self._is_mismatch(rack, group)) for group in sorted(held)]
            edges += [(group, node, int(self._is_mismatch(rack, group))) for group in groups]
            edges.append((node, first_load + load, 0))
            if load:
                edges.append((first_load + load - 1, node, 0))
        return edges, members

    def _chain(
        self, cycle: Sequence[int], members: Mapping[int, Sequence[int]]
    ) -> list[tuple[int, int, int]]:
        """Return the moves (giver, taker, group) of a cycle, with one member for each of its nodes
        of members. Return no moves if no member of such a node has a partition of the group that
        follows the node in the cycle."""
        following = dict(zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
        chosen = {}
        for node, group in following.items():
            if node in members:
                able = list(members[node])
                if group < len(self.takers):
                    able = [each for each in able if self.shares[each].get(group)]
                    # Prefer a member that gives a partition which it did not own before.
                    able.sort(key=lambda each: self.shares[each][group][-1] in self._kept)
                if not able:
                    return []
                chosen[node] = able[0]
        return [
            (giver, chosen[following[group]], group)
            for node, giver in chosen.items()
            if (group := following[node]) < len(self.takers)
        ]

    def _give(self, member: int, group: int, tp: TopicPartition) -> None:
        self.shares[member].setdefault(group, []).append(tp)
        self.load[member] += 1

    def result(self) -> Shares:
        """Return the partitions of each member, by member id."""
        return {
            name: sorted(tp for group in self.shares[member].values() for tp in group)
            for member, name in enumerate(self.names)
        }


def _negative_cycles(edges: Sequence[tuple[int, int, int]]) -> list[list[int]]:
    """Return cycles whose costs are negative in sum (Bellman and Ford), each as its nodes in order.
    The cycles have no node in common. Return an empty list if there is no such cycle.

    `edges`: (start, end, cost).
    """
    cost = dict.fromkeys((node for edge in edges for node in edge[:2]), 0)
    came: dict[int, int] = {}
    cycles: list[list[int]] = []
    is_changed = True
    while is_changed and not cycles:
        is_changed = False
        for start, end, more in edges:
            if cost[start] + more < cost[end]:
                cost[end] = cost[start] + more
                came[end] = start
                is_changed = True
        # `came` has for each node the node before it on the cheapest path. If these links form a
        # cycle, the costs along the cycle are negative in sum.
        checked: set[int] = set()
        for first in came:
            path: dict[int, None] = {}
            node = first
            while node in came and node not in checked and node not in path:
                path[node] = None
                node = came[node]
            if node in path:
                nodes = list(path)
                cycles.append(nodes[nodes.index(node) :][::-1])
            checked.update(path)
    return cycles
