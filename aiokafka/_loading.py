"""Which of the interpreters of the process this is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

__all__ = ["SourceFinder", "install", "is_main", "on_demand"]


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


# -- Inner modules that `import aiokafka` alone makes reachable, as in aiokafka; loaded when used


def on_demand(package: str, *names: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which imports its modules of these `names`."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return load


# -- Run the package without its extensions: with `AIOKAFKA_NO_EXTENSIONS=1`, and in all

#
# Python prefers an extension to the `.py` beside it. The finder below goes first and only knows
# sources, so the plain form of every module wins.


class SourceFinder(MetaPathFinder):
    """Find the modules of one package by their sources only."""

    def __init__(self, package: str) -> None:
        self._prefix = package + "."
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(self._prefix):
            return None
        for entry in path:
            finder = self._finders.get(entry)
            if finder is None:
                finder = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
                self._finders[entry] = finder
            spec = finder.find_spec(fullname)
            # A directory without __init__.py gives a spec without loader: not ours to answer.
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Make sources win over extensions for every module of the package not yet imported."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder("aiokafka"))
