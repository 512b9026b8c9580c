"""Keep records out of the garbage collector's rounds while they cannot be part of a cycle.

Reading creates a great many short-lived objects that refer to nothing but bytes and numbers.
Walking over them took a third of the time that reading takes. Compiled callers use the C form in
`_gc_native.pxd`; Python code has no way to do it, so here everything stays as it is.
"""

from __future__ import annotations

from typing import Any

__all__ = ["leave_tracked", "set_tracked", "untrack"]


def untrack(instance: Any) -> None:
    """Let the collector ignore `instance`, which refers only to objects that refer to nothing."""


def set_tracked(instance: Any, name: str, value: Any) -> None:
    """Set an attribute, and let the collector see `instance` again: it may now be part of a
    cycle."""
    object.__setattr__(instance, name, value)


def leave_tracked(cls: type) -> None:
    """Remove the `__setattr__` that calls `set_tracked()`: uncompiled instances are never
    untracked."""
    del cls.__setattr__
