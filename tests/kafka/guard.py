"""Ends the brokers of a test run that was itself ended without a chance to clean up.

`Guard` starts this file as a small process of its own and tells it which processes to watch. When
the pipe between them closes, for whatever reason, the watcher kills what is still listed, and
removes the folders.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


class Guard:
    """Owner of the watcher process; one for the whole test run is enough."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[str] | None = None

    def add(self, pid: int) -> None:
        """Kill this process group when the test run ends, if it was not killed before."""
        self._tell(f"+{pid}")

    def remove(self, pid: int) -> None:
        """The process has ended and its id may be used by others from now on."""
        self._tell(f"-{pid}")

    def add_folder(self, folder: Path) -> None:
        """Remove this folder when the test run ends."""
        self._tell(f"/{folder}")

    def _tell(self, line: str) -> None:
        if self._watcher is None:
            self._watcher = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            atexit.register(self._close)
        assert self._watcher.stdin is not None
        print(line, file=self._watcher.stdin, flush=True)

    def _close(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.communicate(timeout=10)


guard = Guard()


def watch(lines: Iterable[str]) -> None:
    """Follow the list until it ends, then kill what is on it."""
    alive: set[int] = set()
    folders: list[str] = []
    for line in lines:
        kind, rest = line[0], line[1:].rstrip("\n")
        if kind == "+":
            alive.add(int(rest))
        elif kind == "-":
            alive.discard(int(rest))
        else:
            folders.append(rest)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.stdin)
