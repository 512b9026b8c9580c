"""Who owns what before a rebalance, when members may report different generations."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.structs import TopicPartition

GENERATION = struct.Struct(">i")
"""The user data of cooperative members: the generation of what they own."""


class Claim(NamedTuple):
    """What a member claims to own, and the generation in which it got it (-1: unknown)."""

    generation: int
    partitions: Iterable[TopicPartition]


def settle(claims: Mapping[str, Claim]) -> dict[str, list[TopicPartition]]:
    """Return what each member owns, every partition at most once.

    The claim of the newest generation counts. Two claims of the same generation contradict each
    other, so the partition then counts as unowned.
    """
    best: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for member, (generation, partitions) in claims.items():
        for tp in set(partitions):
            if tp not in best or generation > best[tp]:
                best[tp], owners[tp] = generation, member
            elif generation == best[tp]:
                owners[tp] = None
    owned: dict[str, list[TopicPartition]] = {member: [] for member in claims}
    for tp, owner in owners.items():
        if owner is not None:
            owned[owner].append(tp)
    return owned


def claims_of(members: Mapping[str, ConsumerProtocolMemberMetadata]) -> dict[str, Claim]:
    """Return what cooperative members claim."""
    return {member: _claim(metadata) for member, metadata in members.items()}


def _claim(metadata: ConsumerProtocolMemberMetadata) -> Claim:
    generation = metadata.generation
    if generation < 0 and metadata.user_data and len(metadata.user_data) >= GENERATION.size:
        # Before version 2 the generation went into the user data.
        generation = GENERATION.unpack_from(metadata.user_data)[0]
    return Claim(generation, metadata.owned())


def without_moving(
    shares: Mapping[str, Iterable[TopicPartition]],
    claims: Mapping[str, Claim],
    owned: Mapping[str, Iterable[TopicPartition]],
) -> dict[str, list[TopicPartition]]:
    """Leave out partitions that other members claim: the next rebalance can assign them.

    Claims that did not count are included, because their members may be reading the partition. They
    do not entitle to it: the member whose claim counted is reading it, too.
    """
    taken = set().union(*(claim.partitions for claim in claims.values()))
    mine = {member: set(owned.get(member, ())) for member in shares}
    return {
        member: [tp for tp in share if tp in mine[member] or tp not in taken]
        for member, share in shares.items()
    }
