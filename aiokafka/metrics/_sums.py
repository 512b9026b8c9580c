"""Sums over clients that share their labels, which do not fall when one of them is gone."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka.metrics._values import Distribution

__all__ = ["LastingSums", "Value", "added"]

K = TypeVar("K", bound=Hashable)
Value = float | Distribution


class LastingSums:
    """Knows what clients had counted that are gone, or that count something no more.

    A counter that falls is one that began again, for those who read it: they would take the whole
    rest of a sum for new. So what a client had counted at the last look stays in the sum, for as
    long as another client counts the same.

    Owns: what each client had counted at the last look, and the sums of what is gone. There is no
    more of it than there are series.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[weakref.ref[Any], Mapping[Any, Value]]] = {}
        self._sums: dict[Any, Value] = {}

    def look(self, seen: Iterable[tuple[Any, Mapping[K, Value]]]) -> Mapping[K, Value]:
        """Return what has to be added to the sums of `seen`: what each client counts now."""
        now = {id(client): (weakref.ref(client), counts) for client, counts in seen}
        for number, (client, before) in self._last.items():
            # An id may belong to another object by now.
            counts = now[number][1] if number in now and now[number][0]() is client() else {}
            for key in before.keys() - counts.keys():
                self._sums[key] = added(self._sums.get(key), before[key])
        self._last = now
        alive = {key for _, counts in now.values() for key in counts}
        self._sums = {key: value for key, value in self._sums.items() if key in alive}
        return self._sums


def added(before: Value | None, value: Value) -> Value:
    """Return the sum of two numbers, or of two distributions with the same bounds."""
    if before is None:
        return value
    if isinstance(value, Distribution) and isinstance(before, Distribution):
        pairs = zip(before.buckets, value.buckets, strict=True)
        buckets = tuple((bound, count + more) for (bound, count), (_, more) in pairs)
        largest = max(before.max, value.max)
        return Distribution(before.count + value.count, before.sum + value.sum, largest, buckets)
    assert not isinstance(value, Distribution) and not isinstance(before, Distribution)
    return before + value
