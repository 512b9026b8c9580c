"""The base class of values that admin calls return, and their conversion to plain data."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import Mapping
from typing import Any

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
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


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
