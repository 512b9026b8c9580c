"""Loading of the package's modules: on demand, and as sources in place of extension modules."""

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
    """Return whether this is the main interpreter of the process, not a subinterpreter.

    Only one interpreter of a process can load the extension modules.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters: Any = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    # Without these modules, Python code cannot create subinterpreters.
    return True


# -- Load submodules on first attribute access. In aiokafka 0.14, `import aiokafka` loads them.


def on_demand(package: str, *names: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package` that imports the submodules `names` on first access."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return load


# -- Run the sources: with `AIOKAFKA_NO_EXTENSIONS=1`, and in subinterpreters

# Python prefers an extension module to the `.py` file beside it. The finder below is the first in
# `sys.meta_path`, and finds only `.py` files.


class SourceFinder:
    """A finder for `sys.meta_path` that finds only the `.py` files of one package.

    The class does not derive from ``MetaPathFinder``, because that import costs 10 ms.
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
    """From now on, import the package's modules from their `.py` files."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder("aiokafka"))


@lru_cache(maxsize=1)
def is_compiled() -> bool:
    """Return whether Python imports the package's extension modules, not their `.py` files.
    `aiokafka.partitioner` stands for all of them."""
    spec = find_spec("aiokafka.partitioner")
    return spec is not None and not str(spec.origin).endswith(".py")
