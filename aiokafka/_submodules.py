"""Inner modules that `import aiokafka` alone makes reachable, as in aiokafka; loaded when used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, *names: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which imports its modules of these `names`."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return load
