"""Who gets what: range, round-robin, sticky and cooperative-sticky."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Mapping

import pytest

from aiokafka.coordinator.assignors._assignment import Claim, balance, settle
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition
from tests.coordinator.support import assign, existing, make_cluster, subscribe

ALL: list[type[AbstractPartitionAssignor]] = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]
Shares = Mapping[str, list[TopicPartition]]


def names(shares: Shares) -> dict[str, list[str]]:
    return {member: [f"{t}{n}" for t, n in share] for member, share in shares.items()}


def test_range() -> None:
    cluster = make_cluster(t=3, u=3)
    members = subscribe(a=["t", "u"], b=["t", "u"])
    assert names(assign(RangePartitionAssignor, cluster, members)) == {
        "a": ["t0", "t1", "u0", "u1"],
        "b": ["t2", "u2"],
    }


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor])
def test_a_static_member_keeps_its_share_with_a_new_member_id(
    assignor: type[AbstractPartitionAssignor],
) -> None:
    cluster = make_cluster(t=4)

    def shares(*ids: str) -> list[list[TopicPartition]]:
        members = subscribe(**{member: ["t"] for member in ids})
        for member, instance_id in zip(ids, ("one", "two", None), strict=True):
            members[member].group_instance_id = instance_id
        found = assignor().assign(cluster, members)
        return [found[member].partitions() for member in ids]

    assert shares("a", "b", "c") == shares("z", "b", "c") == shares("z", "y", "c")
    # Static members come first, as with Java's leaders.
    assert len(shares("x", "y", "a")[0]) == 2


def test_range_with_different_subscriptions() -> None:
    cluster = make_cluster(t=3, u=4)
    members = subscribe(a=["t"], b=["t", "u"], c=["u"])
    assert names(assign(RangePartitionAssignor, cluster, members)) == {
        "a": ["t0", "t1"],
        "b": ["t2", "u0", "u1"],
        "c": ["u2", "u3"],
    }


def test_round_robin() -> None:
    cluster = make_cluster(t=3, u=3)
    members = subscribe(a=["t", "u"], b=["t", "u"])
    assert names(assign(RoundRobinPartitionAssignor, cluster, members)) == {
        "a": ["t0", "t2", "u1"],
        "b": ["t1", "u0", "u2"],
    }


def test_round_robin_passes_over_who_does_not_want_the_topic() -> None:
    cluster = make_cluster(t=1, u=2, v=3)
    members = subscribe(a=["t"], b=["t", "u"], c=["t", "u", "v"])
    assert names(assign(RoundRobinPartitionAssignor, cluster, members)) == {
        "a": ["t0"],
        "b": ["u0"],
        "c": ["u1", "v0", "v1", "v2"],
    }


@pytest.mark.parametrize("assignor", ALL)
def test_nobody_and_nothing(assignor: type[AbstractPartitionAssignor]) -> None:
    cluster = make_cluster(t=1)
    assert assign(assignor, cluster, {}) == {}
    assert assign(assignor, cluster, subscribe(a=[], b=["missing"])) == {"a": [], "b": []}
    assert assign(assignor, cluster, subscribe(a=["t"], b=["t"])) == {
        "a": [TopicPartition("t", 0)],
        "b": [],
    }


@pytest.mark.parametrize("assignor", ALL)
def test_everything_wanted_is_given(assignor: type[AbstractPartitionAssignor]) -> None:
    chance = random.Random(7)
    for _ in range(50):
        sizes = {f"t{i}": chance.randrange(1, 9) for i in range(chance.randrange(1, 6))}
        cluster = make_cluster(**sizes)
        wishes = {
            f"m{i}": chance.sample(sorted(sizes), chance.randrange(1, len(sizes) + 1))
            for i in range(chance.randrange(1, 8))
        }
        members = subscribe(**wishes)
        result = assign(assignor, cluster, members)
        assert {tp for share in result.values() for tp in share} == existing(cluster, members)


@pytest.mark.parametrize("assignor", ALL)
def test_the_order_of_the_members_does_not_matter(
    assignor: type[AbstractPartitionAssignor],
) -> None:
    cluster = make_cluster(t=5, u=3)
    members = subscribe(a=["t"], b=["u", "t"], c=["t", "u"])
    backwards = dict(reversed(members.items()))
    assert assign(assignor, cluster, members) == assign(assignor, cluster, backwards)


# -- sticky


class Member:
    """A consumer's side of an assignor: it remembers what it was given, and says so if it keeps
    that while it joins."""

    def __init__(self, assignor: type[AbstractPartitionAssignor], *topics: str) -> None:
        self.assignor = assignor()
        self.topics = topics
        self.has: list[tuple[str, list[int]]] = []

    def metadata(self) -> ConsumerProtocolMemberMetadata:
        told = self.assignor.metadata(self.topics)
        if self.assignor.supports_cooperative:
            told.owned_partitions = self.has
        return told

    def take(self, share: list[TopicPartition], generation: int) -> None:
        grouped = [(tp.topic, [tp.partition]) for tp in share]
        self.assignor.on_generation_assignment(generation)
        self.assignor.on_assignment(ConsumerProtocolMemberAssignment(0, grouped, b""))
        self.has = grouped


class Group:
    """Members that rebalance together; a cooperative group repeats until nothing moves."""

    def __init__(self, assignor: type[AbstractPartitionAssignor], **topics: int) -> None:
        self.assignor = assignor
        self.cluster = make_cluster(**topics)
        self.members: dict[str, Member] = {}
        self.generation = 0
        self.shares: dict[str, list[TopicPartition]] = {}

    def join(self, *members: str, topics: tuple[str, ...] = ("t",)) -> None:
        for member in members:
            self.members[member] = Member(self.assignor, *topics)

    def rebalance(self) -> dict[str, list[TopicPartition]]:
        self.generation += 1
        metadata = {name: member.metadata() for name, member in self.members.items()}
        self.shares = assign(self.assignor, self.cluster, metadata)
        for name, share in self.shares.items():
            self.members[name].take(share, self.generation)
        return self.shares

    def loads(self) -> list[int]:
        return sorted(len(share) for share in self.shares.values())


def moved(before: Shares, after: Shares) -> int:
    """How many partitions a member has lost that is still there."""
    return sum(len(set(before[m]) - set(after[m])) for m in before if m in after)


def test_sticky_gives_what_a_leaver_had_to_the_others() -> None:
    group = Group(StickyPartitionAssignor, t=12)
    group.join("a", "b", "c", "d")
    before = group.rebalance()
    assert group.loads() == [3, 3, 3, 3]
    del group.members["b"]
    after = group.rebalance()
    assert group.loads() == [4, 4, 4]
    assert moved(before, after) == 0


def test_sticky_takes_only_what_a_newcomer_needs() -> None:
    group = Group(StickyPartitionAssignor, t=12)
    group.join("a", "b", "c")
    before = group.rebalance()
    group.join("d")
    after = group.rebalance()
    assert group.loads() == [3, 3, 3, 3]
    assert moved(before, after) == 3
    assert group.rebalance() == after


def test_sticky_state_belongs_to_one_consumer() -> None:
    first, second = StickyPartitionAssignor(), StickyPartitionAssignor()
    first.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [0])], b""))
    assert first.metadata(["t"]).user_data
    assert second.metadata(["t"]).user_data == b""


def test_sticky_believes_the_newest_generation() -> None:
    group = Group(StickyPartitionAssignor, t=4)
    group.join("a", "b")
    group.rebalance()
    sleeper = group.members.pop("b")
    group.rebalance()
    group.members["b"] = sleeper
    group.rebalance()
    assert group.loads() == [2, 2]


@pytest.mark.parametrize("assignor", [StickyPartitionAssignor, CooperativeStickyAssignor])
def test_members_that_return_get_their_partitions_back(
    assignor: type[AbstractPartitionAssignor],
) -> None:
    group = Group(assignor, t=6)
    group.join("a", "b", "c")
    before = group.rebalance()
    others = {name: group.members.pop(name) for name in ("a", "c")}
    group.rebalance()
    group.members.update(others)
    group.rebalance()
    assert group.rebalance() == before


def test_sticky_survives_nonsense_of_another_client() -> None:
    cluster = make_cluster(t=2)
    members = subscribe(a=["t"], b=["t"])
    members["a"].user_data = b"\x7f\xff\xff\xff"
    result = assign(StickyPartitionAssignor, cluster, members)
    assert sorted(map(len, result.values())) == [1, 1]


def test_sticky_forgets_topics_that_are_gone() -> None:
    group = Group(StickyPartitionAssignor, t=2, u=2)
    group.join("a", "b", topics=("t", "u"))
    group.rebalance()
    group.cluster = make_cluster(u=2)
    assert {tp.topic for share in group.rebalance().values() for tp in share} == {"u"}
    assert group.loads() == [1, 1]


@pytest.mark.parametrize("assignor", [StickyPartitionAssignor, CooperativeStickyAssignor])
def test_sticky_forgets_partitions_that_are_gone(assignor: type[AbstractPartitionAssignor]) -> None:
    """The topic was deleted, and created again with fewer."""
    group = Group(assignor, t=6)
    group.join("a", "b")
    group.rebalance()
    group.cluster = make_cluster(t=2)
    group.rebalance()
    assert {tp for share in group.rebalance().values() for tp in share} == {
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    }
    assert group.loads() == [1, 1]


def test_claims() -> None:
    tps = [TopicPartition("t", n) for n in range(3)]
    owned = settle(
        {"a": Claim(2, tps[:2]), "b": Claim(1, tps[:1]), "c": Claim(2, tps[1:]), "d": Claim(-1, ())}
    )
    assert owned == {"a": tps[:1], "b": [], "c": tps[2:], "d": []}


@pytest.mark.parametrize("version", [1, 3])
def test_cooperative_gives_nothing_to_an_outdated_claim(version: int) -> None:
    """The newer of two claims counts, in either order; the other one is to let go first.

    Before version 2 of the metadata the generation is in the user data.
    """
    cluster = make_cluster(t=2)
    for newer, older in (("a", "b"), ("b", "a")):
        members = {
            member: ConsumerProtocolMemberMetadata(
                version,
                ["t"],
                struct.pack(">i", generation) if version < 2 else b"",
                [("t", [0, 1])],
                -1 if version < 2 else generation,
            )
            for member, generation in ((newer, 7), (older, 6))
        }
        found = CooperativeStickyAssignor().assign(cluster, members)
        assert len(found[newer].partitions()) == 1
        assert found[older].partitions() == []


def test_cooperative_takes_away_what_two_claim_of_the_same_generation() -> None:
    """Neither can be trusted to be the only one that reads it."""
    cluster = make_cluster(t=2)
    members = {
        member: ConsumerProtocolMemberMetadata(3, ["t"], b"", [("t", [0])], 7) for member in "ab"
    }
    found = CooperativeStickyAssignor().assign(cluster, members)
    assert [tp for m in "ab" for tp in found[m].partitions()] == [TopicPartition("t", 1)]


def test_cooperative_moves_in_two_steps() -> None:
    group = Group(CooperativeStickyAssignor, t=6)
    group.join("a", "b")
    before = group.rebalance()
    assert group.loads() == [3, 3]
    group.join("c")
    between = group.rebalance()
    # What is to move is not assigned yet; nothing else has changed.
    assert group.loads() == [0, 2, 2]
    for member in ("a", "b"):
        assert set(between[member]) < set(before[member])
    after = group.rebalance()
    assert group.loads() == [2, 2, 2]
    assert moved(between, after) == 0


def test_cooperative_never_gives_what_another_still_has() -> None:
    chance = random.Random(3)
    group = Group(CooperativeStickyAssignor, t=9, u=4)
    group.join("m0", topics=("t", "u"))
    before = group.rebalance()
    for number in range(1, 60):
        if chance.random() < 0.4 and len(group.members) > 1:
            group.members.pop(chance.choice(sorted(group.members)))
        else:
            group.join(f"m{number}", topics=chance.choice([("t",), ("u",), ("t", "u")]))
        here = {m: share for m, share in before.items() if m in group.members}
        after = group.rebalance()
        for member, share in after.items():
            for other, had in here.items():
                assert other == member or not set(share) & set(had)
        before = after


# -- how even, how sticky


def wanted_by(wishes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for member in sorted(wishes):
        for topic in wishes[member]:
            found.setdefault(topic, []).append(member)
    return found


def cost(loads: list[int]) -> int:
    return sum(load * load for load in loads)


def best_cost(wishes: Mapping[str, list[str]], partitions: Mapping[str, range]) -> int:
    """Try every way to assign."""
    takers = wanted_by(wishes)
    choices = [takers[topic] for topic, numbers in partitions.items() for _ in numbers]
    members = sorted(wishes)
    return min(
        cost([way.count(member) for member in members]) for way in itertools.product(*choices)
    )


def test_shares_are_as_even_as_can_be() -> None:
    chance = random.Random(11)
    for _ in range(150):
        topics = [f"t{i}" for i in range(chance.randrange(1, 4))]
        partitions = {topic: range(chance.randrange(1, 4)) for topic in topics}
        wishes = {
            f"m{i}": chance.sample(topics, chance.randrange(0, len(topics) + 1))
            for i in range(chance.randrange(1, 4))
        }
        takers = wanted_by(wishes)
        partitions = {topic: numbers for topic, numbers in partitions.items() if topic in takers}
        owned: dict[str, list[TopicPartition]] = {member: [] for member in wishes}
        for topic, numbers in partitions.items():
            for number in numbers:
                # A bad start, with members that want the topic and members that do not.
                owned[chance.choice(sorted(wishes))].append(TopicPartition(topic, number))
        result = balance(takers, partitions, owned)
        loads = [len(share) for share in result.values()]
        assert cost(loads) == best_cost(wishes, partitions)


def test_equal_subscriptions_move_no_more_than_needed() -> None:
    chance = random.Random(5)
    for _ in range(200):
        members = [f"m{i}" for i in range(chance.randrange(1, 7))]
        count = chance.randrange(1, 30)
        owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for number in range(count):
            if chance.random() < 0.8:
                owned[chance.choice(members)].append(TopicPartition("t", number))
        result = balance({"t": members}, {"t": range(count)}, owned)
        low, extra = divmod(count, len(members))
        sizes = sorted((len(share) for share in owned.values()), reverse=True)
        keep = sum(min(size, low + (i < extra)) for i, size in enumerate(sizes))
        kept = sum(len(set(owned[m]) & set(result[m])) for m in members)
        assert kept == keep


def test_a_large_group() -> None:
    topics = [f"t{i}" for i in range(100)]
    partitions = {topic: range(100) for topic in topics}
    members = [f"m{i:04}" for i in range(1_000)]
    takers = dict.fromkeys(topics, members)
    first = balance(takers, partitions, {member: [] for member in members})
    half = {member: first[member] for member in members[:500]}
    second = balance(dict.fromkeys(topics, members[:500]), partitions, half)
    third = balance(takers, partitions, {m: second.get(m, []) for m in members})
    assert {len(share) for share in third.values()} == {10}
    assert moved(second, third) == 5_000
