"""What arguments must be: said at once, as what goes wrong later is far from its cause."""

from __future__ import annotations

import math
from typing import Any, TypeVar

__all__ = ["ByBroker", "check_seconds", "check_whole"]

V = TypeVar("V")


class ByBroker(dict[int, V]):
    """What there is for each broker, by its id."""

    def __missing__(self, broker_id: object) -> V:
        raise KeyError(f"no broker {broker_id!r}: there are {', '.join(map(str, self))}")


def check_whole(name: str, given: Any, least: float = -math.inf) -> None:
    """Raise TypeError for what is no whole number, ValueError below `least`."""
    if not isinstance(given, int):
        raise TypeError(f"{name} must be a whole number, not {given!r}")
    if given < least:
        raise ValueError(f"{name} must be at least {least}, not {given}")


def check_seconds(name: str, given: Any) -> None:
    """Raise TypeError for what is no number, ValueError below 0."""
    if not isinstance(given, int | float):
        raise TypeError(f"{name} must be a number, not {given!r}")
    if not given >= 0:
        raise ValueError(f"{name} must be at least 0, not {given}")
