"""The story of a run: calls, requests, faults and log lines, in the order of virtual time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.execution import Verdict

_WIDTH = 240


def timeline(verdict: Verdict) -> Iterator[str]:
    """The lines of a run that was traced."""
    for note in sorted(verdict.trace, key=lambda note: note.at):
        outcome = f": {note.outcome}" if note.outcome else ""
        line = f"{note.at:12.6f}  {note.who:24}  {note.what}{outcome}"
        yield from _cut(line)
    yield ""
    seed, trace = verdict.scenario.seed, f"{verdict.trace_sum:08x}"
    yield f"seed {seed}, trace {trace}, {verdict.requests} requests"
    for violation in verdict.violations:
        yield f"VIOLATION at {violation.at:.6f}: {violation.kind}: {violation.text}"


def _cut(line: str) -> Iterator[str]:
    first = line.splitlines()[0]
    yield first if len(first) <= _WIDTH else first[: _WIDTH - 3] + "..."
