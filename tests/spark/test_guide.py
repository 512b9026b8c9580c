"""The guide names every option, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from aiokafka.spark._options import READ_OPTIONS, WRITE_OPTIONS

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.rst"


def options_in_tables() -> set[str]:
    """What stands in the first columns of the two tables of options."""
    first = [re.match(r"((?:`[\w.]+`(?:, ?)?)+)", line) for line in GUIDE.read_text().splitlines()]
    return {name for found in first if found for name in re.findall(r"`([\w.]+)`", found[1])}


def test_every_option_is_explained() -> None:
    assert set(READ_OPTIONS) | set(WRITE_OPTIONS) <= options_in_tables()
