"""Rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.figures import functions, length
from tests.house.imports import imported_names
from tests.house.options import MARK

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "aiokafka"

LONGEST_FUNCTION = 60
LONGEST_FILE = 500
LONGEST_PUBLIC_FILE = 700
# Public classes, whose docstrings are the manual. The list of options in it, which is written from
# their table, does not count.
PUBLIC_FILES = {
    "admin/client.py",
    "client.py",
    "consumer/consumer.py",
    "producer/producer.py",
    "testing/cluster.py",
}
# Declarations, one after the other.
TABLES = {"errors.py", "options.py"}
# What `tests.house.codecs` writes.
WRITTEN = "protocol/_ahead/"
# The owner of all tasks, and an old name that other packages import.
MAY_START_TASKS = {"_tasks.py", "util.py"}


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def tracked_files() -> list[Path]:
    """The text files of the repository, those not committed yet included."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY,
            capture_output=True,
            check=True,
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    paths = [REPOSITORY / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_functions_fit_on_a_screen(path: Path) -> None:
    if relative(path).startswith(WRITTEN):
        return
    every = functions(ast.parse(path.read_text()))
    too_long = {each.name: length(each) for each in every if length(each) > LONGEST_FUNCTION}
    if relative(path) in PUBLIC_FILES:
        # It lists its keywords one a line, and passes them on.
        too_long.pop("__init__", None)
    assert not too_long


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_files_are_short(path: Path) -> None:
    name = relative(path)
    if name in TABLES or name.startswith("protocol/messages/"):
        return
    text = path.read_text()
    long = len(text.splitlines())
    if name in PUBLIC_FILES:
        assert long - length_of_options(text) <= LONGEST_PUBLIC_FILE
    else:
        assert long <= LONGEST_FILE


def length_of_options(text: str) -> int:
    """Return the lines of the list of options at the end of a class docstring."""
    _, is_there, rest = text.partition(MARK)
    return len(rest.partition('"""')[0].splitlines()) if is_there else 0


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_tasks_have_an_owner(path: Path) -> None:
    if relative(path) in MAY_START_TASKS or relative(path).startswith("testing/"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            assert called not in ("create_task", "ensure_future"), (
                f"line {node.lineno}: start tasks through TaskOwner"
            )


@pytest.mark.parametrize("path", package_files(), ids=relative)
def test_modules_say_what_they_are_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "the module has no docstring"


TEXT = {".py", ".pxd", ".rst", ".md", ".toml", ".yml", ".yaml", ".xml", ".txt", ".cfg", ".sh", ""}
HOME = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt)/\w+")


def test_no_paths_of_one_machine() -> None:
    me = Path(__file__).resolve()
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT or path.resolve() == me:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if HOME.search(text):
            found.append(str(path.relative_to(REPOSITORY)))
    assert not found


def test_nothing_large_or_built_is_committed() -> None:
    for path in tracked_files():
        assert path.stat().st_size <= 1024 * 1024, path
        assert path.suffix not in {".so", ".pyd", ".c", ".jar", ".pyc"}, path


# -- tests

TESTS = REPOSITORY / "tests"
# Private names of aiokafka that programs use: what is tested is that they are still there.
USE_PRIVATE_NAMES = {
    "tests/compat/test_patterns.py",
    "tests/compat/test_private_names.py",
    "tests/compat/test_stand_ins.py",
    "tests/compat/test_upstream_calls.py",
}
# One place that has what tests of consumers cannot get otherwise.
SEAMS = {"tests/support/consumers.py"}
# Of named tuples, asyncio, hashlib and pyspark, which have no other name for it.
PRIVATE_NAMES_OF_OTHERS = {
    *("_asdict", "_make", "_replace"),
    *("_asyncio_future_blocking", "_log_destroy_pending"),
    "_Hash",
    *("_gateway", "_jdf", "_jvm"),
}


def files_of_tests(having: str) -> dict[str, ast.Module]:
    # To parse all of them would take a busy machine a minute.
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    return {
        path.relative_to(REPOSITORY).as_posix(): ast.parse(text)
        for path, text in texts.items()
        if re.search(having, text)
    }


def test_no_test_imports_another_one() -> None:
    found = [
        f"{path}: {'.'.join(parts)}"
        for path in sorted(TESTS.rglob("*.py"))
        for parts in imported_names(path, TESTS)
        if parts[0] == "tests"
        if any(part.startswith("test_") or part == "conftest" for part in parts[1:])
    ]
    assert not found, "put it into a support module"


def test_tests_touch_nothing_private() -> None:
    found = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in files_of_tests(r"\._[^_]").items()
        if name not in USE_PRIVATE_NAMES | SEAMS
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match("_[^_]", node.attr)
        and node.attr not in PRIVATE_NAMES_OF_OTHERS
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]
    assert not found


# -- names

# Messages are named as Kafka names them, each in the module of its API; aiokafka's in shims. The
# fake cluster plays brokers, which have the same things as clients on their side.
NAMED_BY_OTHERS = ("protocol/", "testing/")
# Two classes of one name mean the same, each for its own side.
SAME_MEANING = {
    "TopicCounts": "what a topic adds to the counts of a consumer, and of a producer",
    "OffsetSpec": "which offset to look up: the admin client's public enum, and the consumer's",
    "Subscription": "what is to be read: by a consumer, and by a query of Spark",
    "ConfigSynonym": "where a setting comes from: aiokafka's form, and that of `admin.configs`",
    "TransactionState": "of a transaction: as coordinators name it, and as its producer needs it",
    "ControlRecord": "a marker of a transaction: as readers need it, and by aiokafka's names",
    "Identity": "who a client is: to its group, and in traces",
    "Committer": "commits what is finished: for the command line, and for a ParallelConsumer",
    "Ends": "where partitions end: for the lag of groups, and for the command line",
}


def test_no_two_classes_of_one_name_mean_different_things() -> None:
    places: dict[str, list[str]] = {}
    for path in package_files():
        if not relative(path).startswith(NAMED_BY_OTHERS):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(relative(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not {name: found for name, found in twice.items() if name not in SAME_MEANING}
    assert not set(SAME_MEANING) - set(twice), "these are gone"


# -- who writes what

# Objects that others make and one alone fills, and listeners that are put in place.
WRITTEN_FROM_OUTSIDE = {
    ("consumer/_meter.py", "all"): "counts, which the meter alone adds to",
    ("consumer/fetch/node.py", "_backoff"): "the pauses of this fetcher",
    ("net/connection.py", "traffic"): "counts of a broker, which its connections add to",
    ("net/connector.py", "_greeting"): "what a connector has learned about its broker",
    ("net/pool.py", "traffic"): "counts of connections, which the pool makes",
    ("consumer/subscription_state.py", "_subscription"): "the subscription that it has made",
    ("parallel/processor.py", "_listener"): "its own listener, until processing begins",
    ("parallel/processor.py", "_consumer"): "`rebalance_listener`, which is public",
    ("session/session.py", "_listener"): "its own listener, until processing begins",
    ("session/session.py", "consumer"): "`rebalance_listener`, which is public",
}
ROOMS = ("consumer/", "producer/", "net/", "_metadata/", "parallel/", "session/", "ranges/")


def written_parts(tree: ast.AST) -> set[str]:
    """Return the parts of which an object writes attributes: `x` of `self.x.y = ...`."""
    return {
        node.value.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr != "__cause__"
        and isinstance(node.value, ast.Attribute)
        and ast.unparse(node.value.value) == "self"
    }


def test_every_state_is_written_by_its_owner() -> None:
    found = {
        (relative(path), part)
        for path in package_files()
        if relative(path).startswith(ROOMS)
        for part in written_parts(ast.parse(path.read_text()))
    }
    assert not found - set(WRITTEN_FROM_OUTSIDE), "call a method of the owner"
    assert not set(WRITTEN_FROM_OUTSIDE) - found, "these are gone"
