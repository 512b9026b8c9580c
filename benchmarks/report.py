"""Keeps the newest figures of every row and renders them as ``RESULTS.md``."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.growth import SERIES, render_growth
from benchmarks.measure import Measured
from benchmarks.rows import OURS, ROWS, Row
from benchmarks.spark.report import render_section, spark_targets
from benchmarks.targets import METRICS, Target, verdict

RESULTS = Path(__file__).with_name("RESULTS.md")
STORE = Path(__file__).with_name("results.json")
_IN_MEMORY = "in-memory"
_SPARK = "spark"
_GROWTH = "growth"

_INTRODUCTION = """\
# Results

Written by `make bench`. Every client does the same work on the same broker, in turn, in a process
of its own; the figures are medians over the rounds. CPU is that of the whole process, imports and
shutdown included, user and system; "after the first" leaves out what is used up to the first record
(in rows about latency: while all is cold). "To ours" is the median over the rounds of the client's
figure divided by ours in the same round: above 1 we are better. The load is the machine's, in the
minute before the row ended; the bench and its broker are about 2 of it. Before the first round of a
workload one client runs it once, uncounted, so that no client meets a broker whose Java code is not
compiled yet. Machines are noisy; compare within a row.
"""


def save(row: Row, measured: Measured, rounds: int, versions: list[str]) -> None:
    """Replace the figures of one row, and write the report again."""
    found = {"clients": measured.clients, "reached": measured.reached}
    _keep(row.name, found | _conditions(rounds, versions))


def save_in_memory(table: str, rounds: int, versions: list[str]) -> None:
    """Replace the table of the records in memory, and write the report again."""
    _keep(_IN_MEMORY, {"table": table.strip()} | _conditions(rounds, versions))


def save_spark(
    name: str, result: dict[str, dict[str, float]], rounds: int, versions: list[str]
) -> None:
    """Replace the figures of one row in Spark, and write the report again."""
    rows = _load().get(_SPARK, {})
    rows[name] = {"clients": result} | _conditions(rounds, versions)
    _keep(_SPARK, rows)


def save_growth(name: str, points: list[tuple[float, float]], rounds: int, broker: str) -> None:
    """Replace one series of how the work grows, and write the report again."""
    series = _load().get(_GROWTH, {})
    series[name] = {"points": points} | _conditions(rounds, [broker])
    _keep(_GROWTH, series)


def _keep(name: str, figures: dict[str, Any]) -> None:
    store = _load()
    store[name] = figures
    STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
    RESULTS.write_text(render(store))


def _conditions(rounds: int, versions: list[str]) -> dict[str, Any]:
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return {
        "rounds": rounds,
        "date": today.isoformat(),
        "machine": machine(),
        "versions": versions,
        "load": round(os.getloadavg()[0], 1),
    }


def machine() -> str:
    """Processor, cores, memory, system and Python; no names of hosts or folders."""
    model = platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            names = {
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            }
        model = ", ".join(sorted(names)) or model
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except OSError:
        memory = 0.0
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def render(store: dict[str, Any]) -> str:
    parts = [_INTRODUCTION, _targets(store), _overview(store)]
    parts += [_details(row, store[row.name]) for row in ROWS if row.name in store]
    if _IN_MEMORY in store:
        kept = store[_IN_MEMORY]
        heading = f"## Record batches in memory\n\n{_circumstances(_IN_MEMORY, kept)}"
        parts.append(f"{heading}\n\n{kept['table']}\n")
    if _GROWTH in store:
        parts.append(render_growth(SERIES, store[_GROWTH]))
    if _SPARK in store:
        parts.append(render_section(store[_SPARK]))
    return "\n".join(parts)


def render_row(row: Row, measured: Measured) -> str:
    return "\n".join(_table(row, measured.clients, measured.reached))


def _load() -> dict[str, Any]:
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def _targets(store: dict[str, Any]) -> str:
    """What is wanted of every row, and what was reached in the last run of it."""
    lines = ["## Targets", "", "| Row | Figure | Wanted | Reached | |", "|---|---|---:|---:|---|"]
    found: list[tuple[str, Target, float]] = []
    for row in ROWS:
        reached = store.get(row.name, {}).get("reached", {})
        found += [(row.name, t, reached[t.name]) for t in row.targets if t.name in reached]
    for name, target, value in [*found, *spark_targets(store.get(_SPARK, {}))]:
        outcome = "met" if target.is_met(value) else "**missed**"
        lines.append(f"| `{name}` | {target.name} | {target.wanted} | {value:.3g} | {outcome} |")
    return "\n".join([*lines, ""])


def _overview(store: dict[str, Any]) -> str:
    peers = ["aiokafka", "confluent", "confluent asyncio", "kafka-python"]
    lines = [
        "## Overview",
        "",
        "| Work | Unit | Ours | " + " | ".join(peers) + " |",
        "|---|---|---:|" + "---:|" * len(peers),
    ]
    for row in ROWS:
        if row.name not in store:
            continue
        clients = store[row.name]["clients"]
        cells = [row.title, METRICS[row.metric], _figure(clients.get(OURS, {}).get(row.metric))]
        cells += [_figure(clients.get(peer, {}).get(row.metric)) for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _details(row: Row, kept: dict[str, Any]) -> str:
    lines = [
        f"## {row.title}",
        "",
        _circumstances(row.name, kept),
        "",
        *_table(row, kept["clients"], kept["reached"]),
        "",
    ]
    return "\n".join(lines)


def _circumstances(name: str, kept: dict[str, Any]) -> str:
    versions = ", ".join(kept["versions"])
    load = f", load {kept['load']}" if "load" in kept else ""
    return (
        f"`{name}`: {kept['rounds']} rounds on {kept['date']}; {kept['machine']}{load}; {versions}."
    )


_COLUMNS = METRICS | {"ratio": "to ours"}


def _table(row: Row, clients: dict[str, dict[str, float]], reached: dict[str, float]) -> list[str]:
    names = [name for name in _COLUMNS if any(name in figures for figures in clients.values())]
    lines = [
        "| client | " + " | ".join(_COLUMNS[name] for name in names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for client, figures in clients.items():
        cells = [_figure(figures.get(name)) for name in names]
        lines.append(f"| {client} | " + " | ".join(cells) + " |")
    known = [target for target in row.targets if target.name in reached]
    if known:
        lines.append("")
    lines += [f"- {verdict(target, reached[target.name])}" for target in known]
    return lines


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
