"""Send an admin request to the coordinators of groups or transactional ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from aiokafka.admin._items import attempt, by_node, settle
from aiokafka.admin._routing import Call, Router
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaError, KafkaProtocolError, UnsupportedVersionError, for_code
from aiokafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["by_coordinator"]

V = TypeVar("V")

_FIRST_OF_SEVERAL = 4
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
    router: Router, group_ids: list[str], kind: CoordinationType, deadline: float
) -> dict[str, int | KafkaError]:
    """Return the coordinator of each group: in one request, or before Kafka 3.0 in one each."""
    found: dict[str, Coordinator | KafkaError] = {}
    try:
        found |= await _look_up(router, group_ids, kind, deadline)
    except UnsupportedVersionError:
        each = (attempt(_look_up(router, [key], kind, deadline), [key]) for key in group_ids)
        for part in await asyncio.gather(*each):
            found |= part
    return {
        group_id: _home(router, f"{_NAMES[kind]} {group_id!r}", found.get(group_id))
        for group_id in group_ids
    }


async def _look_up(
    router: Router, keys: list[str], kind: CoordinationType, deadline: float
) -> dict[str, Coordinator]:
    def build(version: int) -> FindCoordinatorRequest:
        if version >= _FIRST_OF_SEVERAL:
            return FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
        if len(keys) > 1:
            raise UnsupportedVersionError("FindCoordinator: several at once need Kafka 3.0")
        request = FindCoordinatorRequest(key=keys[0])
        if kind:
            request.key_type = kind
        return request

    response = await router.to_any(Call(FindCoordinatorRequest, build), deadline)
    if response.coordinators:
        return {found.key: found for found in response.coordinators}
    return {keys[0]: _in_new_form(keys[0], response)}


def _in_new_form(key: str, response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def _home(router: Router, what: str, found: Coordinator | KafkaError | None) -> int | KafkaError:
    """Return the node, which the router knows how to reach from now on."""
    if isinstance(found, KafkaError):
        return found
    if found is None:
        return KafkaProtocolError(f"{what}: the response does not name it")
    if found.error_code:
        reason = found.error_message or "its coordinator is not known"
        return for_code(found.error_code)(f"{what}: {reason}")
    return router.learn(found.node_id, found.host, found.port)
