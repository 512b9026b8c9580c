"""Count values by size: all that runs of the metrics while no snapshot is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["LATENCY_MS", "SIZE_BYTES", "Histogram"]

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
