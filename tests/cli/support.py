"""Run commands and look at what they print."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest

from aiokafka.cli import main
from aiokafka.testing import FakeCluster

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent


class Served:
    """A fake cluster in the event loop of another thread."""

    cluster: FakeCluster

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def topic(self, name: str, partitions: int = 1, **options: Any) -> None:
        self.run(self.cluster.create_topic(name, partitions, **options))

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values in a partition's log."""

        async def read() -> list[bytes | None]:
            return [record.value for record in self.cluster.log(topic, partition).records()]

        return self.run(read())


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects that it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    """Runs commands in this process."""

    def __init__(
        self, served: Served, capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.served = served
        self._capfd = capfd
        self._patch = patch

    def run(self, *arguments: str) -> Done:
        """Run a command, whether it succeeds or fails."""
        self._capfd.readouterr()
        code = main(arguments)
        out, err = self._capfd.readouterr()
        return Done(code, out, err)

    def pipe(self, line: str) -> str:
        """Run a line of a shell whose programs read and write pipes; return what comes out."""
        line, _, target = line.partition(" > ")
        text = ""
        for part in re.split(r" \| (?=aiokafka|head|wc)", line):
            if part.startswith("aiokafka "):
                text = self._fed(text, *shlex.split(part)[1:])
            else:
                done = subprocess.run(
                    ["bash", "-c", part], input=text, capture_output=True, text=True, check=True
                )
                text = done.stdout
        if target:
            Path(target).write_text(text)
        return text

    def _fed(self, text: str, *arguments: str) -> str:
        """Run a command that must succeed, with a text as its stdin."""
        before = os.dup(0)
        with tempfile.TemporaryFile() as file:
            file.write(text.encode())
            file.seek(0)
            os.dup2(file.fileno(), 0)
            try:
                with open(0, closefd=False) as stdin:
                    self._patch.setattr("sys.stdin", stdin)
                    return self(*arguments).out
            finally:
                os.dup2(before, 0)
                os.close(before)

    def __call__(self, *arguments: str) -> Done:
        """Run a command that must succeed."""
        done = self.run(*arguments)
        assert done.code == 0, done.err
        return done

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command that must succeed, and return the rows that it prints."""
        return self(*arguments, "--output", "json").rows


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command, as the words behind the program's name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name)


def command_of(group: click.Group, words: tuple[str, ...]) -> click.Command:
    """Return the command that `commands` names by these words."""
    found: click.Command = group
    for word in words:
        assert isinstance(found, click.Group)
        following = found.get_command(click.Context(found), word)
        assert following is not None
        found = following
    return found


def environment(served: Served | None = None, **more: str) -> dict[str, str]:
    """Return the environment of a process that runs commands."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    found = {**os.environ, "PYTHONPATH": path, **more}
    if served is not None:
        found["AIOKAFKA_BOOTSTRAP_SERVERS"] = served.cluster.bootstrap_servers
    return found


def process(
    *arguments: str, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    command = [sys.executable, "-m", "aiokafka", *arguments]
    return subprocess.Popen(command, env=env or environment(), cwd=ROOT, **options)
