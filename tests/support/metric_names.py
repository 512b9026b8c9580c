"""The table of metrics in the manual, as data."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

__all__ = ["Key", "metric_rows"]

TABLE = Path(__file__).parents[2] / "docs" / "metric_names.csv"

Key = tuple[str, str]
"""Group and name."""


def metric_rows() -> dict[Key, list[str]]:
    """Return the names in Java's client of each metric; [] if Java's client lacks the metric."""
    with TABLE.open(newline="") as file:
        found = [(row["Group"], row["Here"], row["Java's client"]) for row in csv.DictReader(file)]
    keys = Counter((group, name) for group, name, _ in found)
    assert [key for key, count in keys.items() if count > 1] == []
    return {(group, name): java.split() for group, name, java in found}
