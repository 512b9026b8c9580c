"""Control how modules of the package are loaded: compiled or as sources, at once or on demand."""

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

    Only one interpreter can load the extension modules, so subinterpreters run the sources.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters: Any = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    # A Python without these modules has one interpreter only.
    return True


# -- Load submodules on first attribute access; in aiokafka, `import aiokafka` loads them


def on_demand(package: str, *names: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package` that imports the submodules `names` on first access."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return load


# -- Run the sources: with `AIOKAFKA_NO_EXTENSIONS=1`, and in all interpreters but the main one

# Python prefers an extension to the `.py` beside it. The finder below comes first in
# `sys.meta_path` and finds only sources.


class SourceFinder:
    """An entry of `sys.meta_path` that finds only the sources of the modules of one package.

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
            # The spec of a directory without __init__.py has no loader: leave it to other finders.
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """Load all modules of the package that are not yet imported from their sources."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder("aiokafka"))


@lru_cache(maxsize=1)
def is_compiled() -> bool:
    """Return whether Python loads the compiled extension modules instead of their `.py` sources
    (checked by `aiokafka.partitioner`)."""
    spec = find_spec("aiokafka.partitioner")
    return spec is not None and not str(spec.origin).endswith(".py")
