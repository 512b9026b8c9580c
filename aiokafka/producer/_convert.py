"""Bring what users pass to `send` into the form that batches take, or say what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.errors import IllegalArgumentError

__all__ = ["WrongArgument", "as_bytes", "as_headers", "as_timestamp"]

Headers = Sequence[tuple[str, "bytes | None"]]


class WrongArgument(IllegalArgumentError, ValueError, AssertionError):
    """An argument of `send` is not valid.

    It is a ValueError by meaning, a KafkaError for those who catch these, and the AssertionError
    that aiokafka raised here.
    """


def as_bytes(value: Any, what: str) -> bytes | None:
    """`value` as bytes; raises TypeError if it is not None, bytes, bytearray or memoryview."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"{what}: must be bytes, bytearray, memoryview or None, not {type(value).__name__}; "
        f"set {what}_serializer to convert other types"
    )


def as_headers(headers: Iterable[Any] | None) -> Headers:
    """Pairs of name and bytes from any iterable of pairs. Raises TypeError for anything else."""
    if not headers:
        return ()
    return [_as_header(header) for header in headers]


def _as_header(header: Any) -> tuple[str, bytes | None]:
    try:
        name, value = header
    except (TypeError, ValueError):
        raise TypeError(f"headers: {header!r} is not a pair of name and value") from None
    if not isinstance(name, str):
        raise TypeError(f"headers: the name {name!r} must be a str, not {type(name).__name__}")
    if value is not None and type(value) is not bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"headers: the value of {name!r} must be bytes or None, not {type(value).__name__}"
            )
        value = bytes(value)
    return name, value


def as_timestamp(timestamp: Any) -> int:
    """Milliseconds since 1970 as int. Raises TypeError, or WrongArgument for a negative one."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise TypeError(
            f"timestamp: must be an int, milliseconds since 1970, not {type(timestamp).__name__}"
        )
    if not 0 <= timestamp < 2**63:
        raise WrongArgument(f"timestamp: {timestamp} is not a number of milliseconds since 1970")
    return timestamp
