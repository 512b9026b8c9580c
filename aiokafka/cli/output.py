"""Print the results of a command as a table, JSON lines or CSV."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

FORMATS = ("table", "json", "csv")

Row = Mapping[str, Any]


class Output:
    """Prints rows (dicts of JSON data) in the format that the user chose."""

    def __init__(self, form: str = "table", stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream or sys.stdout
        self._is_drawn = False

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return self._stream.isatty()

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Print rows: `columns` in a table or CSV, all fields in JSON."""
        if self.form == "json":
            # `_fit` is not needed: json.dumps escapes all characters that are not ASCII.
            for row in rows:
                self._stream.write(json.dumps(row, default=str) + "\n")
        elif self.form == "csv":
            import csv  # imported only for this format

            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([self._fit(cell(row.get(name))) for name in columns] for row in rows)
        else:
            head, *lines = self._table(rows, columns)
            self._stream.write(styled(head, self._stream, bold=True) + "\n")
            self._stream.writelines(line + "\n" for line in lines)
        self._stream.flush()

    def redraw(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """On a terminal, replace the table that was printed before. Otherwise print the rows as
        `rows` does."""
        if self.form != "table" or not self.is_terminal:
            self.rows(rows, columns)
            return
        width, height = shutil.get_terminal_size()
        lines = [line[:width] for line in self._table(rows, columns)]
        if len(lines) >= height:
            fitting = max(height - 2, 1)
            lines = [*lines[:fitting], f"... {len(lines) - fitting} more"[:width]]
        lines[0] = styled(lines[0], self._stream, bold=True)
        # Overwrite each line and clear its end. Clearing the whole screen first would flicker.
        start = "\x1b[H" if self._is_drawn else "\x1b[2J\x1b[H"
        drawn = "".join(f"{line}\x1b[K\n" for line in lines)
        self._stream.write(f"{start}{drawn}\x1b[J")
        self._stream.flush()
        self._is_drawn = True

    def _table(self, rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
        return table(rows, columns, self._fit)

    def _fit(self, text: str) -> str:
        """Escape the characters that the encoding of the stream cannot represent."""
        encoding = self._stream.encoding
        if text.isascii() or not encoding:
            return text
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def done(self, text: str) -> None:
        """Print `text` on stderr, after a command without rows. Print nothing for JSON and CSV."""
        if text and self.form == "table":
            note(text)


def by_partition(found: Mapping[Any, Any]) -> list[Row]:
    """Return one row for each partition, sorted by partition, with the fields of its value."""
    return [
        {"topic": tp.topic, "partition": tp.partition, **each.as_dict()}
        for tp, each in sorted(found.items())
    ]


def note(text: str) -> None:
    """Print a line on stderr. If this fails, ignore the error, so that the command goes on."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            click.echo(text, err=True)


def styled(text: str, stream: TextIO, **style: Any) -> str:
    """Return `text` in colour or bold if `stream` is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return click.style(text, **style)


def table(
    rows: Iterable[Row], columns: Sequence[str], fit: Callable[[str], str] = str
) -> list[str]:
    """Return the lines of a table. `fit` converts the text of each cell; numbers are
    right-aligned."""
    found = list(rows)
    texts = [[fit(printable(cell(row.get(name)))) for name in columns] for row in found]
    widths = [max([len(name), *(len(line[i]) for line in texts)]) for i, name in enumerate(columns)]
    right = [_all_numbers(row.get(name) for row in found) for name in columns]
    head = _line([name.replace("_", " ").upper() for name in columns], widths, right)
    return [head, *(_line(line, widths, right) for line in texts)]


def printable(text: str) -> str:
    """Escape control characters. Names and records of other users may contain them, and would
    control the terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def cell(value: Any) -> str:
    """Return a value as the text of one cell: the items of a list joined by commas, None as -."""
    if value is None:
        return "-"
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return value.replace("\n", " ")
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
