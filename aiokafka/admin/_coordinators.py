"""Send an admin request to the coordinators of groups or transactional ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka._tasks import together
from aiokafka.admin._items import attempt, by_node, settle
from aiokafka.admin._routing import Call, Router
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaError, UnsupportedVersionError
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest

__all__ = ["by_coordinator"]

V = TypeVar("V")

_NAMES = {CoordinationType.GROUP: "group", CoordinationType.TRANSACTION: "transactional id"}


async def by_coordinator(
    router: Router,
    group_ids: Iterable[str],
    send: Callable[[int, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
    deadline: float,
    *,
    kind: CoordinationType = CoordinationType.GROUP,
) -> dict[str, V]:
    """Ask the coordinator of each group, all coordinators at once, and return what each said.

    With the kind CoordinationType.TRANSACTION these are transactional ids. `send` asks one node
    about its groups. Those with a retriable error are asked about again, at their new coordinator.
    Raises as `_items.settle` does.
    """

    async def ask(left: list[str]) -> Mapping[str, V | KafkaError]:
        found: dict[str, V | KafkaError] = {}
        nodes: dict[int, list[str]] = {}
        for group_id, home in (await _find(router, left, kind, deadline)).items():
            if isinstance(home, KafkaError):
                found[group_id] = home
            else:
                nodes.setdefault(home, []).append(group_id)
        return found | await by_node(nodes, send)

    return await settle(router, group_ids, ask, deadline)


async def _find(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    """Return the coordinator of each key: in one request, or before Kafka 3.0 in one each."""
    try:
        return await _look_up(router, keys, kind, deadline)
    except UnsupportedVersionError:
        if len(keys) == 1:
            raise
    found: dict[str, int | KafkaError] = {}
    for part in await together(
        attempt(_look_up(router, [key], kind, deadline), [key]) for key in keys
    ):
        found |= part
    return found


async def _look_up(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    call = Call(FindCoordinatorRequest, lambda version: lookup_of(version, kind, keys))
    response = await router.to_any(call, deadline)
    homes = coordinators_in(response, {key: f"{_NAMES[kind]} {key!r}" for key in keys})
    return {key: router.learn(home) for key, home in homes.items()}
