"""The clients of this process that have metrics, for what exports them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aiokafka.metrics._values import MetricsSnapshot

__all__ = ["MeasuredClient", "as_clients", "clients", "register", "unregister"]


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


def as_clients(argument: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return clients that have metrics. Raises TypeError for what is none, or for a single one."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{argument}: must be several clients, not one {type(values).__name__}")
    found = tuple(values)
    for value in found:
        if isinstance(value, type) or not callable(getattr(value, "metrics", None)):
            raise TypeError(f"{argument}: must be clients, which have metrics(), not {value!r}")
    return found


def clients() -> list[MeasuredClient]:
    """Return the clients that there are now."""
    found = [reference() for reference in list(_CLIENTS.values())]
    return [client for client in found if client is not None]
