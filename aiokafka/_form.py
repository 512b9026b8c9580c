"""Say which form of the package runs: compiled extensions, or the plain sources."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec

__all__ = ["is_compiled", "mention_form"]

log = logging.getLogger("aiokafka")


@lru_cache(maxsize=1)
def is_compiled() -> bool:
    """Say whether the inner loops are compiled."""
    spec = find_spec("aiokafka.partitioner")
    return spec is not None and not str(spec.origin).endswith(".py")


@lru_cache(maxsize=1)
def mention_form() -> None:
    """Log one line, once in a process, if the package runs as pure Python."""
    if not is_compiled():
        log.info(
            "aiokafka runs as pure Python, several times slower per record than compiled: install "
            "it where there is a C compiler, and run it without AIOKAFKA_NO_EXTENSIONS in the main "
            "interpreter"
        )
