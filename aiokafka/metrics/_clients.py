"""The clients of this process that have metrics, for what exports them."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aiokafka.metrics._values import MetricsSnapshot

__all__ = [
    "LATENCY_MS",
    "SIZE_BYTES",
    "Histogram",
    "MeasuredClient",
    "as_clients",
    "clients",
    "register",
    "unregister",
]


# -- Count values by size: all that runs of the metrics while no snapshot is asked for


LATENCY_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Bounds in milliseconds for whatever takes time."""

SIZE_BYTES = tuple(2**power for power in range(7, 27, 2))
"""Bounds for sizes, from 128 bytes to 32 MiB."""


class Histogram:
    """Counts values in buckets with fixed bounds."""

    __slots__ = ("_bounds", "_counts", "_max", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin empty. `bounds` are the upper ends of the buckets, in ascending order."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._max = 0.0

    def observe(self, value: float) -> None:
        """Count `value`."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value
        if value > self._max:
            self._max = value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    def absorb(self, other: Histogram) -> None:
        """Count what `other`, which has the same bounds, has counted."""
        self._counts = [sum(pair) for pair in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum
        self._max = max(self._max, other._max)

    def read(self) -> tuple[int, float, float, tuple[tuple[float, int], ...]]:
        """Return what was counted so far: the fields of a `Distribution`, in their order."""
        total = 0
        buckets = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return total, self._sum, self._max, tuple(buckets)


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
