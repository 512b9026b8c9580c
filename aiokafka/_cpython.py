"""What Python code cannot say to CPython, and compiled code can.

Compiled modules use the C forms in `_cpython_native.pxd`. The functions here are for the same
modules run as plain sources. Most of them do nothing.
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


# -- Keep records out of the garbage collector's rounds while they cannot be part of a cycle.
# -- Reading creates many short-lived objects that refer to nothing but bytes and numbers; walking
# -- over them took a third of the time that reading takes.


def untrack(instance: Any) -> None:
    """Let the collector ignore `instance`, which refers only to objects that refer to nothing."""


def track(instance: Any) -> None:
    """Let the collector see `instance` again: it may now be part of a cycle."""


def set_tracked(instance: Any, name: str, value: Any) -> None:
    """Set an attribute, and let the collector see `instance` again: it may now be part of a
    cycle."""
    object.__setattr__(instance, name, value)


def set_plainly(cls: Any) -> None:
    """Let instances of `cls` set attributes without its `__setattr__`, which calls `set_tracked`.

    Uncompiled instances are never untracked, and every attribute of theirs would go through it.
    """
    del cls.__setattr__


def spare_dict(instance: Any) -> None:
    """Free the empty dict that an instance of an extension type is made with. Python makes another
    for the first attribute."""


_new_tuple: Callable[..., Any] = tuple.__new__


def make_untracked(cls: Any, fields: tuple[Any, ...]) -> Any:
    """Return an instance of `cls`, a subclass of tuple, which the collector ignores.

    For the RecordMetadata of records: each is kept by its future, and refers only to objects that
    refer to nothing. Thousands of tracked ones would cause collections of all objects.
    """
    return _new_tuple(cls, fields)


def own_dict(instance: Any) -> dict[str, Any]:
    """Return what an instance has stored besides its C members, whatever its `__dict__` shows."""
    return instance.__dict__  # type: ignore[no-any-return]


def replace_attributes(cls: type, set_attribute: Any, dictionary: Any, model: type) -> None:
    """Let an extension type set attributes with `set_attribute`, and show `dictionary`, a property,
    as the `__dict__` of its instances.

    As in a class that is written in Python, such as `model`, so that `object.__setattr__` can be
    called for an instance: of what an extension type brings itself it is refused. Uncompiled
    instances are never untracked and have their fields in their `__dict__`, so here it does
    nothing.
    """


def present_as(cls: type, module: str, name: str) -> None:
    """Set the name that `repr`, `pickle` and documentation show.

    Compiled callers use the C form: the attributes of an extension type
    cannot be set from Python. Both strings have to be literals.
    """
    cls.__module__ = module
    cls.__qualname__ = cls.__name__ = name


async def call(take: Callable[[S], T | None], find: Callable[[S], Awaitable[T]], source: S) -> T:
    """Return `take(source)`, or wait for `find(source)` where that is None. Takes nothing before it
    is awaited.

    Compiled callers use the C form, which costs less than a coroutine.
    """
    value = take(source)
    return await find(source) if value is None else value


def ready(value: T) -> Generator[Any, None, T]:
    """Return what `__await__` returns for a `value` that is there: `await` has it at once.

    The C form gives it without an exception, which even a generator needs.
    """
    return value
    yield  # type: ignore[unreachable]
