"""Who owns what before a rebalance, when members may report different generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka.structs import TopicPartition


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
