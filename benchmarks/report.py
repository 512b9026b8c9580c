"""Keeps the newest figures of every row and renders them as ``RESULTS.md``."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.rows import METRICS, OURS, ROWS, Row
from benchmarks.spark.report import render_section

RESULTS = Path(__file__).with_name("RESULTS.md")
STORE = Path(__file__).with_name("results.json")
_IN_MEMORY = "in-memory"
_SPARK = "spark"

_INTRODUCTION = """\
# Results

Written by `make bench`. Every client does the same work on the same broker, in turn, in a process
of its own; the figures are medians over the rounds. CPU is that of the whole process, imports and
shutdown included, user and system. "To ours" is the median over the rounds of the client's figure
divided by ours in the same round: above 1 we are better. Machines are noisy; compare within a row.
"""


def save(row: Row, result: dict[str, dict[str, float]], rounds: int, versions: list[str]) -> None:
    """Replace the figures of one row, and write the report again."""
    _keep(row.name, {"clients": result} | _conditions(rounds, versions))


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
    parts = [_INTRODUCTION, _overview(store)]
    parts += [_details(row, store[row.name]) for row in ROWS if row.name in store]
    if _IN_MEMORY in store:
        kept = store[_IN_MEMORY]
        heading = f"## Record batches in memory\n\n{_circumstances(_IN_MEMORY, kept)}"
        parts.append(f"{heading}\n\n{kept['table']}\n")
    if _SPARK in store:
        parts.append(render_section(store[_SPARK]))
    return "\n".join(parts)


def render_row(row: Row, result: dict[str, dict[str, float]]) -> str:
    return "\n".join(_table(row, result))


def _load() -> dict[str, Any]:
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def _overview(store: dict[str, Any]) -> str:
    peers = ["aiokafka", "confluent", "confluent asyncio", "kafka-python"]
    lines = [
        "## Overview",
        "",
        "| Work | Unit | Ours | At most | " + " | ".join(peers) + " |",
        "|---|---|---:|---:|" + "---:|" * len(peers),
    ]
    for row in ROWS:
        if row.name not in store:
            continue
        clients = store[row.name]["clients"]
        cells = [row.title, METRICS[row.metric], _figure(clients.get(OURS, {}).get(row.metric))]
        cells.append(_figure(row.target))
        cells += [_figure(clients.get(peer, {}).get(row.metric)) for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _details(row: Row, kept: dict[str, Any]) -> str:
    lines = [
        f"## {row.title}",
        "",
        _circumstances(row.name, kept),
        "",
        *_table(row, kept["clients"]),
        "",
    ]
    return "\n".join(lines)


def _circumstances(name: str, kept: dict[str, Any]) -> str:
    versions = ", ".join(kept["versions"])
    return f"`{name}`: {kept['rounds']} rounds on {kept['date']}; {kept['machine']}; {versions}."


_COLUMNS = {
    "rate": "records/s",
    "cpu": METRICS["cpu"],
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_a_minute": METRICS["cpu_a_minute"],
    "rss_mib": METRICS["rss_mib"],
    "ratio": "to ours",
}


def _table(row: Row, clients: dict[str, dict[str, float]]) -> list[str]:
    names = [name for name in _COLUMNS if any(name in figures for figures in clients.values())]
    lines = [
        "| client | " + " | ".join(_COLUMNS[name] for name in names) + " |",
        "|---|" + "---:|" * len(names),
    ]
    for client, figures in clients.items():
        cells = [_figure(figures.get(name)) for name in names]
        lines.append(f"| {client} | " + " | ".join(cells) + " |")
    if row.target is not None:
        lines += ["", f"Ours should be at most {_figure(row.target)} {METRICS[row.metric]}."]
    return lines


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
