"""Make the result of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafka.structs import RecordMetadata

__all__ = ["make_metadata"]

_new_tuple: Callable[..., Any] = tuple.__new__


def make_metadata(cls: Any, fields: tuple[Any, ...]) -> RecordMetadata:
    """Return a RecordMetadata, which `cls` is, of its seven fields.

    Compiled callers use the C form (results_native.pxd), which keeps it out of the garbage
    collector's rounds: it refers only to objects that refer to nothing. Each is kept by its future,
    and thousands of them would have the collector look through all objects of the program.
    """
    return _new_tuple(cls, fields)  # type: ignore[no-any-return]
