"""The short table of README and manual: this library beside three clients.

    python -m benchmarks.comparison

prints the table for README.rst, from `benchmarks/results.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CLIENTS", "ROWS", "Cells", "cells", "readme_table"]

_STORE = Path(__file__).with_name("results.json")
CLIENTS = {
    "ours": "this library",
    "aiokafka": "aiokafka 0.14",
    "confluent": "confluent-kafka",
    "kafka-python": "kafka-python",
}


class Compared(NamedTuple):
    """A row of the table: a row of the benchmarks, its figure, and how both are called."""

    name: str
    metric: str
    title: str
    unit: str


ROWS = (
    Compared("getmany-100", "cpu_after", "Read 100 B records in batches", "CPU s per million"),
    Compared("iterate-100", "cpu_after", "Read 100 B records one by one", "CPU s per million"),
    Compared("getmany-10k", "cpu_after", "Read 10 KiB records in batches", "CPU s per million"),
    Compared("send-100", "cpu_after", "Send 100 B records", "CPU s per million"),
    Compared("send-long-1", "cpu_after", "Send with a full buffer", "CPU s per million"),
    Compared("tasks-64", "cpu_after", "64 tasks, each awaits its record", "CPU s per million"),
    Compared("commit-1", "cpu_after", "Read a record, commit it", "CPU s per million"),
    Compared("transactions-100", "p50_ms", "A transaction of 100 records", "ms, median"),
    Compared("lone-send", "p50_ms", "A single record, acknowledged", "ms, median"),
    Compared("pauses-gzip", "pause_cpu_ms", "Longest pause of the loop, gzip", "CPU ms"),
    Compared("start-up", "cpu_ms", "From process start to the first record", "CPU ms"),
)


class Cells(NamedTuple):
    """One row as texts, and which client is best; None if the first two are within 5 percent."""

    title: str
    figures: dict[str, str]
    best: str | None


def cells() -> list[Cells]:
    """Return the rows of the table. A client that was not measured has a dash."""
    store: dict[str, Any] = json.loads(_STORE.read_text())
    found = []
    for row in ROWS:
        measured = store[row.name]["clients"]
        values = {
            client: measured[client][row.metric]
            for client in CLIENTS
            if row.metric in measured.get(client, {})
        }
        first, second = sorted(values.values())[:2]
        best = min(values, key=lambda client: values[client])
        figures = {
            client: _number(values[client]) if client in values else "–" for client in CLIENTS
        }
        title = f"{row.title} ({row.unit})"
        found.append(Cells(title, figures, best if second > 1.05 * first else None))
    return found


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def readme_table() -> str:
    """Return the table in reStructuredText, with the best figure of each row in bold."""
    lines = [".. list-table::", "    :header-rows: 1", "    :widths: 40 15 15 15 15", ""]
    lines += _row(["Smaller is better", *CLIENTS.values()])
    for title, figures, best in cells():
        texts = [f"**{text}**" if client == best else text for client, text in figures.items()]
        lines += _row([title, *texts])
    return "\n".join(lines) + "\n"


def _row(texts: list[str]) -> list[str]:
    return [f"    {'* -' if i == 0 else '  -'} {text}" for i, text in enumerate(texts)]


if __name__ == "__main__":
    print(readme_table(), end="")
