"""Ask all brokers of the cluster the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aiokafka._tasks import together
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._routing import Router
from aiokafka.errors import KafkaError, KafkaTimeoutError

__all__ = ["Gathered", "of_every_broker"]

V = TypeVar("V")


@dataclass
class Gathered(Generic[V]):
    """What brokers have said, and the error of each broker that has said nothing, by its id."""

    values: list[V] = field(default_factory=list)
    errors: dict[int, KafkaError] = field(default_factory=dict)


async def of_every_broker(
    router: Router, ask: Callable[[int], Awaitable[Iterable[V]]], deadline: float
) -> Gathered[V]:
    """Return what `ask` returns for the node ids of all brokers, which it asks at once.

    A broker that goes away leaves what it cared for to others, perhaps to one that has been asked
    already: after an error that may pass, all are asked again. Another error ends the call at once.
    At the deadline the brokers without a response are told of beside what the others have said.
    Raises KafkaTimeoutError if that is nothing.
    """
    gathered: Gathered[V] = Gathered()

    async def one(node_id: int) -> Iterable[V] | KafkaError:
        try:
            return await ask(node_id)
        except KafkaError as error:
            if not error.retriable:
                raise
            return error

    async def attempt() -> None:
        nonlocal gathered
        metadata = await fetch_metadata(router, [], deadline)
        nodes = [broker.node_id for broker in metadata.brokers]
        found: Gathered[V] = Gathered()
        for node_id, part in zip(nodes, await together(map(one, nodes)), strict=True):
            if isinstance(part, KafkaError):
                found.errors[node_id] = part
            else:
                found.values += part
        # An attempt for which no time was left has learned nothing.
        if len(found.errors) < len(nodes):
            gathered = found
        for error in found.errors.values():
            raise error

    try:
        await router.retry(attempt, deadline)
    except KafkaTimeoutError:
        if not gathered.errors or not gathered.values:
            raise
        for node_id, error in gathered.errors.items():
            late = KafkaTimeoutError(f"node {node_id}: timed out; the last attempt: {error}")
            late.__cause__ = error
            gathered.errors[node_id] = late
    return gathered
