"""The clients of this process that have metrics, for what exports them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiokafka.metrics._values import MetricsSnapshot

__all__ = ["MeasuredClient", "clients", "register", "unregister"]


class MeasuredClient(Protocol):
    """A producer, a consumer, an admin client."""

    def metrics(self) -> MetricsSnapshot:
        """Return the numbers of its work so far."""


# Not a WeakSet: another thread may list them while clients are made. A dict is listed in one go.
_CLIENTS: dict[int, weakref.ref[MeasuredClient]] = {}


def register(client: MeasuredClient) -> None:
    """Count `client` in, for as long as the program refers to it."""
    number = id(client)
    _CLIENTS[number] = weakref.ref(client, lambda _: _CLIENTS.pop(number, None))


def unregister(client: MeasuredClient) -> None:
    """Count `client` in no more."""
    _CLIENTS.pop(id(client), None)


def clients() -> list[MeasuredClient]:
    """Return the clients that there are now."""
    found = [reference() for reference in list(_CLIENTS.values())]
    return [client for client in found if client is not None]
