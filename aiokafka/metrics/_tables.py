"""What each metric is: its kind and unit, by group and name."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aiokafka.metrics._histogram import Histogram
from aiokafka.metrics._values import Distribution, Metric, MetricKind

__all__ = ["GroupWriter"]

_UNITS = {
    "bytes": "bytes",
    "byte": "bytes",
    "size": "bytes",
    "records": "records",
    "record": "records",
}
_TIMES = {
    "-ms": "ms",
    "-latency": "ms",
    "-time": "ms",
    "-time-total": "ms",
    "-ns-total": "ns",
    "-seconds-ago": "s",
    "-age": "s",
}


class GroupWriter(NamedTuple):
    """Makes the metrics of one group, with the same tags."""

    group: str
    tags: Mapping[str, str]

    def counters(self, **values: float) -> Iterator[Metric]:
        """Yield a counter for each value; names are given with underscores."""
        return self._each(MetricKind.COUNTER, values)

    def gauges(self, **values: float | None) -> Iterator[Metric]:
        """Yield a gauge for each value that is known."""
        return self._each(MetricKind.GAUGE, {n: v for n, v in values.items() if v is not None})

    def histograms(self, **values: Histogram) -> Iterator[Metric]:
        """Yield what each histogram has counted."""
        return self._each(
            MetricKind.HISTOGRAM, {n: Distribution(*v.read()) for n, v in values.items()}
        )

    def tagged(self, group: str, **tags: str | int) -> GroupWriter:
        """Return a writer for `group`, with these tags besides."""
        named = {name.replace("_", "-"): str(value) for name, value in tags.items()}
        return GroupWriter(group, {**self.tags, **named})

    def _each(
        self, kind: MetricKind, values: Mapping[str, float | Distribution]
    ) -> Iterator[Metric]:
        for key, value in values.items():
            name, unit = _name_and_unit(key)
            yield Metric(self.group, name, value, kind, unit, self.tags)


@functools.cache  # the keys are written in the code: there are some hundred
def _name_and_unit(key: str) -> tuple[str, str]:
    name = key.replace("_", "-")
    for ending, unit in _TIMES.items():
        if name.endswith(ending):
            return name, unit
    return name, next((_UNITS[word] for word in name.split("-") if word in _UNITS), "")
