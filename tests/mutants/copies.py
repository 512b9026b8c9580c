"""Copies of the repository, each with one fault planted at a time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutants.faults import REPOSITORY, Fault, Sources

__all__ = ["Copy", "Run"]

_LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv*",
    "build",
    "dist",
    "*.so",
    "*.pyd",
    "*.c",
    "*.egg-info",
    "__pycache__",
    ".*cache",
)


class Run(NamedTuple):
    """What a command said. `code` is None when it had to be ended."""

    code: int | None
    output: str
    seconds: float


class Copy:
    """A copy of the repository in a temporary folder, in pure Python."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutant-")
        self.path = Path(self._folder.name) / "copy"
        shutil.copytree(REPOSITORY, self.path, ignore=_LEFT_OUT, symlinks=True)

    def close(self) -> None:
        """Remove the copy."""
        self._folder.cleanup()

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """A block in which the copy has the fault."""
        sources = Sources.of_package()
        planted = fault.plant(sources)
        try:
            for path, text in planted.items():
                self._write(self.path / path, text)
            yield
        finally:
            for path in planted:
                self._write(self.path / path, "\n".join(sources.lines[path]))

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        # Compiled files go by the time in seconds and the size, which may both be as before.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, arguments: Sequence[str], limit: float) -> Run:
        """Run Python with these arguments in the copy, for `limit` seconds at most."""
        environment = {
            **os.environ,
            "AIOKAFKA_NO_EXTENSIONS": "1",
            "PYTHONPATH": str(self.path),
            "PYTHONHASHSEED": "0",
        }
        began = time.monotonic()
        with (self.path.parent / "output").open("w+") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code: int | None = None
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end_group(process)
            output.seek(0)
            return Run(code, output.read(), time.monotonic() - began)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
