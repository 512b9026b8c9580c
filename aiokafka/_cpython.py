"""Pure Python forms of the C functions in `_cpython_native.pxd`.

Compiled modules use the C forms, which call CPython's C API, for example to set garbage collection
flags and type names. When the same modules run as plain sources, they use the forms below, most of
which do nothing.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = [
    "call",
    "copy_context",
    "first_step",
    "make_slotted",
    "make_untracked",
    "new_buffer",
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


def new_buffer(size: int) -> bytearray:
    """Return a bytearray with arbitrary content. The C form saves the time to fill it with
    zeros."""
    return bytearray(size)


# -- Exclude records from the garbage collector's search for reference cycles while they cannot be
# part of one. Searching all records would take a third of the time of reading. The forms below
# exclude nothing.


def untrack(instance: Any) -> None:
    """In the C form, exclude `instance`, which must not refer to containers, from the search for
    reference cycles."""


def track(instance: Any) -> None:
    """In the C form, undo `untrack`: the search for reference cycles includes `instance` again. To
    be called before `instance` can refer to containers."""


def set_tracked(instance: Any, name: str, value: Any) -> None:
    """Set an attribute of `instance`. The C form also includes `instance` in the search for
    reference cycles again."""
    object.__setattr__(instance, name, value)


def set_plainly(cls: Any) -> None:
    """Remove `cls.__setattr__`, which calls `set_tracked`. The garbage collector always tracks the
    instances of a pure Python class, so `object.__setattr__` is enough, and faster."""
    del cls.__setattr__


def spare_dict(instance: Any) -> None:
    """In the C form, free the empty `__dict__` of a new instance of an extension type, to save
    memory. Python creates a `__dict__` again when an attribute is set."""


make_untracked: Callable[..., Any] = tuple.__new__
"""Return an instance of a subclass of tuple. The C form excludes the instance from the search for
reference cycles.

For RecordMetadata, which cannot be part of a reference cycle. An application that keeps the futures
of thousands of records would trigger full garbage collections otherwise.
"""


def make_slotted(cls: type[T], slots: tuple[Any, ...], fields: tuple[Any, ...]) -> T:
    """Return an instance of `cls` without calling its constructor.

    `slots` are the descriptors that `__slots__` has created in `cls`, and `fields` their values.
    """
    instance = cls.__new__(cls)
    for slot, field in zip(slots, fields, strict=True):
        slot.__set__(instance, field)
    return instance


def own_dict(instance: Any) -> dict[str, Any]:
    """Return the `__dict__` in which Python stores further attributes of an instance. For an
    extension type, this dict does not contain the C members."""
    return instance.__dict__  # type: ignore[no-any-return]


def replace_attributes(cls: type, set_attribute: Any, dictionary: Any, model: type) -> None:
    """Set the `__setattr__` and the `__dict__` property of an extension type.

    `model` is a Python class with the same `__setattr__`: its slot function makes
    `object.__setattr__` accept instances of the extension type. Does nothing for Python classes.
    """


def present_as(cls: type, module: str, name: str) -> None:
    """Set the module and name of a class, as `repr`, `pickle` and documentation use them.

    Python cannot set these attributes of an extension type, but the C form can. Its parameters are
    C strings, so pass literals.
    """
    cls.__module__ = module
    cls.__qualname__ = cls.__name__ = name


async def call(take: Callable[[S], T | None], find: Callable[[S], Awaitable[T]], source: S) -> T:
    """Return `take(source)` if the result is not None, else `await find(source)`.

    The C form is an awaitable that costs less than a coroutine. As with a coroutine, no function
    is called before the awaitable is awaited.
    """
    value = take(source)
    return await find(source) if value is None else value


def ready(value: T) -> Generator[Any, None, T]:
    """Return an iterator for an `__await__` method, such that `await` returns `value` at once.

    The C form needs no StopIteration, which makes it faster.
    """
    return value
    yield  # type: ignore[unreachable]


@types.coroutine
def _drive() -> Generator[Any, Any, None]:
    """Run each coroutine that `send` passes to this generator, and yield its result.

    This is faster than `coroutine.send(None)`, which raises StopIteration when the coroutine ends:
    the exception takes as long as the call of the coroutine. `yield from` needs no exception.
    """
    result = None
    while True:
        steps = yield result
        result = yield from steps


_idle_drivers: list[Generator[Any, Any, None]] = []
"""Drivers that wait for a coroutine. A serializer may itself send records, and loops may run in
several threads, so a running driver is not in this list."""


def _new_driver() -> Generator[Any, Any, None]:
    driver = _drive()
    next(driver)
    return driver


def first_step(coroutine: Any, suspended: Callable[[Any, Any, object], BaseException]) -> Any:
    """Run a coroutine up to its first suspension. Return its result; if it waits, raise
    `suspended(coroutine, yielded, driver)`.

    The C form needs no driver, and calls `suspended(coroutine, yielded)`.
    """
    try:
        driver: Any = _idle_drivers.pop()
    except IndexError:
        driver = _new_driver()
    # If `send()` raises, the driver has ended, so it does not return to `_idle_drivers`.
    yielded = driver.send(coroutine)
    if driver.gi_yieldfrom is not None:
        raise suspended(coroutine, yielded, driver)
    _idle_drivers.append(driver)
    return yielded
