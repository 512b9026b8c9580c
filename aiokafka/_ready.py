"""Give a value that is mostly there to the task that awaits it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

__all__ = ["call", "ready"]

S = TypeVar("S")
T = TypeVar("T")


async def call(take: Callable[[S], T | None], find: Callable[[S], Awaitable[T]], source: S) -> T:
    """Return `take(source)`, or wait for `find(source)` where that is None. Takes nothing before it
    is awaited.

    Compiled callers use the C form (_ready_native.pxd), which costs less than a coroutine.
    """
    value = take(source)
    return await find(source) if value is None else value


def ready(value: T) -> Generator[Any, None, T]:
    """Return what `__await__` returns for a `value` that is there: `await` has it at once.

    The C form gives it without an exception, which even a generator needs.
    """
    return value
    yield  # type: ignore[unreachable]
