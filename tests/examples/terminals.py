"""Type a page of the manual in: save its files, run its commands, look for what it shows.

A page has `literalinclude` with a caption, which is a file to save, and blocks of `console` with a
caption, which is the terminal to type in. In a block

- `$ command` is typed when the command before has ended, and must succeed;
- `^C` interrupts the command, which ends quietly;
- `...` is any number of lines, `... within a line` any text;
- every other line is what the terminal shows next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.examples.scripts import HEED_SIGINT, REPOSITORY

DIRECTIVE = re.compile(r"^( *)\.\. (literalinclude|code-block):: (\S+)\n((?:\1 +:.*\n)*)", re.M)
PATIENCE = 100  # seconds; every step takes a second or two


@dataclass
class Save:
    """A file that the page shows."""

    name: str
    text: str


@dataclass
class Type:
    """Lines that the page shows in a terminal."""

    terminal: str
    lines: list[str]


def steps_of(page: Path) -> Iterator[Save | Type]:
    """Return what a reader of the page does, in order."""
    text = page.read_text()
    for found in DIRECTIVE.finditer(text):
        options = dict(re.findall(r":([\w-]+): (.*)", found[4]))
        if found[2] == "literalinclude" and "caption" in options:
            lines = (page.parent / found[3]).read_text().splitlines(keepends=True)
            first = int(options.get("lines", "1-").rstrip("-"))
            yield Save(options["caption"], "".join(lines[first - 1 :]))
        elif found[2] == "code-block" and found[3] == "console":
            indent = found[1] + "    "
            block = re.match(rf"\n((?:(?:{indent}.*)?\n)+)", text[found.end() :])
            assert block is not None, f"no text after {found[0]!r}"
            lines = [line.removeprefix(indent) for line in block[1].splitlines()]
            yield Type(options["caption"], [line for line in lines if line])


class Terminal:
    """A shell in which one command runs at a time."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._command = ""
        self._process: asyncio.subprocess.Process | None = None
        self._shown: list[str] = []
        self._any = False  # whether any lines may come before what is expected next

    async def type(self, line: str) -> str:
        """Take a line of a block; return what the terminal showed for it."""
        if line == "^C":
            await self._interrupt()
        elif line.startswith("$ "):
            await self.finish()
            await self._start(line[2:])
        elif line == "...":
            self._any = True
        else:
            return await self._expect(line)
        return ""

    async def _start(self, command: str) -> None:
        self._command, self._any, self._shown = command, False, []
        self._process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
            preexec_fn=HEED_SIGINT,
        )

    async def _line(self) -> str | None:
        """Return the next line, or None at the end of the output."""
        assert self._process is not None and self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if not line:
            return None
        self._shown.append(line.decode().rstrip())
        return self._shown[-1]

    async def _expect(self, line: str) -> str:
        pattern = ".*".join(re.escape(part) for part in re.split(r" ?\.\.\.", line))
        while True:
            try:
                found = await self._line()
            except asyncio.TimeoutError:
                found = None
            assert found is not None, f"{line!r} does not come\n{self}"
            if re.fullmatch(pattern, found):
                self._any = False
                return found
            assert self._any, f"expected {line!r}, not {found!r}\n{self}"

    async def _interrupt(self) -> None:
        assert self._process is not None, "there is nothing to interrupt"
        os.killpg(self._process.pid, signal.SIGINT)
        self._any = True
        await self._end()

    async def finish(self) -> None:
        """Wait for the end of the command, which must succeed."""
        if self._process is not None:
            assert await self._end() == 0, str(self)

    async def _end(self) -> int:
        """Read what is left; return the exit code."""
        assert self._process is not None
        while (line := await self._line()) is not None:
            assert self._any, f"not expected: {line!r}\n{self}"
        code = await asyncio.wait_for(self._process.wait(), PATIENCE)
        assert "Traceback (most" not in str(self), str(self)
        self._process = None
        return code

    async def close(self) -> None:
        """Kill what still runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def __str__(self) -> str:
        return "\n".join([f"$ {self._command}", *self._shown])


def make_commands(folder: Path, names: Sequence[str] = ("aiokafka", "pytest")) -> None:
    """Put `python`, and modules that are commands, into a folder for PATH."""
    folder.mkdir()
    for name in ("python", *names):
        module = "" if name == "python" else f"-m {name} "
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        path.chmod(0o755)


def environment_with(commands: Path) -> dict[str, str]:
    """Return the environment of a terminal, in which nothing of the tests is set."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {
        **found,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }
