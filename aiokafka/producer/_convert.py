"""Convert what users pass to `send` to the form that batches take, or say what is wrong with it."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka._config.options import brief, require_sendable, require_unicode
from aiokafka.errors import WrongArgument

__all__ = ["as_bytes", "as_headers", "as_number", "as_timestamp", "check_topic"]

Headers = Sequence[tuple[str, "bytes | None"]]

_LAST_TIMESTAMP = 2**63 - 2
"""Batches have room for one more, but it has no distance to the -1 of a record without a time."""


def as_bytes(value: Any, what: str, is_serialized: bool = False) -> bytes | None:
    """Return `value` as bytes; raise TypeError if it is not None, bytes, bytearray or memoryview.

    With `is_serialized` the error blames the serializer, which made `value` of the user's.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = type(value).__name__
    if is_serialized:
        hint = ", for example json.dumps(value).encode()" if isinstance(value, str) else ""
        raise TypeError(f"{what}_serializer returned {kind}, but must return bytes or None{hint}")
    raise TypeError(
        f"{what}: must be bytes, bytearray, memoryview or None, not {kind}; "
        f"set {what}_serializer to convert other types"
    )


def as_headers(headers: Iterable[Any] | None) -> Headers:
    """Return pairs of name and bytes from any iterable of pairs, which is read once.

    Raises TypeError for anything else, WrongArgument for a name that cannot be encoded.
    """
    if not headers:
        return ()
    if isinstance(headers, Mapping):
        raise TypeError("headers: must be pairs of name and value: pass the mapping's items()")
    try:
        pairs = iter(headers)
    except TypeError:
        kind = type(headers).__name__
        raise TypeError(f"headers: must be pairs of name and value, not {kind}") from None
    return [_as_header(header) for header in pairs]


def _as_header(header: Any) -> tuple[str, bytes | None]:
    try:
        name, value = header
    except (TypeError, ValueError):
        raise TypeError(f"headers: {header!r} is not a pair of name and value") from None
    if not isinstance(name, str):
        raise TypeError(f"headers: the name {name!r} must be a str, not {type(name).__name__}")
    if not name.isascii():
        _check_text(name, "headers: the name")
    if value is not None and type(value) is not bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"headers: the value of {name!r} must be bytes or None, not {type(value).__name__}"
            )
        value = bytes(value)
    return name, value


def as_number(partition: Any) -> int | None:
    """Return the number of a partition, or None, as it is. Raises TypeError for anything else."""
    return None if partition is None else _as_whole(partition, "partition: must be an int or None")


def _as_whole(value: Any, rule: str) -> int:
    """Return a whole number of any kind as an int: those of NumPy are none. Raises TypeError, whose
    text begins with `rule`, for what is no number."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{rule}, not {type(value).__name__}")


def as_timestamp(timestamp: Any, name: str = "timestamp_ms") -> int:
    """Return milliseconds since 1970 as int; fractions of one are cut off.

    `name` is that of the argument. Raises TypeError, or WrongArgument for one that a record has no
    room for.
    """
    if not isinstance(timestamp, float):
        timestamp = _as_whole(timestamp, f"{name}: must be a number of milliseconds since 1970")
    if not -1 < timestamp <= _LAST_TIMESTAMP:  # true of no NaN
        raise WrongArgument(
            f"{name}: {timestamp} is not a number of milliseconds since 1970, "
            f"from 0 to {_LAST_TIMESTAMP}"
        )
    return int(timestamp)


def check_topic(topic: Any) -> None:
    """Raise TypeError or WrongArgument for what cannot be a topic's name."""
    if not isinstance(topic, str):
        raise TypeError(f"topic: must be a str, not {type(topic).__name__}")
    if not topic:
        raise WrongArgument("topic: must not be empty")
    _check_text(topic, "topic:", require_sendable)


def _check_text(text: str, what: str, require: Callable[[str], None] = require_unicode) -> None:
    try:
        require(text)
    except ValueError as error:
        raise WrongArgument(f"{what} {brief(text)} cannot be sent: {error}") from None
