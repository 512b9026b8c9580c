"""Describing groups of every type in one form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiokafka.admin._classic_groups import describe_classic
from aiokafka.admin._consumer_groups import consumer_groups
from aiokafka.admin._coordinators import by_coordinator
from aiokafka.admin._group_values import GroupDescription
from aiokafka.admin._routing import Router
from aiokafka.admin._share_groups import share_groups
from aiokafka.admin._streams_groups import streams_groups
from aiokafka.errors import GroupIdNotFound, KafkaError, UnsupportedVersionError

__all__ = ["describe_groups"]

Answers = Mapping[str, GroupDescription | KafkaError]
Describe = Callable[[Router, int, list[str], bool, float], Awaitable[Answers]]

# Nearly all groups are of the first types. A group that is not of a type is not found there.
_TYPES: tuple[Describe, ...] = (
    describe_classic,
    consumer_groups.describe,
    share_groups.describe,
    streams_groups.describe,
)
_OF_ANOTHER_TYPE = (GroupIdNotFound, UnsupportedVersionError)


async def describe_groups(
    router: Router, group_ids: Iterable[str], with_operations: bool, deadline: float
) -> dict[str, GroupDescription]:
    """Return a description of each group; GroupIdNotFound is the error of one that is not there."""

    async def send(node_id: int, part: list[str]) -> Answers:
        found: dict[str, GroupDescription | KafkaError] = {}
        left = part
        for describe in _TYPES:
            try:
                answers = await describe(router, node_id, left, with_operations, deadline)
            except UnsupportedVersionError:
                continue  # This broker has no such groups.
            found |= answers
            left = [g for g in left if isinstance(found.get(g), _OF_ANOTHER_TYPE)]
            if not left:
                break
        return found | {g: GroupIdNotFound(f"group {g!r} does not exist") for g in left}

    return await by_coordinator(router, group_ids, router.in_half(send, deadline), deadline)
