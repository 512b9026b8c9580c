"""Run the package without its extensions: with `AIOKAFKA_NO_EXTENSIONS=1`, and in all
interpreters of a process but the first.

Python prefers an extension to the `.py` beside it. The finder below goes first and only knows
sources, so the plain form of every module wins.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

__all__ = ["SourceFinder", "install"]


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
