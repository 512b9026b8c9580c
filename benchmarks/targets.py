"""What a row is to show: a figure of ours beside a limit, or beside another client's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["METRICS", "Target", "at_least", "at_most", "verdict"]

METRICS = {
    "cpu": "CPU s per million",
    "cpu_after": "CPU s per million after the first",
    "cpu_ms": "CPU ms",
    "rate": "records/s",
    "rate_after": "records/s after the first",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_a_minute": "CPU s a minute",
    "rss_mib": "peak RSS MiB",
    "pause_ms": "longest pause ms",
    "pause_cpu_ms": "of it CPU, ms",
    "cpu_before": "CPU s per million in the first 32 MiB",
    "wall_before": "s per million in the first 32 MiB",
    "wall_after": "s per million after the first",
    "alone_p50_ms": "p50 ms without a flood",
    "growth_mib": "MiB that the second half of the run added",
    "cpu_full": "CPU after the first 32 MiB, to that before",
    "wall_full": "time after the first 32 MiB, to that before",
    "shares": "largest share of a task to the smallest",
    "interceptor": "CPU with a plain interceptor, to CPU alone",
    "recorder": "CPU with a tracer that records, to CPU alone",
    "no_recorder": "CPU with a tracer without a recorder, to CPU alone",
}
"""Every figure that a client may report, and how it is called in tables."""

Sample = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit for `metric` of ours: as it is or, with `to`, divided by that client's.

    client: whose figure it is, of those that are ours. at_least: the limit is a lower one.
    """

    metric: str
    limit: float
    client: str
    to: str | None = None
    at_least: bool = False

    @property
    def name(self) -> str:
        """Return what it is called in the store and in tables."""
        to = f", to {self.to}'s" if self.to else ""
        return f"{self.client}: {METRICS[self.metric]}{to}"

    @property
    def wanted(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.limit:.3g}"

    def reached(self, samples: Mapping[str, Sequence[Sample]]) -> float | None:
        """Return the median over the rounds, or None where a client did not run."""
        own, other = samples.get(self.client, ()), samples.get(self.to or self.client, ())
        if not own or not other:
            return None
        if self.to is None:
            return statistics.median(one[self.metric] for one in own)
        pairs = zip(own, other, strict=True)
        return statistics.median(one[self.metric] / peer[self.metric] for one, peer in pairs)

    def is_met(self, reached: float) -> bool:
        return reached >= self.limit if self.at_least else reached <= self.limit


def at_most(
    limit: float, metric: str = "cpu_after", *, client: str = "ours", to: str | None = None
) -> Target:
    return Target(metric=metric, limit=limit, client=client, to=to)


def at_least(limit: float, metric: str, *, to: str) -> Target:
    return Target(metric=metric, limit=limit, client="ours", to=to, at_least=True)


def verdict(target: Target, reached: float) -> str:
    """Return one line: what was measured, what is wanted, and whether the one is the other."""
    outcome = "met" if target.is_met(reached) else "missed"
    return f"{target.name}: {reached:.3g}, wanted {target.wanted}: {outcome}"
