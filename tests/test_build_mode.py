"""The code under test is the form that was asked for: compiled, or the plain sources."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aiokafka

ROOT = Path(str(aiokafka.__file__)).parent
COMPILABLE = sorted(
    ".".join(("aiokafka", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.pxd")
    if path.with_suffix(".py").exists()
)


def asked_for(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


@pytest.mark.parametrize("name", COMPILABLE)
def test_each_module_is_loaded_in_the_form_that_was_asked_for(name: str) -> None:
    is_plain = str(importlib.import_module(name).__file__).endswith(".py")
    if asked_for("AIOKAFKA_NO_EXTENSIONS"):
        assert is_plain
    elif asked_for("REQUIRE_EXTENSIONS"):
        assert not is_plain


def test_all_modules_have_the_same_form() -> None:
    plain = [
        name for name in COMPILABLE if str(importlib.import_module(name).__file__).endswith(".py")
    ]
    assert plain in ([], COMPILABLE)


SECOND_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string

import aiokafka.record.batch

failed = run(interpreters.create(), f'''
import sys
sys.path[:0] = {sys.path!r}
from aiokafka.record import batch
assert batch.__file__.endswith(".py"), batch.__file__
from aiokafka._loading import is_compiled
assert not is_compiled()
''')
sys.exit(str(failed) if failed else 0)
"""


def test_a_second_interpreter_runs_the_sources() -> None:
    """As docs/install.rst says: extensions can be loaded by one interpreter of a process."""
    if not any(map(importlib.util.find_spec, ("_interpreters", "_xxsubinterpreters"))):
        pytest.skip("this Python has no second interpreters")
    done = subprocess.run(
        [sys.executable, "-c", SECOND_INTERPRETER],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


FIRST_CLIENTS = """
import asyncio, logging
logging.basicConfig(level=logging.INFO)
from aiokafka import AIOKafkaProducer
from aiokafka.testing import FakeCluster

async def main():
    async with FakeCluster() as cluster:
        for _ in range(2):
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers):
                pass

asyncio.run(main())
"""


@pytest.mark.parametrize("plain", ["", "1"])
def test_pure_python_is_mentioned_once(plain: str) -> None:
    compiled = not str(importlib.import_module(COMPILABLE[0]).__file__).endswith(".py")
    environment = {
        **os.environ,
        "AIOKAFKA_NO_EXTENSIONS": plain or os.environ.get("AIOKAFKA_NO_EXTENSIONS", ""),
    }
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CLIENTS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pure Python") == (0 if compiled and not plain else 1)
