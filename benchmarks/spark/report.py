"""The figures of Spark as tables, and as a section of `RESULTS.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.spark.rows import CONFLUENT, JVM, OURS, OURS_NARROW, ROWS, Row
from benchmarks.targets import Target

__all__ = ["render_row", "render_section", "spark_targets"]

_INTRODUCTION = """\
## In Spark

Written by `make bench-spark`: one broker, a Spark session of its own for each client, all rows in
one run, clients in turn, medians over the rounds after a warm-up. CPU is that of the session with
all its processes, JVM and Python, without the broker; rows a second are by the clock. "JVM" is
Spark's own connector with its defaults; "JVM large fetches" is the same with 8 MiB for each
partition and 10,000 records a poll, which is what the limits for our CPU time refer to; in rows
that write all have the same settings. "confluent" is a source over confluent-kafka with Arrow
batches (`benchmarks/spark/confluent_source.py`); we want a third of its CPU time at most. "ours
value alone" has `.schema("value binary")`.
"""
_CONFLUENT_CPU = 1 / 3


def render_section(kept: dict[str, Any]) -> str:
    """All rows; `kept` by master and name of the row."""
    parts = [_INTRODUCTION]
    for master in sorted({master for master, _ in map(_split, kept)}):
        figures = {
            row.name: kept[f"{master} {row.name}"] for row in ROWS if f"{master} {row.name}" in kept
        }
        known = [row for row in ROWS if row.name in figures]
        parts.append(f"### {master}\n")
        lines = _header()
        for row in known:
            lines += _lines(row, figures[row.name]["clients"])
        parts.append("\n".join(lines) + "\n")
        parts += [f"{about}\n" for about in _circumstances(known, figures)]
    return "\n".join(parts)


def render_row(row: Row, clients: dict[str, dict[str, float]]) -> str:
    """A table for one row."""
    return "\n".join(_header() + _lines(row, clients))


def _split(key: str) -> tuple[str, str]:
    master, _, name = key.partition(" ")
    return master, name


def _circumstances(rows: list[Row], figures: dict[str, Any]) -> list[str]:
    """When and where it was measured, said once for all rows that have it in common."""
    found: dict[str, list[str]] = {}
    for row in rows:
        kept = figures[row.name]
        versions = ", ".join(kept["versions"])
        about = f"{kept['rounds']} rounds on {kept['date']}; {kept['machine']}; {versions}."
        found.setdefault(about, []).append(f"`{row.name}`")
    return [f"{', '.join(names)}: {about}" for about, names in found.items()]


def _header() -> list[str]:
    return [
        "| Work | Client | rows/s | CPU s per million | our CPU to its | wanted "
        "| our rows/s to its | wanted |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]


def _lines(row: Row, clients: dict[str, dict[str, float]]) -> list[str]:
    ours = clients.get(OURS)
    lines = []
    for number, (client, figures) in enumerate(clients.items()):
        cells = ["" if number else row.title, client, _whole(figures["rate"])]
        cells.append(f"{figures['cpu']:.2f}")
        if ours is None or client in (OURS, OURS_NARROW):
            cells += ["", "", "", ""]
        else:
            cpu, speed = ours["cpu"] / figures["cpu"], ours["rate"] / figures["rate"]
            cells += [f"{cpu:.2f}", _limit("<=", cpu_wanted(row, client)), f"{speed:.1f}"]
            cells.append(_limit(">=", speed_wanted(row, client)))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def cpu_wanted(row: Row, client: str) -> float | None:
    """The most that our CPU time may be of the client's."""
    if client == CONFLUENT:
        return _CONFLUENT_CPU
    return row.cpu if client == row.baseline else None


def speed_wanted(row: Row, client: str) -> float | None:
    """The least that our speed has to be of the client's."""
    return row.speed if client == JVM else None


def _limit(sign: str, value: float | None) -> str:
    return "" if value is None else f"{sign} {value:.3g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def spark_targets(kept: dict[str, Any]) -> list[tuple[str, Target, float]]:
    """Every limit of the rows in Spark, with what was reached; `kept` as in `render_section`."""
    return []
