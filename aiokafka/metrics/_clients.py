"""The clients of this process that have metrics, for what exports them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokafka.metrics._values import MetricsSnapshot

__all__ = ["MeasuredClient", "clients", "register"]


class MeasuredClient(Protocol):
    """A producer, a consumer, an admin client."""

    def metrics(self) -> MetricsSnapshot:
        """Return the numbers of its work so far."""


_CLIENTS: weakref.WeakSet[MeasuredClient] = weakref.WeakSet()


def register(client: MeasuredClient) -> None:
    """Count `client` in, for as long as the program refers to it."""
    _CLIENTS.add(client)


def clients() -> list[MeasuredClient]:
    """Return the clients that there are now."""
    return list(_CLIENTS)
