"""What the filters of a query say about topics, partitions, offsets and times. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from aiokafka.spark._offsets import OffsetRange

__all__ = ["Pushed"]

_OPERATORS = ("=", "in", ">", ">=", "<", "<=")


class Pushed:
    """Filters that hold for every row, as far as they reduce what is read."""

    def __init__(self) -> None:
        self.from_millis: int | None = None
        """Older records are not wanted."""

        self._topics: set[str] | None = None
        self._numbers: set[int] | None = None
        self._lowest = 0
        self._highest = 2**63 - 1
        self._lowest_number = 0
        self._highest_number = 2**31 - 1

    def take(self, column: str, operator: str, value: Any) -> bool:
        """Apply one filter; return whether every row that it refuses is now left out."""
        if operator not in _OPERATORS:
            return False
        if column == "topic":
            return self._take_topic(operator, value)
        if column == "timestamp":
            self._take_time(operator, value)
            return False  # Times need not ascend: Spark must still check each row.
        if column in ("partition", "offset"):
            return self._take_number(column, operator, value)
        return False

    def narrow(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return what is left of the ranges."""
        return [
            left
            for r in ranges
            if self._has(r) and (left := _cut(r, self._lowest, self._highest)).start < left.until
        ]

    def _has(self, wanted: OffsetRange) -> bool:
        return (
            (self._topics is None or wanted.topic in self._topics)
            and (self._numbers is None or wanted.partition in self._numbers)
            and self._lowest_number <= wanted.partition <= self._highest_number
        )

    def _take_topic(self, operator: str, value: Any) -> bool:
        values = _values(operator, value, str)
        if values is None:
            return False
        self._topics = values if self._topics is None else self._topics & values
        return True

    def _take_number(self, column: str, operator: str, value: Any) -> bool:
        values = _values(operator, value, int)
        if values is not None:
            if column == "partition":
                self._numbers = values if self._numbers is None else self._numbers & values
                return True
            if len(values) != 1:
                return False
            self._bound(column, min(values), min(values))
            return True
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        if operator in (">", ">="):
            self._bound(column, value + (operator == ">"), None)
        else:
            self._bound(column, None, value - (operator == "<"))
        return True

    def _bound(self, column: str, lowest: int | None, highest: int | None) -> None:
        if column == "partition":
            self._lowest_number = max(self._lowest_number, lowest or 0)
            if highest is not None:
                self._highest_number = min(self._highest_number, highest)
        else:
            self._lowest = max(self._lowest, lowest or 0)
            if highest is not None:
                self._highest = min(self._highest, highest)

    def _take_time(self, operator: str, value: Any) -> None:
        if not isinstance(value, datetime) or operator not in ("=", ">", ">="):
            return
        if value.tzinfo is None:
            return  # Only Spark knows the time zone.
        seconds = (value - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()
        millis = max(0, int(seconds * 1000) - 1)
        self.from_millis = millis if self.from_millis is None else max(self.from_millis, millis)


def _values(operator: str, value: Any, kind: type) -> set[Any] | None:
    """Return the values that an equality or a list allows; None for anything else."""
    if operator == "=":
        found = {value}
    elif operator == "in":
        found = set(value)
    else:
        return None
    usable = all(isinstance(item, kind) and not isinstance(item, bool) for item in found)
    return found if usable else None


def _cut(whole: OffsetRange, lowest: int, highest: int) -> OffsetRange:
    start = max(whole.start, lowest)
    return whole._replace(start=start, until=max(start, min(whole.until, highest + 1)))
