"""Print what a command found: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

__all__ = ["FORMATS", "Output", "cell", "table"]

FORMATS = ("table", "json", "csv")

Row = Mapping[str, Any]


class Output:
    """Prints rows in the format that the user chose. Rows are dicts of plain data."""

    def __init__(self, form: str = "table", stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream or sys.stdout

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Print rows: these columns of them as table and CSV, everything as JSON."""
        if self.form == "json":
            for row in rows:
                self._stream.write(json.dumps(row, default=str) + "\n")
        elif self.form == "csv":
            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([cell(row.get(name)) for name in columns] for row in rows)
        else:
            for line in table(rows, columns, bold=self.is_terminal):
                self._stream.write(line + "\n")
        self._stream.flush()

    def done(self, text: str) -> None:
        """Say on stderr what was done, if a table would be printed."""
        if text and self.form == "table":
            click.echo(text, err=True)


def table(rows: Iterable[Row], columns: Sequence[str], *, bold: bool = False) -> list[str]:
    """Return the lines of a table; numbers stand to the right."""
    found = list(rows)
    texts = [[cell(row.get(name)) for name in columns] for row in found]
    widths = [max([len(name), *(len(line[i]) for line in texts)]) for i, name in enumerate(columns)]
    right = [_all_numbers(row.get(name) for row in found) for name in columns]
    head = _line([name.replace("_", " ").upper() for name in columns], widths, right)
    return [click.style(head, bold=True) if bold else head] + [
        _line(line, widths, right) for line in texts
    ]


def cell(value: Any) -> str:
    """Return a value as one cell: lists with commas, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell(each) for each in value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={cell(each)}" for name, each in value.items())
    # A line break would end the row.
    return str(value).replace("\n", " ")


def _all_numbers(values: Iterable[Any]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return bool(kinds) and kinds <= {int, float}


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = (
        text.rjust(width) if is_right else text.ljust(width)
        for text, width, is_right in zip(texts, widths, right, strict=True)
    )
    return "  ".join(cells).rstrip()
