"""The page about the log has every WARNING and ERROR of the source, and no other."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "logs.rst").read_text()

# These are not the library in service.
NOT_MEANT = ("testing/", "cli/")
LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "ERROR"}

CALL = re.compile(r"\.(warning|error|exception|critical|log)\(")


def sources() -> Iterator[Path]:
    for path in sorted((ROOT / "aiokafka").rglob("*.py")):
        if not path.relative_to(ROOT / "aiokafka").as_posix().startswith(NOT_MEANT):
            yield path


def is_log(node: ast.expr) -> bool:
    """Say whether an expression is a logger, by the names that loggers have here."""
    text = ast.unparse(node)
    return text.rpartition(".")[2] in ("log", "_log", "told") or text.startswith("SubjectLog(")


@functools.cache
def messages() -> list[tuple[str, str, str]]:
    """Return the place, the level ("" if it depends) and the message of every call of a logger."""
    found = []
    for path in sources():
        source = path.read_text()
        if not CALL.search(source):
            continue
        tree = ast.parse(source)
        constants = {
            node.targets[0].id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            name = call.func.attr
            if name not in (*LEVELS, "log") or not is_log(call.func.value):
                continue
            given = call.args[1 if name == "log" else 0]
            if isinstance(given, ast.Name):
                given = ast.Constant(constants.get(given.id, given.id))
            assert isinstance(given, ast.Constant), f"{path}:{call.lineno}: no plain message"
            found.append((f"{path}:{call.lineno}", LEVELS.get(name, ""), given.value))
    return found


@functools.cache
def entries() -> dict[str, str]:
    """Return the levels of the page by message; a message that ends with ... is a beginning."""
    found = re.findall(r"^``(.+?)``( \.\.\.)? \(([A-Z, ]+)\)$", PAGE, re.MULTILINE)
    assert len({text for text, _, _ in found}) == len(found), "a message has two entries"
    return {text + dots.strip(): levels for text, dots, levels in found}


def entry_of(message: str) -> str | None:
    """Return the entry for a message of the source."""
    for entry in entries():
        begins = entry.endswith("...") and message.startswith(entry.removesuffix("..."))
        if begins or entry == message:
            return entry
    return None


def test_every_warning_and_error_is_explained() -> None:
    page = entries()
    missing = []
    for place, level, message in messages():
        entry = entry_of(message)
        if entry is None or level not in page[entry]:
            missing.append(f"{place}: {level} {message}")
    assert not missing, "\n" + "\n".join(missing)


def test_nothing_is_explained_that_is_not_logged() -> None:
    used = {entry_of(message) for _, _, message in messages()}
    assert entries().keys() <= used, entries().keys() - used


def test_every_logger_is_named() -> None:
    used = set()
    for path in sources():
        used.update(re.findall(r'getLogger\("(aiokafka[\w.]*)"\)', path.read_text()))
    named = set(re.findall(r"^`(aiokafka[\w.]*)` ", PAGE, re.MULTILINE))
    assert named == used


def test_loggers_have_the_names_that_this_test_knows() -> None:
    """What is made a logger is called log, _log or told: nothing else would be found."""
    for path in sources():
        for line in path.read_text().splitlines():
            made = re.match(r"\s*(\S+)(?:: \S+)? = (?:logging\.getLogger|SubjectLog)\(", line)
            if made:
                assert made[1].rpartition(".")[2] in ("log", "_log", "told", "subject"), line
