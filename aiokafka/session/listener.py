"""Report rebalances to a session and to the application's own listener."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Set
from typing import Any

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

__all__ = ["SessionListener"]


class SessionListener(ConsumerRebalanceListener):
    """Stands between the consumer and the application's own listener, which it calls second."""

    def __init__(
        self,
        on_revoked: Callable[[Set[TopicPartition]], Awaitable[None]],
        on_lost: Callable[[Set[TopicPartition]], None],
    ) -> None:
        self.inner: Any = None
        """The listener of the application."""
        self._on_revoked = on_revoked
        self._on_lost = on_lost

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self._on_revoked(revoked)
        if self.inner is not None:
            await _call(self.inner.on_partitions_revoked, revoked)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._on_lost(lost)
        if self.inner is not None:
            # Listeners that are not subclasses may have the other two methods only.
            on_lost = getattr(self.inner, "on_partitions_lost", self.inner.on_partitions_revoked)
            await _call(on_lost, lost)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        if self.inner is not None:
            await _call(self.inner.on_partitions_assigned, assigned)


async def _call(method: Callable[[Any], Any], partitions: Set[TopicPartition]) -> None:
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
