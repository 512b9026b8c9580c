"""Type checkers find every mistake of `mistakes.py`, and nothing to complain about elsewhere.

Mypy runs with the settings of the library, Pyright in its strict mode. They are installed by
`make lint`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
PROGRAMS = ("correct.py", "mistakes.py")
Found = dict[str, dict[int, list[str]]]

pytestmark = pytest.mark.timeout(300)


def planted(name: str) -> set[int]:
    lines = (HERE / name).read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}


def run(module: str, *arguments: str) -> str:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; `make lint` installs it")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    # 1: it found something. Anything else is a failure of its own.
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def by_mypy() -> Found:
    found: Found = {name: defaultdict(list) for name in PROGRAMS}
    told = run("mypy", *(f"tests/typing/{name}" for name in PROGRAMS))
    for path, number, text in re.findall(r"^(\S+):(\d+): error: (.*)$", told, re.MULTILINE):
        found[Path(path).name][int(number)].append(text)
    return found


def by_pyright() -> Found:
    found: Found = {name: defaultdict(list) for name in PROGRAMS}
    told = run("basedpyright", "-p", "tests/typing", "--pythonpath", sys.executable, "--outputjson")
    for each in json.loads(told)["generalDiagnostics"]:
        number = each["range"]["start"]["line"] + 1
        found[Path(each["file"]).name][number].append(each["message"])
    return found


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_mistakes_are_found_and_nothing_else(check: Callable[[], Found]) -> None:
    found = check()
    for name in PROGRAMS:
        assert set(found[name]) == planted(name), found[name]
    # The most frequent mistake is told in terms of the option.
    first = min(planted("mistakes.py"))
    assert "group" in " ".join(found["mistakes.py"][first])
