"""Give a value that is there to the task that awaits it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

__all__ = ["ready"]

T = TypeVar("T")


def ready(value: T) -> Generator[Any, None, T]:
    """Return what `__await__` returns for a `value` that is there: `await` has it at once.

    Compiled callers use the C form (_ready_native.pxd), which gives it without an exception, which
    even a generator needs.
    """
    return value
    yield  # type: ignore[unreachable]
