"""``.. growth:: tasks members`` draws how CPU time grows with the work, as it was measured.

Both axes are logarithmic, so that what grows in proportion is a straight line. The dashed one is
proportional growth (or constant cost), through the last point; the title says if the curve is
steeper.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

try:
    from benchmarks.growth import SERIES, Series, is_linear
except ImportError:  # a source distribution has no benchmarks
    SERIES = ()

_STORE = Path(__file__).parent.parent.parent / "benchmarks" / "results.json"
_WIDTH, _HEIGHT = 460, 220
_COLOUR = "#2a7ae2"
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 12, 40


class Growth(Directive):
    """Draw these series, or all that were measured."""

    optional_arguments = 100
    final_argument_whitespace = False

    def run(self) -> list[nodes.Node]:
        kept = json.loads(_STORE.read_text()).get("growth", {})
        wanted = self.arguments or [series.name for series in SERIES]
        return [
            nodes.raw("", drawn(series, kept[series.name]["points"]), format="html")
            for series in SERIES
            if series.name in wanted and series.name in kept
        ]


def drawn(series: Series, points: Sequence[Sequence[float]]) -> str:
    """Return one plot as SVG, under its title."""
    plane = Plane(points)
    told = (
        ""
        if is_linear(series, points)
        else ' <span class="loss">steeper than the dashed line</span>'
    )
    line = " ".join(plane.at(x, y) for x, y in points)
    parts = [
        f'<div class="results"><p><strong>{escape(series.title)}</strong> '
        f"({escape(series.unit.replace(' us ', ' µs '))}){told}</p>",
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" width="100%" style="max-width: 34rem" '
        f'font-size="11" fill="currentColor" stroke="none"><title>{escape(series.title)}</title>',
        *plane.grid(points, series.x),
        f'<polyline points="{plane.wanted(points, series.exponent)}" fill="none" '
        'stroke="currentColor" stroke-dasharray="4 4" opacity="0.5"/>',
        f'<polyline points="{line}" fill="none" stroke="{_COLOUR}" stroke-width="2"/>',
    ]
    for x, y in points:
        left, top = plane.at(x, y).split(",")
        parts.append(
            f'<circle cx="{left}" cy="{top}" r="3.5" fill="{_COLOUR}">'
            f"<title>{x:,}: {y:.3g}</title></circle>"
        )
    return "".join([*parts, "</svg></div>"])


class Plane:
    """Where a point is on the drawing; both axes are logarithmic."""

    def __init__(self, points: Sequence[Sequence[float]]) -> None:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        self._x = math.log10(min(xs)), math.log10(max(xs))
        self._y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def at(self, x: float, y: float) -> str:
        low, high = self._x
        left = _LEFT + (math.log10(x) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)
        low, high = self._y
        share = (math.log10(y) - low) / max(high - low, 1)
        top = _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
        return f"{left:.1f},{top:.1f}"

    def wanted(self, points: Sequence[Sequence[float]], exponent: float) -> str:
        """Return the line that grows as fast as is wanted, from where it enters the drawing."""
        x_first, (x, y) = points[0][0], points[-1]
        if exponent:
            x_first = max(x_first, x * (10.0 ** self._y[0] / y) ** (1 / exponent))
        return f"{self.at(x_first, y * (x_first / x) ** exponent)} {self.at(x, y)}"

    def grid(self, points: Sequence[Sequence[float]], name: str) -> list[str]:
        """Return a line for each power of ten, the numbers beside them, and what `x` is."""
        parts = []
        for power in range(self._y[0], self._y[1] + 1):
            top = self.at(points[0][0], 10**power).split(",")[1]
            parts.append(
                f'<path d="M{_LEFT} {top}H{_WIDTH - _RIGHT}" stroke="currentColor" opacity="0.2"/>'
                f'<text x="{_LEFT - 6}" y="{top}" dy="4" text-anchor="end">'
                f"{_number(10.0**power)}</text>"
            )
        for x, y in points:
            left = self.at(x, y).split(",")[0]
            is_last = x == points[-1][0]
            anchor, at = ("end", _WIDTH - 2) if is_last else ("middle", left)
            parts.append(
                f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{x:,}</text>'
            )
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>'
        )
        return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
