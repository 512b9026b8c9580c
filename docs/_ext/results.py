"""``.. results:: getmany-100 send-100`` draws what `make bench` has measured, row by row.

Bars are HTML, as wide as the screen has room for. A row in which another client is better says so.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

try:
    from benchmarks.comparison import CLIENTS, cells
    from benchmarks.rows import ROWS
    from benchmarks.targets import METRICS
except ImportError:  # a source distribution has no benchmarks
    METRICS, ROWS, CLIENTS, cells = {}, (), {}, list

_STORE = Path(__file__).parent.parent.parent / "benchmarks" / "results.json"
_OURS = "ours"
_NAMES = {_OURS: "this library", "aiokafka": "aiokafka 0.14"}
_NO_PEERS = {"ours assigned", "ours value alone"}
_SPARK = {"JVM": "the JAR", "JVM large fetches": "the JAR, large fetches"}
# Units for readers, and the factor to them; elsewhere the store has the readable unit.
UNITS = {
    "cpu": ("CPU seconds per million records", 1.0),
    "cpu_after": ("CPU seconds per million records", 1.0),
    "pause_cpu_ms": ("CPU ms", 1.0),
    "cpu_a_minute": ("CPU ms a minute", 1000.0),
}
_GROUPS = ("spark", "growth")
"""Names in the store that have rows of their own below them."""
_CLOSE = 1.05  # nearer than that is noise


class Results(Directive):
    """Draw rows of the store; with `spark`, those that were measured in Spark."""

    optional_arguments = 1000
    final_argument_whitespace = False

    def run(self) -> list[nodes.Node]:
        if not ROWS:
            return [nodes.paragraph(text="The figures are in a checkout only.")]
        store = json.loads(_STORE.read_text())
        if self.arguments == ["spark"]:
            found = store["spark"]
            return [row(name, "CPU s per million", "cpu", found[name]) for name in sorted(found)]
        known = {each.name: each for each in ROWS}
        wanted = [name for name in self.arguments or known if name in store]
        return [
            row(
                known[name].title.replace("`", ""),
                METRICS[known[name].metric],
                known[name].metric,
                store[name],
            )
            for name in wanted
        ]


class Conditions(Directive):
    """Say on what the figures were measured."""

    def run(self) -> list[nodes.Node]:
        store = json.loads(_STORE.read_text())
        rows = [kept for name, kept in store.items() if name not in _GROUPS]
        rows += [kept for name in _GROUPS for kept in store.get(name, {}).values()]
        machines = sorted({kept["machine"] for kept in rows})
        versions = sorted({version for kept in rows for version in kept["versions"]})
        dates = sorted({kept["date"] for kept in rows})
        loads = [kept["load"] for kept in rows if "load" in kept]
        busy = (
            f" The load of the machine was {min(loads):.0f} to {max(loads):.0f}." if loads else ""
        )
        text = (
            f"Measured from {dates[0]} to {dates[-1]} on {'; '.join(machines)}, with "
            f"{', '.join(versions)}. Each figure is the median over the rounds.{busy}"
        )
        return [nodes.paragraph(text=text)]


class Comparison(Directive):
    """Print this library beside three clients, with the best figure of each row in bold."""

    def run(self) -> list[nodes.Node]:
        if not ROWS:
            return [nodes.paragraph(text="The figures are in a checkout only.")]
        head = "".join(
            f"<th>{escape(text)}</th>" for text in ("Smaller is better", *CLIENTS.values())
        )
        lines = []
        for title, figures, best in cells():
            shown_figures = "".join(
                f"<td><strong>{text}</strong></td>" if client == best else f"<td>{text}</td>"
                for client, text in figures.items()
            )
            lines.append(f"<tr><td>{escape(title)}</td>{shown_figures}</tr>")
        table = f'<table class="docutils"><tr>{head}</tr>{"".join(lines)}</table>'
        return [nodes.raw("", f'<div class="table-wrapper">{table}</div>', format="html")]


def row(title: str, unit: str, metric: str, kept: dict[str, Any]) -> nodes.raw:
    figures = {
        client: found[metric]
        for client, found in kept["clients"].items()
        if metric in found and client not in _NO_PEERS
    }
    best = min(figures, key=lambda client: figures[client])
    unit, scale = UNITS.get(metric, (unit, 1.0))
    if metric in ("cpu", "cpu_after") and min(figures.values()) > 100:
        unit, scale = "CPU ms each", 0.001
    figures = {client: scale * value for client, value in figures.items()}
    # One client that takes fifty times as long must not make the others' bars invisible.
    widest = min(max(figures.values()), 8 * figures[_OURS])
    lines = [f'<div class="results"><p><strong>{escape(title)}</strong> ({escape(unit)})']
    if best != _OURS and figures[_OURS] > _CLOSE * figures[best]:
        lines.append(f' <span class="loss">{escape(shown(best))} is better</span>')
    lines.append("</p>")
    for client in sorted(figures, key=lambda name: (name != _OURS, figures[name])):
        share = min(100.0, 100 * figures[client] / widest)
        kind = "ours" if client == _OURS else "peer"
        lines.append(
            f'<div class="bar {kind}"><span class="name">{escape(shown(client))}</span>'
            f'<span class="room"><span class="fill" style="width: {share:.1f}%"></span></span>'
            f'<span class="figure">{readable(figures[client])}</span></div>'
        )
    lines.append("</div>")
    return nodes.raw("", "".join(lines), format="html")


def readable(value: float) -> str:
    """Return three significant digits without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.6f}"


def shown(client: str) -> str:
    return _NAMES.get(client) or _SPARK.get(client) or client
