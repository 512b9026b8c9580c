"""Who is asked whether a fault is noticed: the tests, or the simulation."""

from __future__ import annotations

import json
import re
import time
from typing import Any, NamedTuple

from tests.mutants.copies import Copy, Run
from tests.mutants.faults import Fault

__all__ = ["Verdict", "ask_simulation", "ask_suite"]

_NOT_HERE = "not integration and not conformance and not spark"
_NOTHING_RUN = 5
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_ENDED_IN = re.compile(r"^(tests/\S+\.py)", re.MULTILINE)

# A seed takes less than a second: one that takes so long has a loop that never lets others run.
_LONGEST_SEED = 120.0


class Verdict(NamedTuple):
    """What became of a fault. `by` is "" when nothing has noticed it."""

    name: str
    by: str
    seeds: int | None
    seconds: float

    @property
    def is_noticed(self) -> bool:
        return bool(self.by)


# -- the tests


def ask_suite(copy: Copy, fault: Fault, limit: float) -> Verdict:
    """Run the fault's tests until the first one fails."""
    with copy.planted(fault):
        run = copy.run(
            [
                *("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"),
                *("-m", _NOT_HERE, "--timeout=60", *fault.tests),
            ],
            limit,
        )
    return Verdict(fault.name, _failed_test(run), None, run.seconds)


def _failed_test(run: Run) -> str:
    if run.code in (0, _NOTHING_RUN):
        return ""
    found = _FAILED_TEST.search(run.output)
    if found:
        return found[1]
    files = _ENDED_IN.findall(run.output)
    where = files[-1] if files else "the run"
    return f"{where} did not end" if run.code is None else f"{where} ended with {run.code}"


# -- the simulation


def ask_simulation(copy: Copy, fault: Fault, seeds: int, limit: float, first: int) -> Verdict:
    """Run seeds from `first` on until one breaks a promise that it keeps without the fault."""
    began = time.monotonic()
    at, end = first, first + seeds
    by = ""
    while at < end and not by:
        left = limit - (time.monotonic() - began)
        if left <= 0:
            break
        with copy.planted(fault):
            run = _hunt(copy, at, end - at, fault.workloads, max(left, 1.0))
        said = _said(run)
        tried = max((each["seed"] for each in said), default=at)
        by = _what(run, said)
        if run.code is None and not by:
            at = tried
            break
        at = tried + 1
        if by and _hunt(copy, tried, 1, fault.workloads, _LONGEST_SEED).code != 0:
            by = ""  # not the fault's doing
    return Verdict(fault.name, by, at - first, time.monotonic() - began)


def _hunt(copy: Copy, first: int, count: int, kinds: tuple[str, ...], limit: float) -> Run:
    return copy.run(["-m", "tests.mutants.hunt", str(first), str(count), *kinds], limit)


def _said(run: Run) -> list[dict[str, Any]]:
    lines = [line for line in run.output.splitlines() if line.startswith('{"seed"')]
    return [json.loads(line) for line in lines]


def _what(run: Run, said: list[dict[str, Any]]) -> str:
    """What the last seed broke, "" if nothing."""
    if said and "kinds" in said[-1]:
        return f"seed {said[-1]['seed']}: {', '.join(said[-1]['kinds'])}: {said[-1]['text'][:120]}"
    if run.code in (0, None):
        return ""
    last = run.output.strip().rpartition("\n")[2]
    return f"seed {said[-1]['seed'] if said else '?'}: {last[:150]}"
