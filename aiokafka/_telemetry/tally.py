"""What of a snapshot is pushed, and what the brokers know already."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from aiokafka.metrics import Distribution, Metric, MetricKind
from aiokafka.protocol.otlp import Point, Series

__all__ = ["CountsTold", "Entry", "Told", "Wanted", "entries", "pieces", "series"]

_MOST_POINTS = 50
"""Values of one metric that are encoded in one go."""

_TURN = 250
"""Values that are looked at before other tasks get a turn."""

Labels = tuple[tuple[str, str], ...]
Value = float | Distribution
Told = dict[tuple[str, Labels], tuple[Value, int]]
"""Values, and when brokers were told them (nanoseconds since 1970)."""


class Entry(NamedTuple):
    """A value that is to be pushed."""

    name: str
    labels: Labels
    metric: Metric

    @property
    def key(self) -> tuple[str, Labels]:
        """What it is the value of."""
        return self.name, self.labels


Wanted = list[list[Entry]]
"""Values that are to be pushed, those of each name and each number of labels together."""


class CountsTold:
    """Owns the value of each count that brokers know, and since when they do.

    It is as large as the latest snapshot: what that lacks is forgotten.
    """

    def __init__(self, began_ns: int) -> None:
        """Begin when brokers know nothing of what was counted since `began_ns` (since 1970)."""
        self._began_ns = began_ns
        self._told: Told = {}

    def point(self, entry: Entry, *, is_delta: bool) -> Point:
        """Return the value to push: what was counted since the client was made, or if `is_delta`
        since brokers were told last."""
        value = entry.metric.value
        if not is_delta or entry.metric.kind is MetricKind.GAUGE:
            return Point(entry.labels, self._began_ns, value)
        before, since = self._told.get(entry.key, (None, self._began_ns))
        return Point(entry.labels, since, _difference(value, before))

    async def after(self, every: Wanted, told: Iterable[Entry], at_ns: int) -> Told:
        """Return what brokers will know when they were `told` some of `every` value that there is:
        for `settle`. Other tasks get their turns."""
        kept: Told = {}
        for number, entry in enumerate(chain.from_iterable(every), 1):
            if (before := self._told.get(entry.key)) is not None:
                kept[entry.key] = before
            await _turn(number)
        for number, entry in enumerate(told, 1):
            if entry.metric.kind is not MetricKind.GAUGE:
                kept[entry.key] = (entry.metric.value, at_ns)
            await _turn(number)
        return kept

    def settle(self, told: Told) -> None:
        """Take note that brokers know this."""
        self._told = told


async def entries(metrics: Iterable[Metric], wants: Callable[[str], bool]) -> Wanted:
    """Return what is wanted of a snapshot by name, those of the whole client first.

    There may be very many, so other tasks get their turns.
    """
    wanted: dict[tuple[int, str], list[Entry]] = {}
    names: dict[tuple[str, str], str | None] = {}
    for number, metric in enumerate(metrics, 1):
        # Of each name there may be one for each of thousands of partitions.
        key = metric.group, metric.name
        if key not in names:
            name = metric.telemetry_name
            names[key] = name if wants(name) else None
        known = names[key]
        if known is not None:
            entry = Entry(known, _labels(metric), metric)
            wanted.setdefault((len(entry.labels), known), []).append(entry)
        await _turn(number)
    return [wanted[rank] for rank in sorted(wanted)]


async def _turn(number: int) -> None:
    """Give other tasks a turn now and then: `number` of the steps are done."""
    if number % _TURN == 0:
        await asyncio.sleep(0)


def pieces(wanted: Wanted) -> Iterator[list[Entry]]:
    """Split it into lists of one metric each, none of them long."""
    for same in wanted:
        for start in range(0, len(same), _MOST_POINTS):
            yield same[start : start + _MOST_POINTS]


def series(piece: list[Entry], tally: CountsTold, *, is_delta: bool) -> Series:
    """Return what is pushed of one list."""
    first = piece[0].metric
    points = tuple(tally.point(entry, is_delta=is_delta) for entry in piece)
    return Series(piece[0].name, first.unit, first.kind, points)


def _labels(metric: Metric) -> Labels:
    # The broker knows the client id by itself.
    tags = metric.tags
    return tuple([(_label(name), tags[name]) for name in sorted(tags) if name != "client-id"])


@functools.cache
def _label(tag: str) -> str:
    return tag.replace("-", "_")


def _difference(value: Value, before: Value | None) -> Value:
    """Return what was counted since; all of it, if it was counted from zero again."""
    if isinstance(value, Distribution):
        if not isinstance(before, Distribution) or before.count > value.count:
            return value
        pairs = zip(value.buckets, before.buckets, strict=True)
        buckets = tuple((bound, count - less) for (bound, count), (_, less) in pairs)
        return Distribution(value.count - before.count, value.sum - before.sum, value.max, buckets)
    if before is None or isinstance(before, Distribution) or before > value:
        return value
    return value - before
