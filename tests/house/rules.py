"""Rules of the code that a machine can check: `python -m tests.house.rules`, part of `make lint`.

Every source file is parsed once. A rule is a function that yields findings; its docstring states
the rule. No rule counts the lines of a file or judges its words: reviewers do that.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.house.figures import functions, length
from tests.house.imports import PACKAGE, cycles, imported_names, module_graph, parsed

REPOSITORY = PACKAGE.parent
TESTS = REPOSITORY / "tests"
INTERNALS = REPOSITORY / "docs" / "internals.rst"

Finding = tuple[Path, int, str]
Rule = Callable[[], Iterator[Finding]]


@cache
def package_files() -> list[Path]:
    """Return the modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@cache
def test_files() -> list[Path]:
    """Return the Python files of the tests."""
    return sorted(TESTS.rglob("*.py"))


@cache
def tracked_files() -> list[Path]:
    """Return the files of the repository, including new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []  # an unpacked source distribution
    paths = (REPOSITORY / name for name in listed.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def relative(path: Path) -> str:
    """Return the path of a module below the package."""
    return path.relative_to(PACKAGE).as_posix()


# -- functions and tasks

LONGEST_FUNCTION = 60
# Modules of public classes, whose constructors may be longer: one line for each keyword.
PUBLIC_CLASSES = {
    "admin/client.py",
    "client.py",
    "consumer/consumer.py",
    "producer/producer.py",
    "share/consumer.py",
    "testing/cluster.py",
}
# The module of TaskOwner, and a helper of aiokafka 0.14 that other packages import.
MAY_START_TASKS = {"_tasks.py", "_upstream/util.py"}
GENERATED = "protocol/_generated/"


def functions_fit_on_a_screen() -> Iterator[Finding]:
    """Functions have at most 60 lines, docstrings not counted."""
    for path in package_files():
        if relative(path).startswith(GENERATED):
            continue
        for function in functions(parsed(path)):
            is_listing = relative(path) in PUBLIC_CLASSES and function.name == "__init__"
            if length(function) > LONGEST_FUNCTION and not is_listing:
                yield path, function.lineno, f"{function.name} has {length(function)} lines"


def tasks_have_an_owner() -> Iterator[Finding]:
    """Background tasks are started through `TaskOwner`."""
    for path in package_files():
        if relative(path) in MAY_START_TASKS or relative(path).startswith("testing/"):
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in ("create_task", "ensure_future"):
                    yield path, node.lineno, f"{called}: start tasks through TaskOwner"


# -- layers

ROLES = {"admin", "consumer", "producer", "ranges", "share"}
PURE = {"asyncio", "socket", "ssl", "time", "logging"}
# `_compat` has `asyncio.timeout` for Python 3.10, and only `_clock` reads the clock.
MAY_TOUCH_THE_WORLD = {"_clock", "_compat"}
# The modules that each package at the edges may import. The private modules among them avoid a
# second implementation: an application could do the same with the public names. `testing` may
# import only the lower two layers, so that the fake broker shares no other code with the client.
EDGES = {
    "parallel": {
        *("_arguments", "_callbacks", "_clock", "_compat", "_log", "_retry", "_subject", "_tasks"),
        *("_typevars", "_typing", "abc", "errors", "metrics", "structs"),
    },
    "tables": {
        *(
            "_arguments",
            "_compat",
            "_log",
            "_serialization",
            "_subject",
            "_tasks",
            "_typing",
            "errors",
            "structs",
        ),
    },
    "spark": {
        *(
            "_properties",
            "_loading",
            "_retry",
            "_tasks",
            "admin",
            "errors",
            "helpers",
            "oauth",
            "partitioner",
        ),
        *("producer", "ranges", "record", "structs"),
    },
    "cli": {
        "_properties",
        "_tasks",
        "admin",
        "errors",
        "helpers",
        "oauth",
        "options",
        "protocol",
        "record",
        "structs",
    }
    | {"testing"},
}
EDGES["__main__"] = EDGES["cli"] | {"cli"}


@cache
def layers() -> dict[str, int]:
    """Return the layer of each module and package below `aiokafka/`, as in the table of
    internals.rst."""
    page = INTERNALS.read_text()
    table = page[page.index("\nLayer  Name") : page.index("\nThe lower two")]
    found: dict[str, int] = {}
    layer = -1
    for line in table.splitlines():
        if line[:1].isdigit():
            layer = int(line[0])
        found.update(dict.fromkeys(re.findall(r"`(\w+)(?:\.py|/)`", line), layer))
    return found


def home(path: Path) -> str:
    """Return the name of the module or package directly below `aiokafka/` that has this file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def sources() -> list[Path]:
    """Return the modules, except the package's own `__init__` and the shims."""
    left_out = {
        PACKAGE / "__init__.py",
        *(PACKAGE / f"{name.replace('.', '/')}.py" for name in SHIMS),
    }
    return [path for path in package_files() if path not in left_out]


@cache
def imports(path: Path) -> set[str]:
    """Return the absolute names that a file imports at run time, inside functions as well."""
    names = imported_names(path, PACKAGE, types=False)
    return {".".join(parts) for parts in names}


def own_imports(path: Path) -> set[str]:
    """Return the run-time imports of a file, as names of modules and packages directly below
    `aiokafka/`."""
    parts = (name.split(".") for name in imports(path))
    return {part[1] for part in parts if part[0] == PACKAGE.name and len(part) > 1}


def every_module_has_a_layer() -> Iterator[Finding]:
    """Each module and package below `aiokafka/` is in the table of docs/internals.rst."""
    found = {home(path) for path in package_files() if path != PACKAGE / "__init__.py"}
    for name in sorted(found ^ layers().keys()):
        yield INTERNALS, 1, f"{name} is in the table of layers or in the package, but not in both"


def imports_point_down() -> Iterator[Finding]:
    """At run time a module imports from its own and lower layers, and roles not from each other."""
    for path in sources():
        me = home(path)
        for other in sorted(own_imports(path) - {me}):
            # A name without a layer is a public name, as in `from aiokafka import __version__`.
            if layers().get(other, 0) > layers().get(me, 0):
                yield path, 1, f"imports {other} of a higher layer"
            if me in ROLES and other in ROLES:
                yield path, 1, f"imports {other}: roles do not import each other"


def edges_use_public_names() -> Iterator[Finding]:
    """The packages at the edges import only the modules in `EDGES`."""
    for path in sources():
        me = home(path)
        for other in own_imports(path) - {me}:
            if other not in layers():
                continue
            is_wire = layers()[other] <= 1
            if other not in EDGES.get(me, {other}) or (me == "testing" and not is_wire):
                yield path, 1, f"{me} imports {other}"


def lower_layers_do_no_input_or_output() -> Iterator[Finding]:
    """Layers 0 and 1 import neither asyncio, sockets, TLS, time nor logging."""
    for path in sources():
        if layers().get(home(path), 0) <= 1 and home(path) not in MAY_TOUCH_THE_WORLD:
            for name in sorted({name.split(".")[0] for name in imports(path)} & PURE):
                yield path, 1, f"imports {name}"


def only_spark_imports_pyspark() -> Iterator[Finding]:
    """PySpark is imported in `aiokafka/spark/` alone."""
    for path in sources():
        if home(path) != "spark" and any(name.startswith("pyspark") for name in imports(path)):
            yield path, 1, "imports pyspark"


def modules_import_each_other_in_no_circle() -> Iterator[Finding]:
    """Run-time imports have no cycle, neither of modules nor of packages."""
    graph = module_graph(types=False)
    packages: dict[str, set[str]] = {}
    for path in sources():
        packages.setdefault(home(path), set()).update(own_imports(path) - {home(path)})
    for group in cycles(graph) + cycles(packages):
        yield PACKAGE, 1, f"these import each other: {', '.join(group)}"


# -- owners of state

# Exceptions: by module and attribute, the object whose attributes the module sets, and the reason.
WRITTEN_FROM_OUTSIDE = {
    ("consumer/_context.py", "all"): "counts, which the meter alone adds to",
    ("consumer/fetch/node.py", "_backoff"): "the pauses of this fetcher",
    ("net/connection.py", "traffic"): "counts of a broker, which its connections add to",
    ("net/connector.py", "_negotiation"): "the versions that its connections have negotiated",
    ("net/pool.py", "traffic"): "counts of connections, which the pool makes",
    ("consumer/subscription_state.py", "subscription"): "the subscription that it has made",
    ("parallel/processor.py", "_listener"): "its own listener, until processing begins",
    ("parallel/processor.py", "_consumer"): "`rebalance_listener`, which is public",
    ("session/session.py", "_listener"): "its own listener, until processing begins",
    ("session/session.py", "consumer"): "`rebalance_listener`, which is public",
}
STATEFUL = (
    "consumer/",
    "producer/",
    "net/",
    "_metadata/",
    "parallel/",
    "session/",
    "ranges/",
    "share/",
)


def written_parts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield name and line of each attribute of `self` whose attributes are set: `x` of
    `self.x.y = ...`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and node.attr != "__cause__"
            and isinstance(node.value, ast.Attribute)
            and ast.unparse(node.value.value) == "self"
        ):
            yield node.value.attr, node.lineno


def every_state_is_written_by_its_owner() -> Iterator[Finding]:
    """No object sets attributes of another object, except as listed in WRITTEN_FROM_OUTSIDE."""
    unused = set(WRITTEN_FROM_OUTSIDE)
    for path in package_files():
        if relative(path).startswith(STATEFUL):
            for part, line in written_parts(parsed(path)):
                unused.discard((relative(path), part))
                if (relative(path), part) not in WRITTEN_FROM_OUTSIDE:
                    yield path, line, f"sets an attribute of self.{part}: call a method of it"
    for name, part in sorted(unused):
        yield PACKAGE / name, 1, f"self.{part} is written no more: remove it from this list"


# -- names of aiokafka

# Shims: modules that only keep an import path of aiokafka 0.14. The package must not import them.
SHIMS = {
    "codec",
    "conn",
    "consumer.fetcher",
    "consumer.group_coordinator",
    "protocol.admin",
    "protocol.api",
    "protocol.commit",
    "protocol.coordination",
    "protocol.fetch",
    "protocol.group",
    "protocol.metadata",
    "protocol.offset",
    "protocol.produce",
    "protocol.transaction",
    "record.control_record",
    "record.default_records",
    "record.legacy_records",
    "record.memory_records",
    "record.util",
    "util",
}


def nothing_in_the_package_needs_a_shim() -> Iterator[Finding]:
    """The package imports no shim."""
    for name, needed in module_graph().items():
        if name and name not in SHIMS:
            for shim in sorted(needed & SHIMS):
                yield PACKAGE, 1, f"{name} imports the shim {shim}"


# -- files

TEXT = {".py", ".pxd", ".rst", ".md", ".toml", ".yml", ".yaml", ".xml", ".txt", ".cfg", ".sh", ""}
HOME = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt)/\w+")
BUILT = {".so", ".pyd", ".c", ".jar", ".pyc"}
LARGEST_FILE = 1024 * 1024


def no_paths_of_one_machine() -> Iterator[Finding]:
    """No file contains the path of a home or work folder of some machine."""
    for path in tracked_files():
        if path.suffix in TEXT and path != Path(__file__).resolve():
            text = path.read_bytes().decode(errors="replace")
            for found in HOME.finditer(text):
                yield path, text.count("\n", 0, found.start()) + 1, found[0]


def nothing_large_or_built_is_committed() -> Iterator[Finding]:
    """Files have at most 1 MiB, and no file is the product of a build."""
    for path in tracked_files():
        if path.stat().st_size > LARGEST_FILE or path.suffix in BUILT:
            yield path, 1, "large or built"


# -- tests

# These tests check private names of aiokafka 0.14 that programs use, or need them to do their work.
USE_PRIVATE_NAMES = {
    "tests/compat/test_instrumentation.py",
    "tests/compat/test_private_names.py",
    "tests/compat/test_mocked_parts.py",
    "tests/compat/test_upstream_calls.py",
    "tests/support/consumers.py",
}
# Names of named tuples, asyncio, hashlib and pyspark for which there is no public name.
PRIVATE_NAMES_OF_OTHERS = {
    *("_asdict", "_make", "_replace"),
    *("_asyncio_future_blocking", "_log_destroy_pending"),
    "_Hash",
    *("_gateway", "_jdf", "_jvm"),
}


def no_test_imports_another_one() -> Iterator[Finding]:
    """No test module imports another test module: shared code is in support modules."""
    may = re.compile(
        r"import[^()\n]*(?:\([^)]*)?\b(?:test_|conftest)|from tests.*(?:test_|conftest)"
    )
    for path in test_files():
        if not may.search(path.read_text()):
            continue
        for parts in imported_names(path, TESTS):
            if parts[0] == "tests" and any(
                part.startswith("test_") or part == "conftest" for part in parts[1:]
            ):
                yield path, 1, f"imports {'.'.join(parts)}"


def tests_touch_nothing_private() -> Iterator[Finding]:
    """Tests use no private attributes: if a test needs one, a public name is missing."""
    for path in test_files():
        if path.relative_to(REPOSITORY).as_posix() in USE_PRIVATE_NAMES:
            continue
        if not re.search(r"\._[^_]", path.read_text()):
            continue
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Attribute)
                and re.match("_[^_]", node.attr)
                and node.attr not in PRIVATE_NAMES_OF_OTHERS
                and ast.unparse(node.value) not in ("self", "cls", "super()")
            ):
                yield path, node.lineno, ast.unparse(node)


RULES: list[Rule] = [
    functions_fit_on_a_screen,
    tasks_have_an_owner,
    every_module_has_a_layer,
    imports_point_down,
    edges_use_public_names,
    lower_layers_do_no_input_or_output,
    only_spark_imports_pyspark,
    modules_import_each_other_in_no_circle,
    every_state_is_written_by_its_owner,
    nothing_in_the_package_needs_a_shim,
    no_paths_of_one_machine,
    nothing_large_or_built_is_committed,
    no_test_imports_another_one,
    tests_touch_nothing_private,
]


def main() -> int:
    """Print the findings of all rules; return 1 if there are findings."""
    count = 0
    for rule in RULES:
        for path, line, text in rule():
            count += 1
            print(f"{path.relative_to(REPOSITORY)}:{line}: {rule.__name__}: {text}")
    print(f"{len(RULES)} rules, {count} findings")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
