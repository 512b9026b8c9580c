"""The base class of values that admin calls return, and checks of their arguments."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import operator
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka._partitions import as_partition
from aiokafka.structs import TopicPartition

_PLAIN = frozenset((bool, float, int, str, type(None)))


class Value:
    """Base class of the values that admin calls return, which are frozen dataclasses."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON: dicts, lists, strings, numbers, booleans, None."""
        found: dict[str, Any] = plain(self)
        return found


def plain(value: Any) -> Any:
    """Convert `value` to dicts, lists, strings, numbers, booleans and None.

    Enums become their names, UUIDs and errors their text. Bytes become text if they are UTF-8, else
    hex digits. Partitions as keys become "topic-partition".
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, str | int | float):
        return value
    if names := _names(kind):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if isinstance(value, uuid.UUID | BaseException):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.timedelta):
        return str(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    raise TypeError(f"{type(value).__name__} has no plain form")


@functools.cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; cached, because one result has many values of
    a class."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind))


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        return key.name
    if isinstance(key, tuple) and getattr(key, "_fields", ())[:2] == ("topic", "partition"):
        return f"{key[0]}-{key[1]}"
    return str(key)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def uuid_of(data: bytes) -> uuid.UUID | None:
    """Return the UUID of 16 bytes, or None for zeros, which mean "no id"."""
    return uuid.UUID(bytes=bytes(data)) if any(data) else None


def or_none(number: int) -> int | None:
    """Return a number of a response, or None if it is negative, which means "not known"."""
    return number if number >= 0 else None


# -- Arguments of calls

E = TypeVar("E", bound=enum.Enum)
K = TypeVar("K")
V = TypeVar("V")


def as_names(argument: str, values: Iterable[str]) -> list[str]:
    """Return names without repeats. Raises TypeError unless they are several strings."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{argument}: must be several names, not one {type(values).__name__}")
    names = list(dict.fromkeys(values))
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: must be names, not {name!r}")
    return names


def as_enums(argument: str, values: Iterable[E | str], kind: type[E]) -> list[E]:
    """Return members of an enum, given as members or values. Raises TypeError or ValueError."""
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
    """Return partitions without repeats. Raises TypeError for other objects."""
    rule = f"{argument}: must be TopicPartition instances"
    return list(dict.fromkeys(as_partition(value, rule) for value in values))


def items_of(argument: str, values: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return the keys and values of a dict. Raises TypeError for other objects."""
    if not callable(getattr(values, "items", None)):
        raise TypeError(f"{argument}: must be a dict, not {type(values).__name__}")
    return values.items()


def as_int(argument: str, value: Any) -> int:
    """Return an integer of any type as an int. Raises TypeError for other objects."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: {value!r}: must be an int") from None


def refuse_other_names(argument: str, values: Iterable[str] | None) -> None:
    """Raise TypeError for one string, and for a collection with other objects than strings."""
    if isinstance(values, str):
        # A string is an iterable, too: of names with one letter each.
        raise TypeError(f"{argument}: must be several names, not one str")
    if isinstance(values, Collection):
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{argument}: must be names, not {value!r}")
