"""Histograms, and the registry of clients whose metrics are exported.

The module is compiled if possible (_clients.pxd), because each request is counted in several
histograms.
"""

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
"""Upper bounds of the buckets for durations in milliseconds."""

SIZE_BYTES = tuple(2**power for power in range(7, 27, 2))
"""Upper bounds of the buckets for sizes, from 128 bytes to 32 MiB."""


class Histogram:
    """Counts values in buckets with fixed bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the upper bounds of the buckets, in ascending order."""
        self._bounds = tuple(bounds)
        # As float: comparing a float with an int takes more than twice as long.
        self._limits = tuple(float(bound) for bound in bounds)
        self._first = self._limits[0]
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._max = 0.0

    def observe(self, value: float) -> None:
        """Count `value`."""
        # Check the first bucket before the binary search: most latencies on a fast network, and
        # most throttle times, are in this bucket.
        bucket = 0 if value <= self._first else bisect_left(self._limits, value)
        self._counts[bucket] += 1
        self._sum += value
        if value > self._max:
            self._max = value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)

    def absorb(self, other: Histogram) -> None:
        """Add the values of `other`. Both histograms must have the same bounds."""
        self._counts = [sum(pair) for pair in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum
        self._max = max(self._max, other._max)

    def read(self) -> tuple[int, float, float, tuple[tuple[float, int], ...]]:
        """Return the fields of a `Distribution`, in their order."""
        total = 0
        buckets = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return total, self._sum, self._max, tuple(buckets)


class MeasuredClient(Protocol):
    """Any object with the method `metrics`, such as a producer."""

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics of this moment."""


# A WeakSet cannot be iterated while another thread adds a client. Copying the values of a dict is
# atomic, so this is a dict of weak references, by the ids of the clients.
_CLIENTS: dict[int, weakref.ref[MeasuredClient]] = {}


def register(client: MeasuredClient) -> None:
    """Add `client` to the registry, by a weak reference, so that exporters include its metrics."""
    number = id(client)
    _CLIENTS[number] = weakref.ref(client, lambda _: _CLIENTS.pop(number, None))


def unregister(client: MeasuredClient) -> None:
    """Remove `client` from the registry. If it is not registered, do nothing."""
    _CLIENTS.pop(id(client), None)


def as_clients(argument: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return `values` as a tuple. Raises TypeError for a single client, and for an object without
    the method `metrics`."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{argument}: must be several clients, not one {type(values).__name__}")
    found = tuple(values)
    for value in found:
        if isinstance(value, type) or not callable(getattr(value, "metrics", None)):
            raise TypeError(f"{argument}: must be clients, which have metrics(), not {value!r}")
    return found


def clients() -> list[MeasuredClient]:
    """Return the registered clients that are not garbage-collected yet."""
    found = [reference() for reference in list(_CLIENTS.values())]
    return [client for client in found if client is not None]
