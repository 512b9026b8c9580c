"""The command line: `aiokafka`, or `python -m aiokafka`."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

__all__ = ["main"]

# Number of new objects after which this process searches for garbage; the default of Python 3.11
# is 700.
_GARBAGE_THRESHOLD = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    By default, `arguments` are the arguments of this process. In this case `main` also changes how
    the process collects garbage, because the process runs nothing else.
    """
    if arguments is not None:
        return _run(arguments)
    # Modules and clients live as long as the process. Python would search them for garbage while
    # they are created, and again at exit: a fifth of the CPU time of a short command.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    try:
        return _run(None)
    finally:
        gc.freeze()  # the search at exit skips frozen objects


def _run(arguments: Sequence[str] | None) -> int:
    # While modules are imported, let Ctrl-C end the process at once. A KeyboardInterrupt is not
    # enough: where Python cannot propagate it, for example from a finalizer, Python prints a
    # traceback and continues. Only the main thread can set signal handlers.
    is_main = threading.current_thread() is threading.main_thread()
    handles = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles:
        signal.signal(signal.SIGINT, _end)
    try:
        if importlib.util.find_spec("click") is None:
            print('aiokafka: the command line needs: pip install "aiokafka[cli]"', file=sys.stderr)
            return 2
        from aiokafka.cli.app import invoke
    finally:
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return invoke(arguments)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
