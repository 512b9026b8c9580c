"""The command line: `aiokafka`, or `python -m aiokafka`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process; return its exit code."""
    try:
        if importlib.util.find_spec("click") is None:
            print('aiokafka: the command line needs: pip install "aiokafka[cli]"', file=sys.stderr)
            return 2
        from aiokafka.cli.app import invoke
    except KeyboardInterrupt:
        return 130  # Ctrl-C while modules are imported
    return invoke(arguments)
