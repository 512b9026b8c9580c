"""Give a class the name and module under which users import it."""

from __future__ import annotations

__all__ = ["present_as"]


def present_as(cls: type, module: str, name: str) -> None:
    """Set the name that `repr`, `pickle` and documentation show.

    Compiled callers use the C form in `_names_native.pxd`: the attributes of an extension type
    cannot be set from Python. Both strings have to be literals.
    """
    cls.__module__ = module
    cls.__qualname__ = cls.__name__ = name
