"""The manual names files, classes and options that exist, and its quick start runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from pathlib import Path

import pytest

from aiokafka import TransactionalSession, errors
from aiokafka._config import ClientConfig, ProducerConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka.health import ConsumerHealth
from aiokafka.oauth._config import OAuthConfig
from aiokafka.parallel import ParallelConsumer, RetryTopics

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "aiokafka"
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.rst"))

TICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
CLASS = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+")


def quoted(page: Path) -> set[str]:
    return set(TICKS.findall(page.read_text()))


def defined_classes() -> set[str]:
    names = {"AIOKafkaClient"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
    return names


def test_internals_names_files_that_exist() -> None:
    files = {
        text for text in quoted(DOCS / "internals.rst") if re.fullmatch(r"[\w/]+(\.pyx?|/)", text)
    }
    assert len(files) > 20
    assert not [
        name for name in files if not (REPOSITORY / name).exists() and not (PACKAGE / name).exists()
    ]


BUILT_IN = {
    "ValueError",
    "TypeError",
    "AssertionError",
    "ResourceWarning",
    "DeprecationWarning",
    "UserWarning",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_classes_exist(page: Path) -> None:
    known = defined_classes() | BUILT_IN | set(errors.__all__)
    named = {text for text in quoted(page) if CLASS.fullmatch(text)}
    assert not named - known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_exist(page: Path) -> None:
    known = ClientConfig.keywords() | ProducerConfig.keywords() | ConsumerConfig.keywords()
    known |= OAuthConfig.keywords()
    for cls in (ParallelConsumer, RetryTopics, TransactionalSession):
        known |= inspect.signature(cls).parameters.keys()
    known |= ConsumerHealth.__dataclass_fields__.keys()
    known |= {
        "session_lifetime_ms",
        "timeout_ms",
        "timestamp_ms",
        "throttle_time_ms",
        "send_backoff_ms",
        "delete_records",
    }
    named = {
        text for text in quoted(page) if re.fullmatch(r"[a-z]\w+_(ms|bytes|memory|records)", text)
    }
    assert not named - known


def test_every_class_that_owns_a_state_is_in_internals() -> None:
    text = (DOCS / "internals.rst").read_text()
    for name in ("Exchange", "ConnectionPool", "MetadataLoop", "FetchBuffer", "Appender"):
        assert f"`{name}`" in text


def code_blocks(page: Path) -> list[str]:
    """The Python blocks of a page, without their indentation."""
    found = re.findall(r"\.\. code-block:: python\n\n((?:(?:    .*)?\n)+)", page.read_text())
    return ["\n".join(line[4:] for line in block.splitlines()) for block in found]


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "README.rst"], ids=lambda page: page.stem)
def test_code_is_python(page: Path) -> None:
    for block in code_blocks(page):
        compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def test_the_quick_start_runs(tmp_path: Path) -> None:
    program = tmp_path / "quickstart.py"
    program.write_text("\n\n".join(code_blocks(DOCS / "quickstart.rst")))
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    output, failure = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 0, failure.decode()
    lines = output.decode().splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["Ada", "Grace", "Barbara"]
    assert lines[-1].endswith("b'Barbara' b'Hello'")
