"""Assignments by the racks of members and replicas (KIP-881)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import (
    member_racks,
    needs_racks,
    partitions_by_topic,
    replica_racks,
    subscribers_by_topic,
)
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.structs import TopicPartition
from tests.coordinator.support import assign, existing

Shares = Mapping[str, Sequence[TopicPartition]]
Members = dict[str, ConsumerProtocolMemberMetadata]


def racked_cluster(
    brokers: Sequence[str | None], topics: Mapping[str, Sequence[Sequence[int]]]
) -> ClusterMetadata:
    """A cluster with brokers in these racks. `topics`: the replicas of each partition."""
    cluster = ClusterMetadata()
    cluster.update_metadata(
        MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host="localhost", port=9092, rack=rack)
                for node, rack in enumerate(brokers)
            ],
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=nodes[0],
                            replica_nodes=list(nodes),
                            isr_nodes=list(nodes),
                        )
                        for number, nodes in enumerate(partitions)
                    ],
                )
                for name, partitions in topics.items()
            ],
        )
    )
    return cluster


def java_cluster(
    sizes: Mapping[str, int], replicas: int, brokers: Sequence[str | None]
) -> ClusterMetadata:
    """The cluster of Java's tests: the replicas begin at one broker after the other, over all
    topics."""
    topics: dict[str, list[list[int]]] = {}
    first = 0
    for name, size in sizes.items():
        topics[name] = [
            [(first + number + each) % len(brokers) for each in range(replicas)]
            for number in range(size)
        ]
        first += size
    return racked_cluster(brokers, topics)


def members_in(racks: Sequence[str | None], topics: Sequence[Sequence[str]]) -> Members:
    return {
        f"consumer{i}": ConsumerProtocolMemberMetadata(3, names, b"", rack=rack)
        for i, (rack, names) in enumerate(zip(racks, topics, strict=True))
    }


def mismatches(cluster: ClusterMetadata, members: Members, shares: Shares) -> int:
    """Count partitions without a replica in the rack of their member, which has one."""
    racks = {broker.nodeId: broker.rack for broker in cluster.brokers()}
    count = 0
    for member, share in shares.items():
        for tp in share:
            info = cluster.partition(tp)
            assert info is not None
            rack = members[member].rack
            count += bool(rack) and rack not in {racks[node] for node in info.replicas}
    return count


def texts(shares: Shares) -> list[str]:
    return [", ".join(f"{t}-{n}" for t, n in share) for _, share in sorted(shares.items())]


A3 = ("a", "b", "c")
UNIFORM = {"t1": 6, "t2": 7, "t3": 2}
EQUAL = {"t1": 5, "t2": 5, "t3": 5}
PAIRS = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
ALL = [["t1", "t2", "t3"]] * 3
NOT_T2 = [["t1", "t2", "t3"], ["t1", "t2", "t3"], ["t1", "t3"]]
TWO_AND_TWO = [["t1", "t2"], ["t1", "t2"], ["t3", "t4"], ["t3", "t4"]]
ALL_PAIRS = [["t1", "t2", "t3", "t4"]] * 4
CROSSED = ("a", "b", "b", "a")
WITHOUT_RACKS = {
    "uniform": (
        UNIFORM,
        ALL,
        [
            "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0",
            "t1-2, t1-3, t2-3, t2-4, t3-1",
            "t1-4, t1-5, t2-5, t2-6",
        ],
    ),
    "subscriptions": (
        UNIFORM,
        NOT_T2,
        [
            "t1-0, t1-1, t2-0, t2-1, t2-2, t2-3, t3-0",
            "t1-2, t1-3, t2-4, t2-5, t2-6, t3-1",
            "t1-4, t1-5",
        ],
    ),
    "joined": (
        EQUAL,
        ALL,
        [
            "t1-0, t1-1, t2-0, t2-1, t3-0, t3-1",
            "t1-2, t1-3, t2-2, t2-3, t3-2, t3-3",
            "t1-4, t2-4, t3-4",
        ],
    ),
    "partly joined": (
        EQUAL,
        NOT_T2,
        [
            "t1-0, t1-1, t2-0, t2-1, t2-2, t3-0, t3-1",
            "t1-2, t1-3, t2-3, t2-4, t3-2, t3-3",
            "t1-4, t3-4",
        ],
    ),
}
Racks = Sequence[str | None]
IRRELEVANT: list[tuple[int, Racks, Racks]] = [
    (3, (None, None, None), A3),
    (3, A3, (None, None, None)),
    (3, A3, A3),
    (4, ("a", "b", "c", "d"), A3),
    (3, A3, ("d", "e", "f")),
    (3, A3, (None, "e", "f")),
    (3, A3, ("", "", "")),
]


@pytest.mark.parametrize("case", WITHOUT_RACKS)
@pytest.mark.parametrize(("replicas", "brokers", "racks"), IRRELEVANT)
def test_ranges_without_a_choice_of_racks(
    case: str, replicas: int, brokers: Racks, racks: Racks
) -> None:
    sizes, topics, expected = WITHOUT_RACKS[case]
    cluster = java_cluster(sizes, replicas, brokers)
    assert texts(assign(RangePartitionAssignor, cluster, members_in(racks, topics))) == expected


BY_RACKS: list[
    tuple[Mapping[str, int], int, Racks, Racks, Sequence[Sequence[str]], list[str], int]
] = [
    (
        UNIFORM, 1, A3, A3, ALL,
        ["t1-0, t1-3, t2-0, t2-3, t2-6", "t1-1, t1-4, t2-1, t2-4, t3-0",
         "t1-2, t1-5, t2-2, t2-5, t3-1"],
        0,
    ),
    (
        UNIFORM, 2, A3, A3, ALL,
        ["t1-0, t1-2, t2-0, t2-2, t2-3, t3-1", "t1-1, t1-3, t2-1, t2-4, t3-0",
         "t1-4, t1-5, t2-5, t2-6"],
        1,
    ),
    (UNIFORM, 3, ("a", "b"), A3, ALL, WITHOUT_RACKS["uniform"][2], 4),
    (
        UNIFORM, 1, A3, A3, NOT_T2,
        ["t1-0, t1-3, t2-0, t2-2, t2-3, t2-6", "t1-1, t1-4, t2-1, t2-4, t2-5, t3-0",
         "t1-2, t1-5, t3-1"],
        2,
    ),
    (
        UNIFORM, 2, A3, A3, NOT_T2,
        ["t1-0, t1-2, t2-0, t2-2, t2-3, t2-5, t3-1", "t1-1, t1-3, t2-1, t2-4, t2-6, t3-0",
         "t1-4, t1-5"],
        0,
    ),
    (UNIFORM, 3, ("a", "b"), A3, NOT_T2, WITHOUT_RACKS["subscriptions"][2], 2),
    (EQUAL, 1, A3, A3, ALL, WITHOUT_RACKS["joined"][2], 10),
    (EQUAL, 2, A3, A3, ALL, WITHOUT_RACKS["joined"][2], 5),
    (EQUAL, 3, ("a", "b"), A3, ALL, WITHOUT_RACKS["joined"][2], 3),
    (
        EQUAL, 1, A3, A3, NOT_T2,
        ["t1-0, t1-1, t2-0, t2-1, t2-4, t3-0, t3-1", "t1-2, t1-3, t2-2, t2-3, t3-2, t3-3",
         "t1-4, t3-4"],
        9,
    ),
    (
        EQUAL, 2, A3, A3, NOT_T2,
        ["t1-2, t2-0, t2-1, t2-3, t3-2", "t1-0, t1-3, t2-2, t2-4, t3-0, t3-3",
         "t1-1, t1-4, t3-1, t3-4"],
        0,
    ),
    (EQUAL, 3, ("a", "b"), A3, NOT_T2, WITHOUT_RACKS["partly joined"][2], 2),
    (
        PAIRS, 2, ("a", "b"), CROSSED, TWO_AND_TWO,
        ["t1-0, t1-1, t1-2, t2-0, t2-1, t2-2", "t1-3, t1-4, t1-5, t2-3, t2-4, t2-5",
         "t3-0, t4-0", "t3-1, t4-1"],
        0,
    ),
    (
        PAIRS, 1, ("a", "b"), CROSSED, TWO_AND_TWO,
        ["t1-0, t1-2, t1-4, t2-0, t2-2, t2-4", "t1-1, t1-3, t1-5, t2-1, t2-3, t2-5",
         "t3-1, t4-1", "t3-0, t4-0"],
        0,
    ),
    (
        PAIRS, 1, ("a", "b"), CROSSED, ALL_PAIRS,
        ["t1-0, t1-2, t2-0, t2-2, t3-0, t4-0", "t1-1, t1-3, t2-1, t2-3, t3-1, t4-1",
         "t1-5, t2-5", "t1-4, t2-4"],
        0,
    ),
    (
        PAIRS, 1, A3, CROSSED, ALL_PAIRS,
        ["t1-0, t1-3, t2-0, t2-3, t3-0, t4-0", "t1-1, t1-4, t2-1, t2-4, t3-1, t4-1",
         "t1-2, t2-2", "t1-5, t2-5"],
        6,
    ),
    (
        {**PAIRS, "t5": 4, "t6": 4}, 2, A3, A3, [["t1", "t2", "t3", "t4", "t5", "t6"]] * 3,
        ["t1-0, t1-2, t2-0, t2-2, t3-0, t4-0, t5-1, t6-1",
         "t1-1, t1-3, t2-1, t2-3, t3-1, t4-1, t5-2, t6-2",
         "t1-4, t1-5, t2-4, t2-5, t5-0, t5-3, t6-0, t6-3"],
        0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "replicas", "brokers", "racks", "topics", "expected", "mismatched"), BY_RACKS
)
def test_ranges_by_racks_equal_those_of_java(
    sizes: Mapping[str, int],
    replicas: int,
    brokers: Racks,
    racks: Racks,
    topics: Sequence[Sequence[str]],
    expected: list[str],
    mismatched: int,
) -> None:
    """The cases of Java's RangeAssignorTest, with the number of partitions without a replica in the
    rack of their member."""
    cluster, members = java_cluster(sizes, replicas, brokers), members_in(racks, topics)
    found = assign(RangePartitionAssignor, cluster, members)
    assert texts(found) == expected
    assert mismatches(cluster, members, found) == mismatched


def test_static_members_keep_ranges_by_racks_with_new_member_ids() -> None:
    brokers = [rack for rack, _ in zip(cycle(A3), range(6), strict=False)]
    cluster = racked_cluster(
        brokers, {name: [[n % 6, (n + 1) % 6] for n in range(5)] for name in ("t1", "t2")}
    )

    def shares(*ids: str) -> list[str]:
        members: Members = {}
        for rack, member in zip(A3, ids, strict=True):
            members[member] = ConsumerProtocolMemberMetadata(3, ["t1", "t2"], b"", rack=rack)
            members[member].group_instance_id = f"instance-{rack}"
        found = RangePartitionAssignor.assign(cluster, members)
        return texts({str(n): found[member].partitions() for n, member in enumerate(ids)})

    expected = ["t1-0, t1-2, t2-0, t2-2", "t1-1, t1-3, t2-1, t2-3", "t1-4, t2-4"]
    assert shares("1", "2", "3") == shares("1", "5", "4") == expected


def test_racks_matter_if_they_leave_a_choice() -> None:
    every, some = [frozenset("abc")] * 10, [frozenset(rack) for rack in "abcabc"]
    for members, partitions in (
        ("", []),
        ("", every),
        ("abc", []),
        ("abc", [frozenset[str]()]),
        ("d", some),
        ("abc", every),
        ("ab", every),
        ("ad", every),
    ):
        assert not needs_racks(set(members), partitions)
    for members in ("abc", "ab", "ad"):
        assert needs_racks(set(members), some)


def test_a_replica_on_a_broker_that_is_gone_has_no_rack() -> None:
    cluster = racked_cluster(["a", "b"], {"t": [[1, 7], [0, 7]]})
    members = members_in("ab", [["t"], ["t"]])
    assert texts(assign(RangePartitionAssignor, cluster, members)) == ["t-1", "t-0"]


@st.composite
def groups(
    draw: st.DrawFn, topics: int = 4, size: int = 7, members: int = 5
) -> tuple[ClusterMetadata, Members]:
    """A cluster and a group, of at most so many topics, partitions of a topic and members. Topics
    of the same size are frequent, and so are equal subscriptions."""
    rack = st.sampled_from(["a", "b", "c", None])
    brokers = draw(st.lists(rack, min_size=1, max_size=4))
    nodes = st.lists(
        st.integers(0, len(brokers) - 1), min_size=1, max_size=len(brokers), unique=True
    )
    sizes = draw(st.lists(st.integers(1, size), min_size=1, max_size=topics))
    replicas = {
        f"t{i}": draw(st.lists(nodes, min_size=count, max_size=count))
        for i, count in enumerate(sizes)
    }
    racks = draw(st.lists(rack, min_size=1, max_size=members))
    names = st.lists(st.sampled_from(sorted(replicas)), min_size=1, unique=True)
    wishes = st.one_of(st.just(sorted(replicas)), names)
    return racked_cluster(brokers, replicas), members_in(racks, [draw(wishes) for _ in racks])


def without_racks(members: Members) -> Members:
    return members_in([None] * len(members), [found.subscription for found in members.values()])


@given(groups())
def test_racks_change_no_sizes_of_ranges(group: tuple[ClusterMetadata, Members]) -> None:
    cluster, members = group
    found = assign(RangePartitionAssignor, cluster, members)
    plain = assign(RangePartitionAssignor, cluster, without_racks(members))
    assert {tp for share in found.values() for tp in share} == existing(cluster, members)
    topics = {tp.topic for tp in existing(cluster, members)}

    def sizes(shares: Shares, topic: str) -> list[int]:
        return sorted(sum(tp.topic == topic for tp in share) for share in shares.values())

    for topic in topics:
        assert sizes(found, topic) == sizes(plain, topic)


@given(groups())
def test_racks_separate_no_joined_topics(group: tuple[ClusterMetadata, Members]) -> None:
    cluster, members = group
    found = assign(RangePartitionAssignor, cluster, members)
    joined: dict[tuple[object, ...], set[tuple[tuple[str, int], ...]]] = {}
    for topic in {tp.topic for tp in existing(cluster, members)}:
        takers = tuple(m for m in sorted(members) if topic in members[m].subscription)
        key = (takers, len(cluster.partitions_for_topic(topic) or ()))
        own = tuple((m, tp.partition) for m in takers for tp in found[m] if tp.topic == topic)
        joined.setdefault(key, set()).add(own)
    assert all(len(owners) == 1 for owners in joined.values())


# -- sticky assignors

STICKY = [StickyPartitionAssignor, CooperativeStickyAssignor]
Sticky = type[StickyPartitionAssignor] | type[CooperativeStickyAssignor]


def owning(assignor: Sticky, members: Members, shares: Shares, generation: int) -> Members:
    """Return the same members, each of which reports that it owns its share."""
    found: Members = {}
    for name, member in members.items():
        made = assignor()
        grouped = [(tp.topic, [tp.partition]) for tp in shares.get(name, ())]
        made.on_generation_assignment(generation)
        made.on_assignment(ConsumerProtocolMemberAssignment(0, grouped, b""))
        told = made.metadata(member.subscription)
        found[name] = ConsumerProtocolMemberMetadata(
            3,
            member.subscription,
            told.user_data,
            grouped if assignor.supports_cooperative else (),
            generation if assignor.supports_cooperative else -1,
            member.rack,
        )
    return found


def least(cluster: ClusterMetadata, members: Members) -> tuple[int, int]:
    """Try every way to assign. Return the sum of squares of the loads, and the mismatches."""
    racks = {broker.nodeId: broker.rack for broker in cluster.brokers()}
    wanted = sorted(existing(cluster, members))
    choices = [[m for m in members if tp.topic in members[m].subscription] for tp in wanted]
    misses: list[dict[str, int]] = []
    for tp, takers in zip(wanted, choices, strict=True):
        info = cluster.partition(tp)
        assert info is not None
        there = {racks[node] for node in info.replicas}
        misses.append(
            {m: int(bool(members[m].rack) and members[m].rack not in there) for m in takers}
        )
    return min(
        (
            sum(way.count(m) ** 2 for m in members),
            sum(miss[m] for miss, m in zip(misses, way, strict=True)),
        )
        for way in product(*choices)
    )


def quality(cluster: ClusterMetadata, members: Members, shares: Shares) -> tuple[int, int]:
    squares = sum(len(share) ** 2 for share in shares.values())
    return squares, mismatches(cluster, members, shares)


@pytest.mark.parametrize("assignor", STICKY)
@given(st.data())
@settings(max_examples=150)
def test_as_many_partitions_as_possible_are_in_the_rack(
    assignor: Sticky, data: st.DataObject
) -> None:
    """An even assignment with the fewest mismatches, whatever the members own before. Cooperative
    members reach it in two rebalances, and nothing moves in the second one, or afterwards."""
    cluster, members = data.draw(groups(topics=2, size=3, members=3))
    racks = replica_racks(cluster, partitions_by_topic(cluster, subscribers_by_topic(members)))
    of_partitions = [found for numbers in racks.values() for found in numbers.values()]
    is_by_racks = needs_racks(set(member_racks(members).values()), of_partitions)
    before: dict[str, list[TopicPartition]] = {name: [] for name in members}
    for tp in sorted(existing(cluster, members)):
        # Also members without the topic, and partitions without an owner.
        owner = data.draw(st.sampled_from([*members, None]))
        if owner is not None:
            before[owner].append(tp)
    found = assign(assignor, cluster, owning(assignor, members, before, 1))
    if assignor.supports_cooperative:
        first = found
        found = assign(assignor, cluster, owning(assignor, members, first, 2))
        assert all(set(first[name]) <= set(found[name]) for name in members)
    best = least(cluster, members)
    assert quality(cluster, members, found)[: 1 + is_by_racks] == best[: 1 + is_by_racks]
    assert {tp for share in found.values() for tp in share} == existing(cluster, members)
    assert assign(assignor, cluster, owning(assignor, members, found, 3)) == found


@pytest.mark.parametrize("assignor", STICKY)
@given(group=groups())
@settings(max_examples=100)
def test_racks_make_a_sticky_assignment_no_less_even(
    assignor: Sticky, group: tuple[ClusterMetadata, Members]
) -> None:
    cluster, members = group
    plain = assign(assignor, cluster, without_racks(members))
    found = assign(assignor, cluster, members)
    assert sorted(map(len, found.values())) == sorted(map(len, plain.values()))
    assert mismatches(cluster, members, found) <= mismatches(cluster, members, plain)


@pytest.mark.parametrize("assignor", STICKY)
@pytest.mark.parametrize(("replicas", "brokers", "racks"), IRRELEVANT)
def test_racks_without_a_choice_change_nothing(
    assignor: Sticky, replicas: int, brokers: Racks, racks: Racks
) -> None:
    cluster, members = java_cluster(UNIFORM, replicas, brokers), members_in(racks, ALL)
    assert assign(assignor, cluster, members) == assign(assignor, cluster, without_racks(members))


@pytest.mark.parametrize("assignor", STICKY)
def test_a_member_in_another_rack_takes_what_is_there(assignor: Sticky) -> None:
    """A group that was assigned without racks learns them: only mismatched partitions move."""
    cluster = racked_cluster("ab", {"t": [[0], [0], [1], [1]]})
    members = members_in("ab", [["t"], ["t"]])
    parts = [TopicPartition("t", number) for number in range(4)]
    before = {"consumer0": [parts[0], parts[2]], "consumer1": [parts[1], parts[3]]}
    found = assign(assignor, cluster, owning(assignor, members, before, 1))
    if assignor.supports_cooperative:
        assert found == {"consumer0": parts[:1], "consumer1": parts[3:]}
        found = assign(assignor, cluster, owning(assignor, members, found, 2))
    assert found == {"consumer0": parts[:2], "consumer1": parts[2:]}


def test_a_large_group_in_racks() -> None:
    racks = [f"r{number % 3}" for number in range(300)]
    cluster = java_cluster({f"t{number}": 100 for number in range(30)}, 2, ["r0", "r1", "r2"])
    topics = [f"t{number}" for number in range(30)]
    members = members_in(racks, [topics] * 300)
    first = assign(StickyPartitionAssignor, cluster, members)
    assert quality(cluster, members, first) == (300 * 10**2, 0)
    half = {name: first[name] for name in list(members)[:150]}
    fewer = {name: members[name] for name in half}
    second = assign(
        StickyPartitionAssignor, cluster, owning(StickyPartitionAssignor, fewer, half, 1)
    )
    assert quality(cluster, fewer, second) == (150 * 20**2, 0)
    assert all(set(half[name]) <= set(second[name]) for name in half)


@pytest.mark.parametrize("assignor", STICKY)
def test_a_large_group_in_racks_with_many_subscriptions(assignor: Sticky) -> None:
    """The search for exchanges between racks would take minutes, and is left out."""
    racks = [f"r{number % 6}" for number in range(120)]
    names = [f"t{number}" for number in range(60)]
    cluster = java_cluster(dict.fromkeys(names, 40), 2, sorted(set(racks)))
    topics = [
        [name for name in names if crc32(b"%s %d" % (name.encode(), member)) % 5]
        for member in range(120)
    ]
    members = members_in(racks, topics)
    plain = assign(assignor, cluster, without_racks(members))
    found = assign(assignor, cluster, members)
    assert sorted(map(len, found.values())) == sorted(map(len, plain.values()))
    assert mismatches(cluster, members, found) < mismatches(cluster, members, plain)
    assert assign(assignor, cluster, owning(assignor, members, found, 1)) == found
