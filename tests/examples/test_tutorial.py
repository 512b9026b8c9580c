"""The tutorial is typed in from its own text, and ends in the state that it promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.examples.scripts import EXAMPLES, REPOSITORY
from tests.examples.terminals import Save, Terminal, environment_with, make_commands, steps_of

pytest.importorskip("click")

PAGE = REPOSITORY / "docs" / "tutorial.rst"
PROGRAMS = EXAMPLES / "tutorial"


@pytest.mark.skipif(sys.platform == "win32", reason="the page is written for a shell of Unix")
@pytest.mark.timeout(240)
async def test_the_tutorial_is_typed_in(tmp_path: Path) -> None:
    make_commands(tmp_path / "bin")
    environment = environment_with(tmp_path / "bin")
    folder = tmp_path / "shop"
    folder.mkdir()
    terminals: dict[str, Terminal] = {}
    try:
        for step in steps_of(PAGE):
            if isinstance(step, Save):
                (folder / step.name).write_text(step.text)
                continue
            terminal = terminals.setdefault(step.terminal, Terminal(folder, environment))
            for line in step.lines:
                # Port 9092 may be taken here, so the cluster chooses one.
                line = line.replace("testing serve", "testing serve --port 0")
                shown = await terminal.type(line.replace(":9092", ":..."))
                if line.endswith(":9092"):
                    environment["AIOKAFKA_BOOTSTRAP_SERVERS"] = shown
        for terminal in terminals.values():
            await terminal.finish()
    finally:
        for terminal in terminals.values():
            await terminal.close()
    assert len(terminals) == 3


def test_every_program_of_the_tutorial_is_on_the_page() -> None:
    shown = re.findall(r"literalinclude:: \.\./examples/tutorial/(\S+)", PAGE.read_text())
    assert sorted(shown) == sorted(path.name for path in PROGRAMS.iterdir() if path.is_file())


def test_the_page_is_read_as_it_stands() -> None:
    steps = list(steps_of(PAGE))
    saved = [step for step in steps if isinstance(step, Save)]
    typed = [line for step in steps if not isinstance(step, Save) for line in step.lines]
    assert len(saved) == 6
    shown = [line for step in saved for line in step.text.splitlines()] + typed
    assert not [line for line in shown if len(line) > 90], "the page cuts them off"
    assert len([line for line in typed if line.startswith("$ ")]) > 10
    assert PAGE.read_text().count("    $ ") == len([x for x in typed if x.startswith("$ ")])
