"""The guide names every option, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from aiokafka.spark._options import READ_OPTIONS, WRITE_OPTIONS

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.rst"


def options_in_tables() -> set[str]:
    """What stands in the first columns of the tables of options: simple ones, and lists."""
    cells = re.findall(
        r"^(?: {4}\* - (.*(?:\n {8}\S.*)*)|((?:`[\w.]+`(?:, ?)?)+))",
        GUIDE.read_text(),
        re.MULTILINE,
    )
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", "".join(cell))}


def test_every_option_is_explained() -> None:
    assert set(READ_OPTIONS) | set(WRITE_OPTIONS) <= options_in_tables()
