"""Check what users pass to the rooms, and bring it into one form."""

from __future__ import annotations

import enum
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka._partitions import as_partition
from aiokafka.admin.new_topic import NewTopic
from aiokafka.structs import TopicPartition

__all__ = [
    "as_enums",
    "as_int",
    "as_names",
    "as_new_topics",
    "as_partitions",
    "items_of",
    "refuse_other_names",
]

E = TypeVar("E", bound=enum.Enum)
K = TypeVar("K")
V = TypeVar("V")


def as_names(argument: str, values: Iterable[str]) -> list[str]:
    """Return names without repeats. Raises TypeError for one string, or for what is no string."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{argument}: must be several names, not one {type(values).__name__}")
    names = list(dict.fromkeys(values))
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: must be names, not {name!r}")
    return names


def as_enums(argument: str, values: Iterable[E | str], kind: type[E]) -> list[E]:
    """Return members of an enum, which may be given by name or value.

    Raises ValueError for a word that is none of them.
    """
    if isinstance(values, str | enum.Enum):
        raise TypeError(f"{argument}: must be several values, not one {type(values).__name__}")
    return [_as_enum(argument, value, kind) for value in values]


def _as_enum(argument: str, value: E | str, kind: type[E]) -> E:
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(each.name for each in kind)
        raise ValueError(f"{argument}: {value!r}: must be one of {known}") from None


def as_partitions(argument: str, values: Iterable[Any]) -> list[TopicPartition]:
    """Return partitions without repeats. Raises TypeError for what is none."""
    rule = f"{argument}: must be TopicPartition instances"
    return list(dict.fromkeys(as_partition(value, rule) for value in values))


def items_of(argument: str, values: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return keys and values of a dict. Raises TypeError for a list, and whatever else is none."""
    if not callable(getattr(values, "items", None)):
        raise TypeError(f"{argument}: must be a dict, not {type(values).__name__}")
    return values.items()


def as_int(argument: str, value: Any) -> int:
    """Return a whole number, of any kind, as an int. Raises TypeError for what is none."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: {value!r}: must be an int") from None


def as_new_topics(argument: str, values: Iterable[NewTopic]) -> list[NewTopic]:
    """Return topics to create. Raises TypeError for what is none, or for a single one."""
    if isinstance(values, NewTopic):
        raise TypeError(f"{argument}: must be several topics, not one NewTopic")
    topics = list(values)
    for topic in topics:
        # That of another library will do.
        if not hasattr(topic, "num_partitions"):
            raise TypeError(f"{argument}: must be NewTopic objects, not {topic!r}")
    return topics


def refuse_other_names(argument: str, values: Iterable[str] | None) -> None:
    """Raise TypeError for one string, and for a collection with something that is no string."""
    if isinstance(values, str):
        # It is an iterable of names, too: those of one letter.
        raise TypeError(f"{argument}: must be several names, not one str")
    if isinstance(values, Collection):
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{argument}: must be names, not {value!r}")
