"""Draw the pictures of the manual: ``python docs/pictures/draw.py`` makes an SVG of each text.

A text has a line for each thing in the picture, with words as a shell reads them::

    canvas 800 300
    band 10 60 "1 wire"                  y, height, label
    box client 20 40 160 44 Client text  name, x, y, width, height, title, further lines
    state open 20 40 120 OPEN            name, x, y, width, title; with a rounded border
    log p0 20 40 0 1 2/new               name, x, y, cells; a cell is a text, and what it is
    arrow client open "connects"         from, to, label
    note 20 90 "text"                    x, y, text
    screen 20 40 500 120                 x, y, width, height of a terminal
    line 30 60 "$ aiokafka topics list"  x, y, what it shows; `head` behind that makes it bold

An arrow is straight, from border to border. Two that join the same things lie side by side. A cell
is `plain`, `done`, `new`, `open`, `void` or `gone`; arrows reach the second cell of p0 as `p0.1`.

The pictures follow the reader's wish for light or dark, each with a background of its own.
"""

from __future__ import annotations

import math
import shlex
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent

_STYLE = """
svg { --back: #ffffff; --text: #1c2733; --soft: #4a5a6a; --band: #eef2f6; --edge: #33658a;
  --state: #f4f9ee; --rim: #5b8c3a; --line: #55606b; --label: #7a3b10;
  --done: #d7e8f5; --new: #d9f0d0; --open: #fde9b8; --void: #f6d3cf }
@media (prefers-color-scheme: dark) {
  svg { --back: #161b21; --text: #e3e9ef; --soft: #a5b3c0; --band: #212a33; --edge: #6ba3cc;
    --state: #1f2a1a; --rim: #86bb62; --line: #93a1ae; --label: #f0b07d;
    --done: #1f435f; --new: #28512a; --open: #5f4a12; --void: #632b26 } }
text { font-family: Helvetica, Arial, sans-serif; font-size: 12px; fill: var(--text) }
.title { font-weight: bold }
.sub { fill: var(--soft); font-size: 11px }
.back { fill: var(--back) }
.band { fill: var(--band) }
.box { fill: var(--back); stroke: var(--edge); stroke-width: 1.3 }
.state { fill: var(--state); stroke: var(--rim); stroke-width: 1.3 }
.arrow { stroke: var(--line); stroke-width: 1.2; fill: none }
.head { fill: var(--line) }
.label { font-size: 11px; fill: var(--label); paint-order: stroke; stroke: var(--back);
  stroke-width: 4px }
.cell { stroke: var(--edge); stroke-width: 1; fill: var(--back) }
.done { fill: var(--done) }
.new { fill: var(--new) }
.open { fill: var(--open) }
.void { fill: var(--void) }
.gone { stroke-dasharray: 3 3 }
.screen { fill: var(--band); stroke: var(--line); stroke-width: 1 }
.line, .head-line { font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px;
  white-space: pre }
.head-line { font-weight: bold }
"""
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
)
_LINE = 15
_APART = 9
_CELL = (34.0, 26.0)
_CELLS = ("plain", "done", "new", "open", "void", "gone")
_KINDS = ("canvas", "band", "screen", "box", "state", "log", "note", "line", "arrow")


class Place(NamedTuple):
    """Where a box is."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """The point in which arrows to it meet."""
        return self.x + self.width / 2, self.y + self.height / 2

    def border(
        self, toward: tuple[float, float], shift: tuple[float, float]
    ) -> tuple[float, float]:
        """Return where a line from the middle, moved by `shift`, to a point leaves the box."""
        x, y = self.middle[0] + shift[0], self.middle[1] + shift[1]
        dx, dy = toward[0] - self.middle[0], toward[1] - self.middle[1]
        reach_x = self.width / 2 - math.copysign(shift[0], dx) * (1 if shift[0] * dx > 0 else -1)
        reach_y = self.height / 2 - math.copysign(shift[1], dy) * (1 if shift[1] * dy > 0 else -1)
        scale = min(
            reach_x / abs(dx) if dx else math.inf,
            reach_y / abs(dy) if dy else math.inf,
        )
        return x + dx * scale, y + dy * scale


class Picture:
    """An SVG under construction."""

    def __init__(self, text: str) -> None:
        self._size = (0.0, 0.0)
        self._places: dict[str, Place] = {}
        self._back: list[str] = []
        self._front: list[str] = []
        lines = [shlex.split(line, comments=True) for line in text.splitlines()]
        lines = [line for line in lines if line]
        self._joined = {(line[1], line[2]) for line in lines if line[0] == "arrow"}
        if unknown := {line[0] for line in lines} - set(_KINDS):
            raise ValueError(f"not known: {unknown}")
        for kind in _KINDS:
            for words in lines:
                if words[0] == kind:
                    getattr(self, kind)(*words[1:])

    def canvas(self, width: str, height: str) -> None:
        """Set the size."""
        self._size = (float(width), float(height))

    def band(self, y: str, height: str, label: str) -> None:
        """Add a band over the whole width, with its label on the left."""
        self._back.append(
            f'<rect class="band" x="4" y="{y}" width="{self._size[0] - 8:g}" '
            f'height="{height}" rx="4"/>'
        )
        middle = float(y) + float(height) / 2 + 4
        self._back.append(f'<text class="title" x="14" y="{middle:g}">{escape(label)}</text>')

    def box(self, name: str, x: str, y: str, width: str, height: str, *texts: str) -> None:
        """Add a box; its first text is the title."""
        self._add(name, Place(float(x), float(y), float(width), float(height)), "box", 4, texts)

    def state(self, name: str, x: str, y: str, width: str, *texts: str) -> None:
        """Add a state, with a height that its texts need."""
        height = 14 + _LINE * len(texts)
        self._add(name, Place(float(x), float(y), float(width), height), "state", 14, texts)

    def log(self, name: str, x: str, y: str, *cells: str) -> None:
        """Add the cells of a log, from left to right; a cell is `text` or `text/what it is`."""
        width, height = _CELL
        left, top = float(x), float(y)
        self._places[name] = Place(left, top, width * len(cells), height)
        for number, cell in enumerate(cells):
            text, _, kind = cell.partition("/")
            if (kind or "plain") not in _CELLS:
                raise ValueError(f"not known: {kind}; a cell is one of {_CELLS}")
            at = Place(left + width * number, top, width, height)
            self._places[f"{name}.{number}"] = at
            self._back.append(
                f'<rect class="cell {kind or "plain"}" x="{at.x:g}" y="{at.y:g}" '
                f'width="{width:g}" height="{height:g}"/>'
                f'<text text-anchor="middle" x="{at.middle[0]:g}" y="{at.middle[1] + 4:g}">'
                f"{escape(text)}</text>"
            )

    def _add(self, name: str, at: Place, kind: str, radius: int, texts: tuple[str, ...]) -> None:
        self._places[name] = at
        self._back.append(
            f'<rect class="{kind}" x="{at.x:g}" y="{at.y:g}" width="{at.width:g}" '
            f'height="{at.height:g}" rx="{radius}"/>'
        )
        first = at.middle[1] - _LINE * (len(texts) - 1) / 2 + 4
        for number, text in enumerate(texts):
            self._back.append(
                f'<text class="{"sub" if number else "title"}" text-anchor="middle" '
                f'x="{at.middle[0]:g}" y="{first + _LINE * number:g}">{escape(text)}</text>'
            )

    def note(self, x: str, y: str, text: str) -> None:
        """Add a line of text."""
        self._back.append(f'<text class="sub" x="{x}" y="{y}">{escape(text)}</text>')

    def screen(self, x: str, y: str, width: str, height: str) -> None:
        """Add a terminal, whose lines are `line`."""
        self._back.append(
            f'<rect class="screen" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )

    def line(self, x: str, y: str, text: str, kind: str = "") -> None:
        """Add a line of a terminal, with its spaces; `head` is bold."""
        name = f"{kind}-line" if kind else "line"
        self._front.append(
            f'<text class="{name}" xml:space="preserve" x="{x}" y="{y}">{escape(text)}</text>'
        )

    def arrow(self, source: str, target: str, label: str = "", along: str = "0.5") -> None:
        """Add an arrow; `along` is where its label stands, from 0 to 1."""
        start, end = self._places[source], self._places[target]
        dx, dy = end.middle[0] - start.middle[0], end.middle[1] - start.middle[1]
        length = math.hypot(dx, dy)
        shift = (0.0, 0.0)
        if (target, source) in self._joined:
            shift = (-dy / length * _APART, dx / length * _APART)
        x1, y1 = start.border(end.middle, shift)
        x2, y2 = end.border(start.middle, shift)
        self._front.append(
            '<path class="arrow" marker-end="url(#head)" '
            f'd="M{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f}"/>'
        )
        share = float(along)
        x, y = x1 + (x2 - x1) * share + 6 * shift[0], y1 + (y2 - y1) * share + 4
        if label:
            self._front.append(
                f'<text class="label" text-anchor="middle" x="{x:.1f}" y="{y:.1f}">'
                f"{escape(label)}</text>"
            )

    def svg(self) -> str:
        """Return the picture."""
        width, height = self._size
        body = "\n".join([*self._back, *self._front])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}">\n<style>{_STYLE}</style>\n{_HEAD}\n'
            f'<rect class="back" width="{width:g}" height="{height:g}"/>\n{body}\n</svg>\n'
        )


def sources() -> list[Path]:
    """Return the texts that have a picture."""
    return sorted(HERE.glob("*.txt"))


def main() -> int:
    for source in sources():
        source.with_suffix(".svg").write_text(Picture(source.read_text()).svg())
    return 0


if __name__ == "__main__":
    sys.exit(main())
