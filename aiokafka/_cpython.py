"""Operations of CPython's C API: garbage collection flags, type names, awaitables.

Compiled modules use the C forms in `_cpython_native.pxd`. These functions replace the C forms when
the same modules run as plain sources; most of them do nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

__all__ = [
    "call",
    "make_untracked",
    "own_dict",
    "present_as",
    "ready",
    "replace_attributes",
    "set_plainly",
    "set_tracked",
    "spare_dict",
    "track",
    "untrack",
]

S = TypeVar("S")
T = TypeVar("T")


# -- Exclude records from garbage collection while they cannot be part of a reference cycle:
# the collector took a third of the time of reading to traverse all records


def untrack(instance: Any) -> None:
    """Exclude `instance`, which must refer to no containers, from garbage collection."""


def track(instance: Any) -> None:
    """Include `instance` in garbage collection again, before it may join a reference cycle."""


def set_tracked(instance: Any, name: str, value: Any) -> None:
    """Set an attribute, and include `instance` in garbage collection again."""
    object.__setattr__(instance, name, value)


def set_plainly(cls: Any) -> None:
    """Remove the `__setattr__` of `cls` that calls `set_tracked`: uncompiled instances are always
    tracked."""
    del cls.__setattr__


def spare_dict(instance: Any) -> None:
    """Free the empty `__dict__` of a new extension type instance. Python creates a new `__dict__`
    on demand."""


_new_tuple: Callable[..., Any] = tuple.__new__


make_untracked = _new_tuple
"""Return an instance of `cls`, a subclass of tuple, that the garbage collector ignores.

Used for RecordMetadata, which cannot be part of a reference cycle. Futures keep thousands of
RecordMetadata in memory; tracking them would trigger full collections.
"""


def own_dict(instance: Any) -> dict[str, Any]:
    """Return the real `__dict__` of an instance, without its C members."""
    return instance.__dict__  # type: ignore[no-any-return]


def replace_attributes(cls: type, set_attribute: Any, dictionary: Any, model: type) -> None:
    """Make an extension type use `set_attribute` and show the property `dictionary` as `__dict__`.

    The type then behaves like the Python class `model`, so that `object.__setattr__` accepts
    instances of the type. Does nothing for uncompiled classes.
    """


def present_as(cls: type, module: str, name: str) -> None:
    """Set the module and name that `repr`, `pickle` and documentation show.

    The C form is for extension types, whose attributes are read-only in Python. Both strings have
    to be literals.
    """
    cls.__module__ = module
    cls.__qualname__ = cls.__name__ = name


async def call(take: Callable[[S], T | None], find: Callable[[S], Awaitable[T]], source: S) -> T:
    """Return `take(source)` if that is not None, else `await find(source)`. Neither function runs
    before the result of `call` is awaited.

    The C form costs less than a coroutine.
    """
    value = take(source)
    return await find(source) if value is None else value


def ready(value: T) -> Generator[Any, None, T]:
    """Return an iterator for `__await__` that ends at once with `value`.

    The C form returns `value` without raising StopIteration.
    """
    return value
    yield  # type: ignore[unreachable]
