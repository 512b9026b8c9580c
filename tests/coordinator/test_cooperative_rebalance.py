"""What a cooperative leader gives away, whatever its assignor says (KIP-429)."""

from __future__ import annotations

import pytest

from aiokafka.consumer.group.assignors import GroupAssignors
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from tests.coordinator.support import make_cluster


class NaiveAssignor(RangePartitionAssignor):
    """A program's own, which has not thought of two steps."""

    name = "naive"
    supports_cooperative = True


def claiming(numbers: list[int], generation: int) -> ConsumerProtocolMemberMetadata:
    return ConsumerProtocolMemberMetadata(3, ["t"], b"", [("t", numbers)], generation)


@pytest.mark.parametrize("kind", [NaiveAssignor, CooperativeStickyAssignor])
@pytest.mark.parametrize(
    ("claims", "given"),
    [
        # One member has all: the other gets nothing yet.
        ({"a": ([], 1), "b": ([0, 1, 2, 3], 2)}, {"a": set(), "b": {2, 3}}),
        # A member has slept through a rebalance. Both read, and only the claim of `b` counts.
        ({"a": ([0, 1], 1), "b": ([0, 1, 2, 3], 2)}, {"a": set(), "b": {2, 3}}),
        # It is not known who is right: both give it up.
        ({"a": ([0, 1], 2), "b": ([0, 1], 2)}, {"a": set(), "b": {2, 3}}),
    ],
)
def test_nothing_moves_in_the_first_step(
    kind: type[RangePartitionAssignor],
    claims: dict[str, tuple[list[int], int]],
    given: dict[str, set[int]],
) -> None:
    members = {name: claiming(*claim) for name, claim in claims.items()}
    encoded = GroupAssignors([kind]).assign(kind.name, make_cluster(t=4), members)
    shares = {
        name: {tp.partition for tp in ConsumerProtocolMemberAssignment.decode(data).partitions()}
        for name, data in encoded.items()
    }
    if kind is NaiveAssignor:
        assert shares == given
    for name, share in shares.items():
        for other, (numbers, generation) in claims.items():
            entitled = set(claims[name][0]) if claims[name][1] > generation else set()
            assert other == name or not (share - entitled) & set(numbers)
