"""Keep records out of the garbage collector's rounds while they cannot be part of a cycle.

Reading creates a great many short-lived objects that refer to nothing but bytes and numbers.
Walking over them took a third of the time that reading takes. Compiled callers use the C form in
`_gc_native.pxd`; Python code has no way to do it, so here everything stays as it is.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "own_dict",
    "replace_attributes",
    "set_plainly",
    "set_tracked",
    "spare_dict",
    "track",
    "untrack",
]


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
