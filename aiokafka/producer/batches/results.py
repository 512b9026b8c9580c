"""Make the result of a record, and give it to the task that awaits it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from aiokafka.structs import RecordMetadata

__all__ = ["make_metadata", "ready"]

_new_tuple: Callable[..., Any] = tuple.__new__


def make_metadata(cls: Any, fields: tuple[Any, ...]) -> RecordMetadata:
    """Return a RecordMetadata, which `cls` is, of its seven fields.

    Compiled callers use the C form (results_native.pxd), which keeps it out of the garbage
    collector's rounds: it refers only to objects that refer to nothing. Each is kept by its future,
    and thousands of them would have the collector look through all objects of the program.
    """
    return _new_tuple(cls, fields)  # type: ignore[no-any-return]


def ready(value: Any) -> Generator[Any, None, Any]:
    """Return what `__await__` returns for a `value` that is there: `await` has it at once.

    The C form gives it without an exception, which even a generator needs.
    """
    return value
    yield  # type: ignore[unreachable]
