"""Assignments by the racks of members and replicas (KIP-881)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import needs_racks
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
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
def groups(draw: st.DrawFn) -> tuple[ClusterMetadata, Members]:
    """A cluster and a group. Topics of the same size are frequent, and so are equal
    subscriptions."""
    rack = st.sampled_from(["a", "b", "c", None])
    brokers = draw(st.lists(rack, min_size=1, max_size=4))
    nodes = st.lists(
        st.integers(0, len(brokers) - 1), min_size=1, max_size=len(brokers), unique=True
    )
    topics = {
        f"t{i}": draw(st.lists(nodes, min_size=size, max_size=size))
        for i, size in enumerate(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    }
    racks = draw(st.lists(rack, min_size=1, max_size=5))
    names = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True)
    wishes = st.one_of(st.just(sorted(topics)), names)
    members = members_in(racks, [draw(wishes) for _ in racks])
    return racked_cluster(brokers, topics), members


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
