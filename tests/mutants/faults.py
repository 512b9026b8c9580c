"""Planted faults: how they are written down, and how one is put into the source.

A list is a text file of entries like this one::

    # name-of-the-fault
    sees: what a user would see of it
    checks: tests/producer tests/session/test_session.py
    noticed: tests/session/test_session.py::test_a_commit_waits
    in: Sender.run
     a line that stays
    -a line of today's source
    +the line in its place

`in:` names the function that has the lines, with as many outer classes and functions as tell it
from others; `<module>` stands for lines outside of functions and classes. No file is named, so a
function may move. The lines after it are a change in the form of a diff. Those with a blank or a
minus in front must follow each other in the function, and be found at exactly one place of the
package; their common indentation does not count. Another change to the same function begins after
a line with three dots, one to another function after an `in:` of its own. `simulation` among the
checks stands for the simulation, and `simulation:producer,group` for some of its workloads.
`noticed:` may be left out: it says what has noticed the fault when it was planted last, a test or
a seed of the simulation.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["LISTS", "REPOSITORY", "Change", "Fault", "Sources", "WrongFaultError", "load"]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LISTS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.txt"))}

_FIELDS = ("sees", "checks")
_NOTICED = "noticed"
_SIMULATION = "simulation"
_MODULE = "<module>"


class WrongFaultError(Exception):
    """A planted fault that is written wrongly, or does not fit the source of today."""


class Sources:
    """The modules of a package, by their paths, and where their functions are."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.lines = {path: text.split("\n") for path, text in texts.items()}
        self._places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for path, lines in self.lines.items():
            for at, line in enumerate(lines):
                self._places[line.strip()].append((path, at))
        self._spans: dict[str, list[tuple[int, int, str]]] = {}

    @classmethod
    @functools.cache
    def of_package(cls, repository: Path = REPOSITORY) -> Sources:
        """Return the modules of `aiokafka` in a copy of the repository."""
        paths = sorted((repository / "aiokafka").rglob("*.py"))
        return cls({path.relative_to(repository).as_posix(): path.read_text() for path in paths})

    def find(self, lines: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield path and index of each place where lines stand, however far they are indented."""
        wanted = _dedented(lines)
        for path, at in self._places[lines[0].strip()]:
            if _dedented(self.lines[path][at : at + len(lines)]) == wanted:
                yield path, at

    def scope(self, path: str, first: int, last: int) -> str:
        """Return the qualified name of the innermost function or class that has the lines."""
        if path not in self._spans:
            tree = ast.parse("\n".join(self.lines[path]))
            self._spans[path] = sorted(_spans(tree, ""), key=lambda span: span[0] - span[1])
        names = (name for start, end, name in self._spans[path] if start <= first and last <= end)
        return [_MODULE, *names][-1]


def _spans(node: ast.AST, outer: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{child.name}" if outer else child.name
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            yield first - 1, (child.end_lineno or child.lineno) - 1, name
        yield from _spans(child, name)


def _dedented(lines: Sequence[str]) -> list[str]:
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[depth:].rstrip() for line in lines]


class Change(NamedTuple):
    """Lines of a function, and those in their place."""

    scope: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def place(self, sources: Sources) -> tuple[str, int]:
        """Return path and index of the old lines. Raises WrongFaultError unless it is one place."""
        found = [
            (path, at)
            for path, at in sources.find(self.old)
            if f".{sources.scope(path, at, at + len(self.old) - 1)}".endswith(f".{self.scope}")
        ]
        if len(found) != 1:
            raise WrongFaultError(
                f"these lines occur {len(found)} times in {self.scope}, not once: {self.old}"
            )
        return found[0]

    def lines_at(self, indentation: int) -> list[str]:
        """Return the new lines, moved as far as the old ones are in the source."""
        now = len(self.old[0]) - len(self.old[0].lstrip())
        shift = indentation - now
        return [
            " " * shift + line if shift >= 0 or not line.strip() else line[-shift:]
            for line in self.new
        ]


class Fault(NamedTuple):
    """One fault to plant."""

    name: str
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

    def plant(self, sources: Sources) -> dict[str, str]:
        """Return the modules that have the fault, by their paths.

        Raises WrongFaultError if it does not fit, or a module cannot be compiled or is the same.
        """
        planted: dict[str, list[str]] = {}
        try:
            places = [(*change.place(sources), change) for change in self.changes]
        except WrongFaultError as error:
            raise WrongFaultError(f"{self.name}: {error}") from None
        # From the end of a module to its beginning, so that no place moves.
        for path, at, change in sorted(places, key=lambda place: -place[1]):
            lines = planted.setdefault(path, list(sources.lines[path]))
            depth = len(lines[at]) - len(lines[at].lstrip())
            lines[at : at + len(change.old)] = change.lines_at(depth)
        for path, lines in planted.items():
            try:
                meaning = ast.dump(ast.parse("\n".join(lines)))
            except SyntaxError as error:
                raise WrongFaultError(f"{self.name}: {path}: {error}") from None
            if meaning == ast.dump(ast.parse("\n".join(sources.lines[path]))):
                raise WrongFaultError(f"{self.name}: {path}: changes nothing")
        return {path: "\n".join(lines) for path, lines in planted.items()}


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
    return Fault(name, fields["sees"], checks, changes, noticed)


def _changes(lines: Sequence[str]) -> Iterator[Change]:
    scope = ""
    old: list[str] = []
    new: list[str] = []
    for line in (*lines, "..."):
        if line == "..." or line.startswith("in: "):
            if old:
                yield Change(scope, tuple(old), tuple(new))
            elif scope:
                raise WrongFaultError("a change has no line of today's source")
            old, new = [], []
            scope = line.removeprefix("in: ") if line != "..." else scope
            continue
        sign, text = line[0], line[1:]
        if sign not in " -+":
            raise WrongFaultError(f"a line of a change begins with none of blank, - and +: {line}")
        if not scope:
            raise WrongFaultError("the function of a change is not named: in: Class.function")
        if sign != "+":
            old.append(text)
        if sign != "-":
            new.append(text)
