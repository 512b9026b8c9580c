"""Planted faults: how they are written down, and how one is put into the source.

A list is a text file of entries like this one::

    # name-of-the-fault
    file: aiokafka/producer/sending/sender.py
    sees: what a user would see of it
    checks: tests/producer tests/session/test_session.py
    noticed: tests/session/test_session.py::test_a_commit_waits
     a line that stays
    -a line of today's source
    +the line in its place

The lines after `checks:` are a change in the form of a diff. Those with a blank or a minus in front
must follow each other in the file, at exactly one place. Another change to the same file begins
after a line with three dots. `simulation` among the checks stands for the simulation, and
`simulation:producer,group` for some of its workloads. `noticed:` may be left out: it says what
has noticed the fault when it was planted last, a test or a seed of the simulation.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["LISTS", "REPOSITORY", "Change", "Fault", "WrongFaultError", "load"]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LISTS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.txt"))}

_FIELDS = ("file", "sees", "checks")
_NOTICED = "noticed"
_SIMULATION = "simulation"


class WrongFaultError(Exception):
    """A planted fault that is written wrongly, or does not fit the source of today."""


class Change(NamedTuple):
    """Lines of the source, and those in their place."""

    old: tuple[str, ...]
    new: tuple[str, ...]

    def place(self, lines: Sequence[str]) -> int:
        """Return where the old lines begin. Raises WrongFaultError unless that is one place."""
        first = self.old[0]
        found = [
            at
            for at, line in enumerate(lines)
            if line == first and tuple(lines[at : at + len(self.old)]) == self.old
        ]
        if len(found) != 1:
            raise WrongFaultError(f"these lines occur {len(found)} times, not once: {self.old}")
        return found[0]


class Fault(NamedTuple):
    """One fault to plant."""

    name: str
    file: str
    sees: str
    checks: tuple[str, ...]
    changes: tuple[Change, ...]
    noticed: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """The test files and folders that run the changed lines."""
        return tuple(check for check in self.checks if not check.startswith(_SIMULATION))

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads of the simulation that run the changed lines; () stands for all."""
        found = (check for check in self.checks if check.startswith(f"{_SIMULATION}:"))
        return tuple(name for check in found for name in check.partition(":")[2].split(","))

    def plant(self, source: str) -> str:
        """Return the source with the fault. Raises WrongFaultError if it does not fit, or what
        comes out cannot be compiled."""
        lines = source.split("\n")
        for change in self.changes:
            try:
                at = change.place(lines)
            except WrongFaultError as error:
                raise WrongFaultError(f"{self.name}: {self.file}: {error}") from None
            lines[at : at + len(change.old)] = change.new
        planted = "\n".join(lines)
        try:
            meaning = ast.dump(ast.parse(planted))
        except SyntaxError as error:
            raise WrongFaultError(f"{self.name}: {self.file}: {error}") from None
        if meaning == _meaning(source):
            raise WrongFaultError(f"{self.name}: {self.file}: changes nothing")
        return planted


@functools.lru_cache(maxsize=64)
def _meaning(source: str) -> str:
    return ast.dump(ast.parse(source))


def load(path: Path) -> list[Fault]:
    """Read a list. Raises WrongFaultError for an entry that is not complete."""
    faults = [_fault(entry, path) for entry in _entries(path.read_text().split("\n"))]
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise WrongFaultError(f"{path.name}: two faults are called {name}")
    return faults


def _entries(lines: Sequence[str]) -> Iterator[list[str]]:
    entry: list[str] = []
    for line in lines:
        if line.startswith("# ") and entry:
            yield entry
            entry = []
        if line:
            entry.append(line)
    if entry:
        yield entry


def _fault(entry: Sequence[str], path: Path) -> Fault:
    name = entry[0].removeprefix("# ")
    fields: dict[str, str] = {}
    rest = list(entry[1:])
    while rest and (field := rest[0].partition(":")[0]) in (*_FIELDS, _NOTICED):
        fields[field] = rest.pop(0).partition(":")[2].strip()
    noticed = fields.pop(_NOTICED, "")
    changes = tuple(_changes(rest))
    if sorted(fields) != sorted(_FIELDS) or not all(fields.values()) or not changes:
        raise WrongFaultError(f"{path.name}: {name}: needs {', '.join(_FIELDS)} and a change")
    checks = tuple(fields["checks"].split())
    return Fault(name, fields["file"], fields["sees"], checks, changes, noticed)


def _changes(lines: Sequence[str]) -> Iterator[Change]:
    old: list[str] = []
    new: list[str] = []
    for line in (*lines, "..."):
        if line == "...":
            if not old:
                raise WrongFaultError("a change has no line of today's source")
            yield Change(tuple(old), tuple(new))
            old, new = [], []
            continue
        sign, text = line[0], line[1:]
        if sign not in " -+":
            raise WrongFaultError(f"a line of a change begins with none of blank, - and +: {line}")
        if sign != "+":
            old.append(text)
        if sign != "-":
            new.append(text)
