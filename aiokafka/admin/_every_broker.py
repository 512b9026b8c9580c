"""Ask all brokers of the cluster the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from aiokafka._tasks import together
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._routing import Router
from aiokafka.errors import KafkaError

__all__ = ["of_every_broker"]

V = TypeVar("V")


async def of_every_broker(
    router: Router, ask: Callable[[int], Awaitable[Iterable[V]]], deadline: float
) -> list[V]:
    """Return what `ask` returns for the node ids of all brokers, which it asks at once.

    A broker that goes away leaves what it cared for to others, perhaps to one that has been asked
    already: after an error that may pass, all are asked again. Another error ends the call at once.
    """

    async def one(node_id: int) -> Iterable[V] | KafkaError:
        try:
            return await ask(node_id)
        except KafkaError as error:
            if not error.retriable:
                raise
            return error

    async def attempt() -> list[V]:
        metadata = await fetch_metadata(router, [], deadline)
        found: list[V] = []
        for part in await together(one(broker.node_id) for broker in metadata.brokers):
            if isinstance(part, KafkaError):
                raise part
            found += part
        return found

    return await router.retry(attempt, deadline)
