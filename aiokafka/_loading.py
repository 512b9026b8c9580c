"""How the modules of the package are loaded: compiled or as sources, at once or when used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["SourceFinder", "install", "is_compiled", "is_main", "on_demand"]


def is_main() -> bool:
    """Return whether this is the main interpreter of the process.

    The extensions can be loaded by one interpreter only, so all others run the sources.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters: Any = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    # A Python without these modules has one interpreter only.
    return True


# -- Submodules that `import aiokafka` makes reachable, as in aiokafka, and loads when used


def on_demand(package: str, *names: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which imports its modules of these `names`."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return load


# -- Run the sources: with `AIOKAFKA_NO_EXTENSIONS=1`, and in all interpreters but the main one

# Python prefers an extension to the `.py` beside it. The finder below comes first in
# `sys.meta_path` and finds only sources.


class SourceFinder:
    """Finds the modules of one package by their sources only: an entry of `sys.meta_path`.

    It does not derive from ``MetaPathFinder``, whose import costs every program 10 ms.
    """

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
            # The spec of a directory without __init__.py has no loader: leave it to others.
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Make sources win over extensions for every module of the package not yet imported."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder("aiokafka"))


@lru_cache(maxsize=1)
def is_compiled() -> bool:
    """Return whether the inner loops are compiled."""
    spec = find_spec("aiokafka.partitioner")
    return spec is not None and not str(spec.origin).endswith(".py")
