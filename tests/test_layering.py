"""Imports point down: six layers without cycles, and no input or output in the lower two."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.imports import cycles, module_graph

ROOT = Path(__file__).parent.parent / "aiokafka"

LAYERS = {
    # 0, vocabulary
    "_backoff": 0,
    "_compat": 0,
    "_config": 0,
    "_consumer_record": 0,
    "_gc": 0,
    "_handlers": 0,
    "_names": 0,
    "_ready": 0,
    "_interpreter": 0,
    "_partitions": 0,
    "_pure": 0,
    "_seams": 0,
    "_states": 0,
    "_submodules": 0,
    "_subject": 0,
    "_typevars": 0,
    "_typing": 0,
    "_version": 0,
    "abc": 0,
    "errors": 0,
    "health": 0,
    "interceptors": 0,
    "metrics": 0,
    "partitioner": 0,
    "structs": 0,
    # 1, wire
    "_reading": 1,
    "coordinator": 1,
    "protocol": 1,
    "record": 1,
    # 2, net
    "_tasks": 2,
    "helpers": 2,
    "net": 2,
    "oauth": 2,
    # 3, cluster
    "_any_node": 3,
    "_group_members": 3,
    "_coordinator_lookup": 3,
    "_form": 3,
    "_guard": 3,
    "_interception": 3,
    "_log": 3,
    "_loops": 3,
    "_metadata": 3,
    "_retry": 3,
    "_shared_start": 3,
    "_telemetry": 3,
    "_vitals": 3,
    "_waits": 3,
    "client": 3,
    "cluster": 3,
    "options": 3,
    # 4, roles
    "admin": 4,
    "consumer": 4,
    "producer": 4,
    "ranges": 4,
    # 5, edges
    "__main__": 5,
    "cli": 5,
    "debug": 5,
    "codec": 5,
    "conn": 5,
    "otel": 5,
    "parallel": 5,
    "session": 5,
    "spark": 5,
    "testing": 5,
    "util": 5,
}
ROLES = {"admin", "consumer", "producer", "ranges"}
PURE = {"asyncio", "socket", "ssl", "time", "logging"}
# The fake broker shares no code with the client above the codec.
TESTING_MAY_IMPORT = {name for name, layer in LAYERS.items() if layer <= 1} | {"testing"}
# Applications could have written it: beside the public names, only how to wait, to own
# tasks, what handlers may be, and the names of types.
PARALLEL_MAY_IMPORT = {
    "_backoff",
    "_handlers",
    "_log",
    "_compat",
    "_seams",
    "_subject",
    "_tasks",
    "_typevars",
    "_typing",
    "abc",
    "errors",
    "metrics",
    "parallel",
    "structs",
}
# What docs/api.rst lists, what all of the library starts tasks and waits with, and which form runs.
SPARK_MAY_IMPORT = {
    "_backoff",
    "_form",
    "_tasks",
    "admin",
    "errors",
    "helpers",
    "oauth",
    "partitioner",
    "producer",
    "ranges",
    "record",
    "spark",
    "structs",
    *("AIOKafkaClient", "AIOKafkaConsumer", "AIOKafkaProducer"),
}
# What users have, the vocabulary, what `aiokafka info` tells of the installation, and who owns
# tasks.
CLI_MAY_IMPORT = {
    "__version__",
    "_tasks",
    "admin",
    "cli",
    "errors",
    "helpers",
    "oauth",
    "options",
    "record",
    "structs",
    "testing",
    *("AIOKafkaConsumer", "AIOKafkaProducer", "ConsumerRebalanceListener", "TopicPartition"),
}
# Only what waits for a timeout, and the one place that asks for the time of day.
MAY_TOUCH_THE_WORLD = {"_compat", "_seams"}


def sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def home(path: Path) -> str:
    """The module or package right below `aiokafka` that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The absolute names that a file imports at run time, inside functions as well."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    package = ("aiokafka", *path.relative_to(ROOT).parts[:-1])
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*start, *([node.module] if node.module else [])))
            yield base
            if base == "aiokafka":
                yield from (f"{base}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))


def test_the_internals_page_shows_every_layer() -> None:
    page = (ROOT.parent / "docs" / "internals.rst").read_text()
    table = page[page.index("\nLayer  Name") : page.index("\nThe lower two")]
    shown: dict[str, int] = {}
    layer = -1
    for line in table.splitlines():
        if line[:1].isdigit():
            layer = int(line[0])
        names = re.findall(r"`(\w+)(?:\.py|/)`", line)
        shown.update(dict.fromkeys(names, layer))
    assert shown == LAYERS


def own_imports(path: Path) -> set[str]:
    parts = (name.split(".") for name in imports(path))
    return {part[1] for part in parts if part[0] == "aiokafka" and len(part) > 1}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_module_has_a_layer() -> None:
    assert {home(path) for path in sources()} <= LAYERS.keys()


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_imports_point_down(path: Path) -> None:
    me = home(path)
    for other in own_imports(path) - {me}:
        if other not in LAYERS:
            continue  # A public name of the package, such as `from aiokafka import __version__`.
        assert LAYERS[other] <= LAYERS[me], f"{me} (layer {LAYERS[me]}) imports {other}"
        if me in ROLES:
            assert other not in ROLES, f"the role {me} imports the role {other}"
        if me == "spark":
            assert other in SPARK_MAY_IMPORT, f"spark imports {other}"
        if me == "testing":
            assert other in TESTING_MAY_IMPORT, f"testing imports {other}"
        if me in ("cli", "__main__"):
            assert other in CLI_MAY_IMPORT, f"{me} imports {other}"
        if me == "parallel":
            assert other in PARALLEL_MAY_IMPORT, f"parallel imports {other}"


def test_rooms_import_each_other_in_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources():
        me = home(path)
        graph.setdefault(me, set()).update(own_imports(path) - {me})
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"cycle: {' -> '.join((*above, name))}"
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            visit(other, (*above, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_modules_import_each_other_in_no_circle() -> None:
    """Hold for what is imported under TYPE_CHECKING and inside functions, too."""
    found = cycles(module_graph())
    assert not found, "these import each other: " + "; ".join(", ".join(group) for group in found)


@pytest.mark.parametrize(
    "path", [path for path in sources() if LAYERS[home(path)] <= 1], ids=relative
)
def test_lower_layers_do_no_input_or_output(path: Path) -> None:
    if home(path) in MAY_TOUCH_THE_WORLD:
        return
    top = {name.split(".")[0] for name in imports(path)}
    assert not top & PURE, f"{relative(path)} imports {', '.join(sorted(top & PURE))}"


def test_spark_is_the_only_one_to_import_pyspark() -> None:
    for path in sources():
        if home(path) != "spark":
            assert not any(name.startswith("pyspark") for name in imports(path)), relative(path)
