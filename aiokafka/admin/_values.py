"""The base class of values that admin calls return, and checks of arguments of admin calls."""

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
    """Base class of the values that admin calls return; the subclasses are frozen dataclasses."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON: dicts, lists, strings, numbers, booleans, None."""
        found: dict[str, Any] = plain(self)
        return found


def plain(value: Any) -> Any:
    """Convert `value` to dicts, lists, strings, numbers, booleans and None.

    Enum members become their names; UUIDs, errors and times their text. Bytes become text if they
    are UTF-8, otherwise hex digits. Partitions as keys of a dict become "topic-partition". Raises
    TypeError for other objects.
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
    """Return the field names of a dataclass, () for other classes.

    Cached, because a result has many values of the same class.
    """
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
    """Return a number of a response; None if it is negative, which brokers send for "unknown"."""
    return number if number >= 0 else None


# -- Arguments of calls

E = TypeVar("E", bound=enum.Enum)
K = TypeVar("K")
V = TypeVar("V")


def as_names(argument: str, values: Iterable[str]) -> list[str]:
    """Return the names without repeats. Raises TypeError for a single str or bytes object, and for
    a name that is not a str."""
    if isinstance(values, str | bytes):
        raise TypeError(f"{argument}: must be several names, not one {type(values).__name__}")
    names = list(dict.fromkeys(values))
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: must be names, not {name!r}")
    return names


def as_enums(argument: str, values: Iterable[E | str], kind: type[E]) -> list[E]:
    """Return members of the enum `kind` for members or their values.

    Raises TypeError for a single str or member, ValueError for an unknown value.
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
    """Return the partitions without repeats. Raises TypeError for an item that is no partition."""
    rule = f"{argument}: must be TopicPartition instances"
    return list(dict.fromkeys(as_partition(value, rule) for value in values))


def items_of(argument: str, values: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return the items of a dict or other mapping. Raises TypeError for other objects."""
    if not callable(getattr(values, "items", None)):
        raise TypeError(f"{argument}: must be a dict, not {type(values).__name__}")
    return values.items()


def as_int(argument: str, value: Any) -> int:
    """Convert an integer of any type, except bool, to int. Raises TypeError for other objects."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: {value!r}: must be an int") from None


def refuse_other_names(argument: str, values: Iterable[str] | None) -> None:
    """Raise TypeError for a single str, and for a collection with an item that is not a str.

    The items of an iterator are not checked, because reading would consume them.
    """
    if isinstance(values, str):
        # A str is also an iterable of its letters, so the type checker accepts it.
        raise TypeError(f"{argument}: must be several names, not one str")
    if isinstance(values, Collection):
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{argument}: must be names, not {value!r}")
