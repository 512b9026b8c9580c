"""What filters save, and which of them Spark still has to apply."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from aiokafka.spark._offsets import OffsetRange
from aiokafka.spark._plan import PushedFilters

RANGES = [OffsetRange(topic, number, 10, 100) for topic in ("a", "b") for number in range(3)]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([("topic", "=", "a"), ("partition", "in", (1, 7))], [("a", 1, 10, 100)]),
        ([("topic", "in", ("a", "b")), ("topic", "=", "b")], [("b", n, 10, 100) for n in range(3)]),
        ([("topic", "=", "b"), ("partition", "<", 1)], [("b", 0, 10, 100)]),
        ([("topic", "=", "a"), ("partition", ">=", 2), ("offset", ">", 19)], [("a", 2, 20, 100)]),
        ([("topic", "=", "a"), ("partition", "=", 0), ("offset", "<=", 50)], [("a", 0, 10, 51)]),
        ([("topic", "=", "a"), ("partition", "=", 0), ("offset", "=", 50)], [("a", 0, 50, 51)]),
        ([("offset", "<", 10)], []),
        ([("offset", ">=", 100)], []),
        ([("topic", "=", "c")], []),
    ],
)  # fmt: skip
def test_exact_filters_are_taken(
    filters: list[tuple[str, str, Any]], wanted: list[tuple[str, int, int, int]]
) -> None:
    pushed = PushedFilters()
    for name, operator, value in filters:
        assert pushed.take(name, operator, value)
    assert pushed.narrow(RANGES) == wanted


@pytest.mark.parametrize(
    ("column", "operator", "value"),
    [
        ("value", "=", b"x"),
        ("topic", "<", "a"),
        ("topic", "=", 3),
        ("offset", "=", "3"),
        ("offset", "in", (1, 2)),
        ("partition", ">", True),
        ("partition", "~", 1),
    ],
)
def test_other_filters_are_not(column: str, operator: str, value: Any) -> None:
    pushed = PushedFilters()
    assert not pushed.take(column, operator, value)
    assert pushed.narrow(RANGES) == RANGES


def test_times_are_a_lower_bound_that_spark_checks_again() -> None:
    pushed = PushedFilters()
    when = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=timezone.utc)
    for operator, moment in [(">=", when), (">", when.replace(year=2025)), ("<", when)]:
        assert not pushed.take("timestamp", operator, moment)
    millis = int(when.timestamp() * 1000)
    assert pushed.from_millis is not None
    assert millis - 2 <= pushed.from_millis <= millis
    assert pushed.narrow(RANGES) == RANGES
    naive = PushedFilters()
    assert not naive.take("timestamp", ">=", when.replace(tzinfo=None))
    assert naive.from_millis is None
