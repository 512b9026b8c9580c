"""How CPU time grows with the work: partitions, tasks, sizes of records, members of a group.

Each series has points of `x` and its cost. Between two of them the exponent of growth is the slope
in a plot of logarithms: 1 is linear, 2 is quadratic. What grows faster than it should is
super-linear.
"""

from __future__ import annotations

import math
import statistics
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.environments import python_of, run_client, run_script
from benchmarks.rows import CONFLUENT, OURS

__all__ = ["SERIES", "Series", "exponents", "is_linear", "measure_growth"]

_TOLERANCE = 0.25
"""Of an exponent: what caches and noise may do."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve.

    figure: what is taken of a result, `unit` what it is. exponent: how fast it may grow with `x`:
    not at all (0), or in proportion (1). given: the work for an `x`.
    """

    name: str
    title: str
    x: str
    unit: str
    xs: tuple[int, ...]
    workload: str
    figure: str
    exponent: float
    given: Callable[[int], dict[str, Any]]
    is_stored: bool = False


def _of_partitions(partitions: int) -> dict[str, Any]:
    return {"partitions": partitions, "records": 200_000, "keyed": True}


def _of_tasks(tasks: int) -> dict[str, Any]:
    return {"tasks": tasks, "records": min(4_000 * tasks, 131_072)}


def _of_size(size: int) -> dict[str, Any]:
    return {"size": size, "records": max(300, min(200_000, 200_000_000 // size))}


def _of_members(members: int) -> dict[str, Any]:
    return {"tasks": members, "partitions": 100, "records": 100}


_PARTITIONS = (10, 100, 1_000, 10_000)
_SIZES = (10, 100, 1_024, 10_240, 102_400, 1_048_576)

SERIES = (
    Series(
        name="read-partitions",
        title="Reading 200,000 records of 100 B from an increasing number of partitions",
        x="partitions",
        unit="CPU s of the process",
        xs=_PARTITIONS,
        workload="getmany",
        figure="process",
        exponent=1,
        given=_of_partitions,
        is_stored=True,
    ),
    Series(
        name="write-partitions",
        title="Writing 200,000 records of 100 B to an increasing number of partitions",
        x="partitions",
        unit="CPU s of the process",
        xs=_PARTITIONS,
        workload="send",
        figure="process",
        exponent=1,
        given=_of_partitions,
    ),
    Series(
        name="tasks",
        title="An increasing number of tasks that call send_and_wait, 100 B",
        x="tasks",
        unit="CPU us a record",
        xs=(1, 8, 64, 512, 1_024, 8_192),
        workload="send_in_tasks",
        figure="cpu_after",
        exponent=0,
        given=_of_tasks,
    ),
    Series(
        name="read-sizes",
        title="Reading records of increasing size",
        x="bytes",
        unit="CPU us a record",
        xs=_SIZES,
        workload="getmany",
        figure="cpu_after",
        exponent=1,
        given=_of_size,
        is_stored=True,
    ),
    Series(
        name="write-sizes",
        title="Writing records of increasing size",
        x="bytes",
        unit="CPU us a record",
        xs=_SIZES,
        workload="send",
        figure="cpu_after",
        exponent=1,
        given=_of_size,
    ),
    Series(
        name="members",
        title="Members of one group in one process: CPU until they share 100 partitions",
        x="members",
        unit="CPU ms",
        xs=(1, 10, 50, 100),
        workload="members",
        figure="cpu_ms",
        exponent=1,
        given=_of_members,
        is_stored=True,
    ),
)


def measure_growth(series: Series, servers: str, rounds: int) -> list[tuple[float, float]]:
    """Return the points, each the median over the rounds."""
    return [(x, _cost(series, x, servers, rounds)) for x in series.xs]


def _cost(series: Series, x: int, servers: str, rounds: int) -> float:
    topic = f"growth-{series.name}-{x}-{uuid.uuid4().hex[:6]}"
    work = {"servers": servers, "topic": topic, "partitions": 4, "size": 100, **series.given(x)}
    # A record for every partition at least: a new leader refuses its first requests.
    stored = work["records"] if series.is_stored else work["partitions"]
    _topic("fill", work | {"records": max(stored, work["partitions"])})
    costs = []
    try:
        for _ in range(rounds):
            result, usage = run_client(OURS, series.workload, work)
            costs.append(float((result | {"process": usage.cpu_seconds})[series.figure]))
            print(f"{series.name:18} {x:>9,} {costs[-1]:.4g}", file=sys.stderr, flush=True)
    finally:
        _topic("remove", work)
    return statistics.median(costs)


def _topic(action: str, work: dict[str, Any]) -> None:
    run_script(python_of(CONFLUENT), "topics.py", action, work)


def exponents(points: Points) -> list[float]:
    """Return the exponent of growth between each point and the next one."""
    return [
        math.log(cost / before) / math.log(x / x_before)
        for (x_before, before), (x, cost) in pairwise(points)
    ]


def is_linear(series: Series, points: Points) -> bool:
    """Whether nothing grows faster than it should."""
    return all(each <= series.exponent + _TOLERANCE for each in exponents(points))


def render_growth(series: Iterable[Series], kept: dict[str, Any]) -> str:
    """Return tables of what was measured; `kept` by the names of the series."""
    parts = [
        "## Growth\n\nCPU of this library alone. The exponent is that of the growth from the row "
        f"before: 1 is linear. Up to {_TOLERANCE} more than wanted counts as noise.\n"
    ]
    for each in series:
        if each.name not in kept:
            continue
        found = kept[each.name]
        points = found["points"]
        steps = ["", *(f"{step:.2f}" for step in exponents(points))]
        verdict = "met" if is_linear(each, points) else "**missed**"
        rows = [
            f"| {x:,} | {cost:.4g} | {step} |"
            for (x, cost), step in zip(points, steps, strict=True)
        ]
        parts.append(
            f"### {each.title}\n\n| {each.x} | {each.unit} | exponent |\n|---:|---:|---:|\n"
            + "\n".join(rows)
            + f"\n\nWanted: an exponent of at most {each.exponent}: {verdict}. "
            f"{found['rounds']} rounds on {found['date']}; {found['machine']}, "
            f"load {found['load']}.\n"
        )
    return "\n".join(parts)
