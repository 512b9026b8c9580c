"""The imports between modules of a package, and their cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

Graph = dict[str, set[str]]

PACKAGE = Path(__file__).parent.parent.parent / "aiokafka"


def sources(package: Path = PACKAGE) -> list[Path]:
    """Return the modules of a package, in the order of their paths."""
    return sorted(package.rglob("*.py"))


def module_name(path: Path, package: Path = PACKAGE) -> str:
    """Return the dotted name of a file below the package: `net.pool`, `net`, or ``""`` for the
    package itself."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def imported_names(
    path: Path, package: Path = PACKAGE, *, types: bool = True
) -> Iterator[tuple[str, ...]]:
    """Yield the absolute names that a file imports, inside functions too, as tuples of parts.

    `from a import b` yields both `a` and `a.b`: only the caller knows whether `b` is a module.
    Without `types`, imports under TYPE_CHECKING do not count.
    """
    here = (package.name, *path.relative_to(package).parts[:-1])
    for node in import_statements(parsed(path), types):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        else:
            start = here[: len(here) - node.level + 1] if node.level else ()
            base = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((*base, alias.name) for alias in node.names)
            yield base


def import_statements(tree: ast.Module, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a module; without `types`, skip `if TYPE_CHECKING` blocks."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.expr):
            pending += ast.iter_child_nodes(node)


def module_graph(package: Path = PACKAGE, *, types: bool = True) -> Graph:
    """Return, by module of a package, the modules of the same package that it imports.

    Importing a name from a package counts as importing the module of that name if there is one,
    else the package's `__init__`. Without `types`, imports under TYPE_CHECKING do not count.
    """
    paths = {module_name(path, package): path for path in sources(package)}
    graph: Graph = {}
    for module, path in paths.items():
        found = graph.setdefault(module, set())
        pending: set[str] = set()
        for parts in imported_names(path, package, types=types):
            if parts[0] == package.name:
                pending.add(".".join(parts[1:]))
        for name in pending:
            if name in paths and not is_only_a_prefix(name, pending, paths):
                found.add(name)
            elif name not in paths and name.rpartition(".")[0] in paths:
                found.add(name.rpartition(".")[0])
        found.discard(module)
    return graph


def is_only_a_prefix(name: str, others: Iterable[str], modules: Mapping[str, Path]) -> bool:
    """Return whether the package `name` is imported only as a prefix of modules inside it."""
    inside = [other for other in others if other != name and other.rpartition(".")[0] == name]
    return bool(inside) and all(other in modules for other in inside)


def cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others, the largest
    group first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            start = stack.index(module)
            group = sorted(stack[start:])
            del stack[start:]
            if len(group) > 1:
                found.append(group)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return sorted(found, key=lambda group: (-len(group), group))


def fan_in(graph: Graph) -> dict[str, int]:
    """Return the number of importers of each module, the largest number first."""
    counts = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in others:
            counts[other] = counts.get(other, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
