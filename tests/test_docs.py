"""The manual names files, classes and options that exist, and its quick start runs."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import io
import json
import os
import re
import sys
import tokenize
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from aiokafka import AIOKafkaShareConsumer, TransactionalSession, errors
from aiokafka._config import ClientConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import MISSING
from aiokafka._config.producer import ProducerConfig
from aiokafka.health import ConsumerHealth
from aiokafka.metrics.prometheus import KafkaCollector
from aiokafka.oauth._tokens import OAuthConfig
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.tables import CompactedTable
from aiokafka.testing.versions import RELEASES

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "aiokafka"
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.rst"))

TICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
CLASS = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+")


def quoted(page: Path) -> set[str]:
    return set(TICKS.findall(page.read_text()))


def defined_classes() -> set[str]:
    return {"AIOKafkaClient"}.union(*(module.classes for module in definitions().values()))


def test_internals_names_files_that_exist() -> None:
    files = {
        text for text in quoted(DOCS / "internals.rst") if re.fullmatch(r"[\w/]+(\.pyx?|/)", text)
    }
    assert len(files) > 20
    assert not [
        name for name in files if not (REPOSITORY / name).exists() and not (PACKAGE / name).exists()
    ]


@dataclass
class Definitions:
    """What a module of the package defines: its functions, and its classes with their names."""

    functions: set[str] = field(default_factory=set)
    classes: dict[str, set[str]] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Definitions:
        """Read a module."""
        found = cls()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.functions.add(node.name)
            elif isinstance(node, ast.ClassDef):
                found.classes[node.name] = members(node)
                found.bases[node.name] = [ast.unparse(base) for base in node.bases]
        return found


def members(node: ast.ClassDef) -> set[str]:
    """Return methods, fields, and the attributes that methods set."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(each.name)
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                found.add(ast.unparse(target).removeprefix("self."))
    return found


@cache
def definitions() -> dict[str, Definitions]:
    return {
        path.relative_to(PACKAGE).as_posix(): Definitions.of(path) for path in PACKAGE.rglob("*.py")
    }


def has(known: dict[str, Definitions], cls: str, name: str) -> bool:
    """Say whether any class of this name, or a base of it, has a member of that name."""
    for module in known.values():
        if cls in module.classes:
            bases = [base.partition("[")[0] for base in module.bases[cls]]
            if name in module.classes[cls] or any(has(known, base, name) for base in bases):
                return True
    return False


PLACE = re.compile(r"(?<![\w/])([\w/]+\.py|(?:\w+/)+):")
MEMBER = re.compile(r"\b([A-Z]\w+)\.([a-z_]\w*)")
STATION = re.compile(r"^ *(?:-> )?([A-Za-z]\w*)(?=[.( ]|$)")


def journeys() -> list[str]:
    """Return the lines of the ways through the code that internals.rst draws."""
    page = (DOCS / "internals.rst").read_text()
    blocks = re.findall(r"::\n\n((?:(?:    .*)?\n)+)", page)
    lines = [line[4:] for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip() and "~~~" not in line]


def test_journeys_pass_classes_and_functions_where_they_stand() -> None:
    known = definitions()
    lines = journeys()
    assert len(lines) > 30
    for line in lines:
        for cls, name in MEMBER.findall(line):
            assert has(known, cls, name), f"{cls}.{name} in {line!r}"
        place, station = PLACE.search(line), STATION.match(line)
        if place is None or station is None or line.startswith(" " * 30):
            continue
        inside = [known[name] for name in known if name.startswith(place[1])]
        assert any(
            station[1] in module.classes or station[1] in module.functions for module in inside
        ), f"{station[1]} is not in {place[1]}"


def test_members_and_calls_that_internals_names_exist() -> None:
    known = definitions()
    functions = {name for module in known.values() for name in module.functions}
    named = quoted(DOCS / "internals.rst")
    calls = {text for text in named if re.fullmatch(r"[\w.]+\(\)", text)}
    assert len(calls) > 5
    assert not [text for text in calls if text[:-2].rpartition(".")[2] not in functions | BUILT_IN]
    classes = {cls for module in known.values() for cls in module.classes}
    for match in filter(None, map(MEMBER.match, named)):
        assert match[1] not in classes or has(known, match[1], match[2]), match[0]


MODULE_FIRST = re.compile(r"`([\w/]+\.py)`: `([A-Z]\w+)")
CLASS_FIRST = re.compile(r"`([A-Z]\w+)[\w.]*`\s+(?:in|\()\s*`([\w/]+\.py)`")


def test_internals_names_classes_in_the_modules_that_have_them() -> None:
    text = (DOCS / "internals.rst").read_text()
    pairs = {(path, cls) for path, cls in MODULE_FIRST.findall(text)}
    pairs |= {(path, cls) for cls, path in CLASS_FIRST.findall(text)}
    assert len(pairs) > 20
    known = definitions()
    assert not [(path, cls) for path, cls in pairs if cls not in known[path].classes]


BUILT_IN = {
    "ValueError",
    "TypeError",
    "AssertionError",
    "ImportError",
    "ResourceWarning",
    "RuntimeError",
    "DeprecationWarning",
    "UserWarning",
}


# Names of other clients and of Kubernetes, in guides and on the pages about migration.
FOREIGN = {
    *("AdminClient", "DeserializingConsumer", "KafkaException", "SerializingProducer"),
    *("KafkaAdminClient", "KafkaConsumer", "KafkaProducer"),
    *("BufferError", "StatefulSet"),
    "MovedError",  # of examples/guides
    *("KeyboardInterrupt", "NotImplementedError", "TaskGroup"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_classes_exist(page: Path) -> None:
    known = defined_classes() | BUILT_IN | set(errors.__all__) | FOREIGN
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


@pytest.mark.parametrize("picture", ["in", "out", "layers"])
def test_pictures_name_classes_and_modules_that_exist(picture: str) -> None:
    text = (DOCS / "pictures" / f"{picture}.txt").read_text()
    classes = {name for name in re.findall(r"\w+", text) if CLASS.fullmatch(name)}
    assert not classes - defined_classes() - {"PySpark"}
    paths = re.findall(r"\b[a-z_]+/|\b\w+\.py\b", text)
    assert not [path for path in paths if not (PACKAGE / path).exists()]


def test_every_class_that_owns_a_state_is_in_internals() -> None:
    text = (DOCS / "internals.rst").read_text()
    for name in ("Exchange", "ConnectionPool", "MetadataLoop", "FetchBuffer", "PartitionQueue"):
        assert f"`{name}`" in text


def code_blocks(page: Path) -> list[str]:
    """The Python blocks of a page, without their indentation."""
    found = re.findall(
        r"\.\. code-block:: python\n(?:    :.*\n)*\n((?:(?:    .*)?\n)+)", page.read_text()
    )
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
    shown = (DOCS / "quickstart.rst").read_text().partition(".. code-block:: text\n\n")[2]
    expected = [line.strip() for line in shown.splitlines()[:6]]
    lines = output.decode().splitlines()
    assert lines[:3] == expected[:3]
    assert sorted(lines[3:]) == sorted(expected[3:])  # partitions in any order


def test_the_program_of_the_readme_is_the_first_example() -> None:
    (block,) = code_blocks(REPOSITORY / "README.rst")
    assert block.strip() == (REPOSITORY / "examples" / "first.py").read_text().strip()


def test_the_figures_of_the_readme_are_those_that_were_measured() -> None:
    comparison = pytest.importorskip("benchmarks.comparison")
    assert comparison.readme_table() in (REPOSITORY / "README.rst").read_text()


RESULTS = REPOSITORY / "benchmarks" / "results.json"


@pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution has no benchmarks")
def test_sentences_about_cpu_agree_with_the_measurements() -> None:
    store = json.loads(RESULTS.read_text())

    def ratio(row: str, other_row: str, other: str = "ours") -> float:
        ours = store[row]["clients"]["ours"]["cpu_after"]
        return float(ours / store[other_row]["clients"][other]["cpu_after"])

    # performance, tuning, faq: "`getmany` takes up to 40 percent less CPU than `async for`"
    for setting in ("100", "100-group"):
        assert 0.6 <= ratio(f"getmany-{setting}", f"iterate-{setting}") < 1
    # performance: `send` takes "a fifth less than confluent-kafka, twice as much as franz-go"
    assert 0.7 < ratio("send-100", "send-100", "confluent") < 0.9
    assert 1.6 < ratio("send-16k", "send-16k", "franz-go") < 2.4


def test_the_page_of_errors_names_those_that_are_no_kafka_errors() -> None:
    others = {
        name
        for name in errors.__all__
        if isinstance(each := getattr(errors, name), type)
        and issubclass(each, Exception)
        and not issubclass(each, errors.KafkaError)
    }
    text = (DOCS / "errors.rst").read_text()
    (named,) = re.findall(r"derive from `KafkaError`, except ([^.]*)\.", text)
    assert set(TICKS.findall(named)) == others


def test_the_page_of_messages_has_each_logger() -> None:
    found = {
        name
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("cli", "testing")
        for name in re.findall(r'getLogger\("(aiokafka[\w.]*)"\)', path.read_text())
    }
    table = (DOCS / "logs.rst").read_text().partition("\nMost lines begin")[0]
    assert set(re.findall(r"^`(aiokafka[\w.]*)`  ", table, re.MULTILINE)) == found


UNITS = {"KiB": 1024, "MiB": 1024**2, "s": 1000}


def options_in_tables(page: Path) -> dict[str, str]:
    """Return the options of simple tables, with the default beside them."""
    rows = [re.split(r" {2,}", line.strip()) for line in page.read_text().splitlines()]
    option = re.compile(r"`([a-z_]+)`")
    default = re.compile(r"None|\d+(?: [A-Za-z]+)?")
    found = {}
    for cells in rows:
        named = [match[1] for cell in cells if (match := option.match(cell))]
        defaults = [cell for cell in cells if default.fullmatch(cell)]
        if named and defaults:
            found[named[0]] = defaults[0]
    return found


@pytest.mark.parametrize(("page", "count"), [("tuning", 9), ("producer", 3)])
def test_tables_show_the_defaults_of_options(page: str, count: int) -> None:
    shown = options_in_tables(DOCS / f"{page}.rst")
    assert len(shown) >= count
    configs = (ClientConfig, ProducerConfig, ConsumerConfig)
    described = [option for config in configs for option in config.describe()]
    defaults = {option.keyword: option.default for option in described}
    given = {keyword: text for keyword, text in shown.items() if defaults[keyword] is not MISSING}
    for keyword, text in given.items():
        number, _, unit = text.partition(" ")
        expected = None if text == "None" else int(number) * UNITS.get(unit, 1)
        assert defaults[keyword] == expected, keyword


LONG_UNITS = {"seconds": 1000, "MiB": 1024**2}


@pytest.mark.parametrize(
    ("page", "kind", "count"),
    [
        ("observability", KafkaCollector, 1),
        ("parallel", ParallelConsumer, 4),
        ("patterns", CompactedTable, 1),
        ("queues", AIOKafkaShareConsumer, 1),
        ("transactions", TransactionalSession, 3),
    ],
)
def test_sentences_show_the_defaults_of_arguments(page: str, kind: type, count: int) -> None:
    """The default is in parentheses: ``(16)``, ``(5 seconds)``, ``(256 MiB by default)``."""
    signature = inspect.signature(kind)
    shown = re.findall(
        r"`(\w+)`(?:\s+together)?\s+\(([\d,]+)(?:\s+(\w+))?(?:\s+by\s+default[^)]*)?\)",
        (DOCS / f"{page}.rst").read_text(),
    )
    found = [
        (name, int(number.replace(",", "")) * LONG_UNITS.get(unit, 1))
        for name, number, unit in shown
        if name in signature.parameters
    ]
    assert len(found) >= count
    assert not [
        (name, number) for name, number in found if signature.parameters[name].default != number
    ]


def test_sentences_about_tokens_show_the_defaults_of_options() -> None:
    page = " ".join((DOCS / "oauth.rst").read_text().split())
    value = {option.keyword: option.default for option in OAuthConfig.describe()}
    first = value["refresh_window_factor"]
    last = first + value["refresh_window_jitter"]
    assert f"when {first * 100:g} to {last * 100:g} percent of its lifetime" in page
    pauses = (value["retry_backoff_ms"] / 1000, value["retry_backoff_max_ms"] / 1000)
    assert "from {:g} to {:g} seconds".format(*pauses) in page
    assert value["refresh_buffer_seconds"] == 300  # "five minutes before it expires"
    assert value["refresh_min_period_seconds"] == 60  # "less than six minutes", both together


def test_the_table_of_the_fake_cluster_has_each_release() -> None:
    page = (DOCS / "testing.rst").read_text()
    (row,) = re.findall(r"^`as_version` .*\n(?: .*\n)*", page, re.MULTILINE)
    assert tuple(re.findall(r'"([\d.]+)"', row)) == RELEASES


def test_the_table_of_extras_has_each_extra_once() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    (section,) = re.findall(r"\[project\.optional-dependencies\]\n((?:(?!\[).*\n)+)", project)
    extras = re.findall(r"^([a-z]+) = ", section, re.MULTILINE)
    table = re.findall(r"^``([a-z]+)``  ", (DOCS / "install.rst").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(extras)
    assert set(extras) - {"all"} <= set(
        re.findall(r"``([a-z]+)``", (REPOSITORY / "README.rst").read_text())
    )


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "README.rst"], ids=lambda page: page.stem)
def test_pages_name_the_newest_kafka_and_never_the_other_package(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"0\.9 to (\d\.\d)", text)) <= {RELEASES[-1]}
    # `pip install "aiokafka[cli]"` installs another package; pages use the directive `install`.
    assert "aiokafka[" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_first_cells_of_simple_tables_have_one_line(page: Path) -> None:
    """Sphinx begins a new row at each line with text in the first column."""
    lines = page.read_text().splitlines()
    borders = [n for n, line in enumerate(lines) if re.fullmatch(r"=+( +=+)+", line)]
    for start, end in pairwise(borders):
        if lines[start] != lines[end] or "" in lines[start:end]:
            continue
        columns = [match.start() for match in re.finditer("=+", lines[start])]
        rows = lines[start + 1 : end]
        alone = [row for row in rows if row[: columns[1]].strip() and not row[columns[1] :].strip()]
        assert not alone or alone == rows  # a heading over all columns


# Variables of the environment and files at the root.
ELSEWHERE = {"CHANGES", "README", "rst"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.rst", "SECURITY.md", "README.rst"])
def test_what_contributors_are_told_is_there(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    makefile = (REPOSITORY / "Makefile").read_text()
    sources = [
        path.read_text() for top in (PACKAGE, REPOSITORY / "tests") for path in top.rglob("*.py")
    ]
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE))
    assert not named - targets
    paths = set(re.findall(r"(?<![\w/.])((?:aiokafka|tests|docs|examples)/[\w/.]*[\w/])", text))
    assert not [path for path in paths if not (REPOSITORY / path).exists()]
    assert page != "CONTRIBUTING.rst" or (len(named) > 5 and len(paths) > 10)
    words = set(re.findall(r"\w+", "\n".join(sources)))
    names = re.findall(r"``([A-Z_][A-Za-z_]*(?:\.\w+)?)``", text)
    assert not {word for name in names for word in name.split(".")} - words - ELSEWHERE


# Names of applications and of Spark, of files and values, and beginnings of names.
NOT_OURS = {
    "Order",
    *("StreamingQuery", "StreamingQueryProgress", "df.writeStream", "spark.readStream"),
    *("_cpython_native.pxd", "_native.pxd"),
    *("kafka.", "kafka_", "retry.", "_ms"),
    *("JoinGroupResponse_v2", "JoinGroupResponse_v5", "P1DT2H30M0.5S"),
    *("audience", "key_base64", "value_base64", "pickle"),
}


def words_and_names(path: Path) -> tuple[list[str], set[str]]:
    """Return the comments and docstrings of a module, and every name in its code and strings."""
    words, names = [], set(path.with_suffix("").parts)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            names.add(token.string)
        elif token.type == tokenize.COMMENT or token.string.startswith('"""'):
            words.append(token.string)
        elif token.type == tokenize.STRING:
            names.update(re.findall(r"\w+", token.string))
    return words, names


def test_comments_and_docstrings_name_what_exists() -> None:
    modules = {path: words_and_names(path) for path in sorted(PACKAGE.rglob("*.py"))}
    known = set(dir(builtins)).union(*(names for _, names in modules.values()))
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, (words, _) in modules.items()
        for text in words
        for name in re.findall(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)", text)
        if name.rpartition(".")[2] not in known and name not in NOT_OURS
    ]
    assert not found
