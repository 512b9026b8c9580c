"""The table "My consumer stopped" of the manual: all that it names is there to be seen."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka.health import ConsumerHealth, ConsumerState
from tests.support.metric_names import metric_rows

REPOSITORY = Path(__file__).parents[2]
OTHERS = {"await", "read_committed"}
"""Words of Python, and values of options."""


@cache
def table() -> str:
    """Return the table, each row in one line."""
    page = (REPOSITORY / "docs" / "observability.rst").read_text()
    _, _, section = page.partition("\nSymptom  ")
    assert section
    return re.sub(r"\s+", " ", section)


@cache
def sources() -> str:
    """Return the text of the library, in which a string that goes on in the next line is whole."""
    files = sorted((REPOSITORY / "aiokafka").rglob("*.py"))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in files))


def test_every_state_but_the_peaceful_ones_is_in_it() -> None:
    peaceful = {"new", "closing", "closed"}
    states = {state.value for state in ConsumerState}
    named = set(re.findall(r"state `(\w+)`", table()))
    assert named == states - peaceful


def test_what_the_log_says_is_in_the_code() -> None:
    said = re.findall(r'"([^"]+)"', table())
    assert len(said) > 5
    assert [text for text in said if text not in sources()] == []


def test_numbers_fields_and_options_exist() -> None:
    metrics = {name for _, name in metric_rows()}
    known = {field.name for field in fields(ConsumerHealth)} | set(dir(AIOKafkaConsumer))
    known |= {state.value for state in ConsumerState}
    known |= set(inspect.signature(AIOKafkaConsumer.__init__).parameters) | metrics | OTHERS
    for name in re.findall(r"`([\w-]+)(?:\(\))?`", table()):
        assert name in known or f"class {name}" in sources(), name
