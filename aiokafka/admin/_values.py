"""The base of what the rooms of the admin client return: frozen values that become plain data."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import Mapping
from typing import Any

__all__ = ["Value", "plain"]

_PLAIN = frozenset((bool, float, int, str, type(None)))


class Value:
    """What an admin call found: compared by its fields, printable, and frozen."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain data for JSON: see `plain`."""
        found: dict[str, Any] = plain(self)
        return found


def plain(value: Any) -> Any:
    """Return `value` as dicts, lists, strings, numbers, booleans and None.

    Enums become their names, partitions as keys "topic-partition", bytes text where they are UTF-8
    and hex digits otherwise, UUIDs and errors their text.
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
    """Return the fields of a dataclass; there may be thousands of values of one."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind))


def _key(key: Any) -> str:
    """Return a key of a dict as JSON needs it."""
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
