"""Histograms, and the registry of clients with metrics, for exporters."""

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


# -- Histograms


LATENCY_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Bounds of durations in milliseconds."""

SIZE_BYTES = tuple(2**power for power in range(7, 27, 2))
"""Bounds of sizes, from 128 bytes to 32 MiB."""


class Histogram:
    """Counts values in buckets with fixed bounds."""

    __slots__ = ("_bounds", "_counts", "_max", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the upper bounds of the buckets, in ascending order."""
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
        """The number of values."""
        return sum(self._counts)

    def absorb(self, other: Histogram) -> None:
        """Add the counts of `other`, which has the same bounds."""
        self._counts = [sum(pair) for pair in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum
        self._max = max(self._max, other._max)

    def read(self) -> tuple[int, float, float, tuple[tuple[float, int], ...]]:
        """Return the fields of a `Distribution`, in order."""
        total = 0
        buckets = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return total, self._sum, self._max, tuple(buckets)


class MeasuredClient(Protocol):
    """A client with `metrics()`."""

    def metrics(self) -> MetricsSnapshot:
        """Return the current metrics."""


# Not a WeakSet: another thread may list the clients while clients are created. Listing a dict is
# atomic.
_CLIENTS: dict[int, weakref.ref[MeasuredClient]] = {}


def register(client: MeasuredClient) -> None:
    """Register `client` with a weak reference, so that exporters include its metrics."""
    number = id(client)
    _CLIENTS[number] = weakref.ref(client, lambda _: _CLIENTS.pop(number, None))


def unregister(client: MeasuredClient) -> None:
    """Remove `client` from the registry, if it is registered."""
    _CLIENTS.pop(id(client), None)


def as_clients(argument: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return `values` as a tuple. Raises TypeError unless `values` is an iterable of clients, which
    have `metrics()`."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{argument}: must be several clients, not one {type(values).__name__}")
    found = tuple(values)
    for value in found:
        if isinstance(value, type) or not callable(getattr(value, "metrics", None)):
            raise TypeError(f"{argument}: must be clients, which have metrics(), not {value!r}")
    return found


def clients() -> list[MeasuredClient]:
    """Return the registered clients that still exist."""
    found = [reference() for reference in list(_CLIENTS.values())]
    return [client for client in found if client is not None]
