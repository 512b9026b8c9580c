"""Which of the interpreters of the process this is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["is_main"]


def is_main() -> bool:
    """Return whether it is the first one, as in nearly all programs.

    Extensions can be loaded by one interpreter only, so all others run the sources.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters: Any = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    # Such a Python is not made to have more than one.
    return True
