"""Figures of the source code: `python -m tests.house.figures [folder of the package]`, part of
`make figures`."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tests.house.imports import PACKAGE, cycles, fan_in, module_graph, sources

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCK = 6
SHOWN = 12


@dataclass(frozen=True)
class ClassFigures:
    """The number of methods and attributes of a class."""

    name: str
    methods: int
    attributes: int


@dataclass(frozen=True)
class Line:
    """A line of code, without its indentation."""

    text: str
    number: int


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function of a module, including methods and inner functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: Function) -> int:
    """Return the number of lines from the signature to the end, without the docstring."""
    end = function.end_lineno or function.lineno
    total = end - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        total -= first.end_lineno - first.lineno + 1
    return total


def class_figures(tree: ast.AST) -> Iterator[ClassFigures]:
    """Yield the figures of each class; attributes are those that its methods set on `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, Function)]
            attributes = {
                target.attr
                for method in methods
                for target in ast.walk(method)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
            yield ClassFigures(node.name, len(methods), len(attributes))


# -- lines


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the line numbers of docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def import_lines(tree: ast.AST) -> set[int]:
    """Return the line numbers of imports."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def is_banner(line: str) -> bool:
    """Return whether a comment line only divides a file into sections."""
    text = line.strip().lstrip("#").strip()
    return not text or text.startswith(("--", "=="))


def count_lines(text: str, tree: ast.AST) -> Counter[str]:
    """Return the number of lines by kind: code, docstring, comment, banner, blank."""
    counted: Counter[str] = Counter()
    docstrings = docstring_lines(tree)
    for number, line in enumerate(text.splitlines(), 1):
        if number in docstrings:
            counted["docstring"] += 1
        elif not line.strip():
            counted["blank"] += 1
        elif line.lstrip().startswith("#"):
            counted["banner" if is_banner(line) else "comment"] += 1
        else:
            counted["code"] += 1
    return counted


# -- repetition


def code_lines(text: str, tree: ast.AST) -> list[Line]:
    """Return the lines to search for repetition: all but blank lines, comments, docstrings and
    imports."""
    left_out = docstring_lines(tree) | import_lines(tree)
    return [
        Line(stripped, number)
        for number, line in enumerate(text.splitlines(), 1)
        if number not in left_out and (stripped := line.strip()) and stripped[0] != "#"
    ]


def repeated_blocks(files: dict[str, list[Line]]) -> list[tuple[str, int, str, int, int]]:
    """Return each pair of places with at least `BLOCK` equal lines: file and line number of both,
    and the number of equal lines."""
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for name, lines in files.items():
        texts = [line.text for line in lines]
        for start in range(len(texts) - BLOCK + 1):
            windows.setdefault(tuple(texts[start : start + BLOCK]), []).append((name, start))
    found = []
    for places in windows.values():
        for (one, at), (other, there) in combinations(places, 2):
            before = at and there and files[one][at - 1].text == files[other][there - 1].text
            if before or (one == other and there - at < BLOCK):
                continue
            size = shared(files[one][at:], files[other][there:])
            found.append((one, files[one][at].number, other, files[other][there].number, size))
    return sorted(found, key=lambda pair: (-pair[4], pair))


def shared(one: list[Line], other: list[Line]) -> int:
    """Return the number of equal lines at the start of both lists."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.text != theirs.text:
            break
        count += 1
    return count


# -- the report


def heading(text: str) -> None:
    """Print the heading of a section."""
    print(f"\n{text}\n{'-' * len(text)}")


def print_imports(package: Path) -> None:
    """Print the cycles of imports, and the modules that most others import."""
    graph = module_graph(package)
    found = cycles(module_graph(package, types=False))
    heading(f"Import cycles at run time (inside functions included): {len(found)}")
    for group in found:
        print(f"{len(group):3}  {', '.join(name or '__init__' for name in group)}")
    heading("Hubs: how many modules import them")
    for name, count in list(fan_in(graph).items())[:SHOWN]:
        print(f"{count:4}  {name or '__init__'}")
    for folder in ("consumer", "producer"):
        inside = [name for name in fan_in(graph) if name.startswith(f"{folder}.")][:3]
        for name in inside:
            users = sorted(each for each in graph if name in graph[each])
            print(f"{len(users):4}  {name}: {', '.join(users)}")


def print_sizes(trees: dict[str, ast.Module]) -> None:
    """Print long functions and large classes."""
    sizes = [(length(f), name, f.name) for name, tree in trees.items() for f in functions(tree)]
    over40 = sorted((size for size in sizes if size[0] > 40), reverse=True)
    over60 = [size for size in over40 if size[0] > 60]
    heading(f"Functions: {len(sizes)}; over 40 lines: {len(over40)}, over 60: {len(over60)}")
    for size, name, function in over40:
        print(f"{size:4}  {name}: {function}")
    classes = [(each, name) for name, tree in trees.items() for each in class_figures(tree)]
    many = sum(each.attributes > 10 for each, _ in classes)
    heading(f"Classes: {len(classes)}; with more than ten attributes: {many}; methods, attributes")
    classes.sort(key=lambda item: (-item[0].methods - item[0].attributes, item[1]))
    for each, name in classes[:SHOWN]:
        print(f"{each.methods:4} {each.attributes:4}  {each.name} ({name})")


def print_lines(trees: dict[str, ast.Module], texts: dict[str, str]) -> None:
    """Print the numbers of lines of code, docstrings and comments, by folder."""
    table: dict[str, Counter[str]] = {}
    for name, tree in trees.items():
        folder = name.split("/")[0] if "/" in name else "(root)"
        row = table.setdefault(folder, Counter())
        row["files"] += 1
        row.update(count_lines(texts[name], tree))
    table["all"] = sum(table.values(), Counter())
    heading("Lines of code, docstrings and comments (no banners); comments per line of code")
    print(f"{'':14}files   code  per file  docstrings  comments  ratio  banners")
    for folder, row in sorted(table.items(), key=lambda item: item[0] == "all"):
        ratio = row["comment"] / max(row["code"], 1)
        print(
            f"{folder:14}{row['files']:5} {row['code']:6} {row['code'] / row['files']:9.0f}"
            f" {row['docstring']:11} {row['comment']:9} {ratio:6.3f} {row['banner']:8}"
        )


def print_repetition(trees: dict[str, ast.Module], texts: dict[str, str]) -> None:
    """Print the number of repeated blocks by folder, and the longest blocks outside of
    `protocol/messages/`."""
    lines = {name: code_lines(texts[name], tree) for name, tree in trees.items()}
    found = repeated_blocks(lines)
    heading(f"Pairs of repeated blocks of {BLOCK} or more lines: {len(found)}")
    by_folder = Counter(pair[0].split("/")[0] if "/" in pair[0] else "(root)" for pair in found)
    print(", ".join(f"{folder} {count}" for folder, count in by_folder.most_common()))
    others = [pair for pair in found if not pair[0].startswith("protocol/messages/")]
    for one, at, other, there, size in others[:SHOWN]:
        print(f"{size:4}  {one}:{at}  {other}:{there}")


def print_folders(trees: dict[str, ast.Module]) -> None:
    """Print the number of files per folder, and the modules at the root."""
    folders = Counter(str(Path(name).parent) for name in trees)
    heading("Files per folder")
    print(", ".join(f"{folder} {count}" for folder, count in sorted(folders.items())))
    root = sorted(name for name in trees if "/" not in name)
    heading(f"Modules at the root: {len(root)}")
    print(", ".join(name.removesuffix(".py") for name in root))


def main(package: Path) -> None:
    """Print all figures of a package."""
    paths = [path for path in sources(package) if "_generated" not in path.parts]
    texts = {path.relative_to(package).as_posix(): path.read_text() for path in paths}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    print(f"{len(texts)} files, {sum(text.count(chr(10)) for text in texts.values())} lines")
    print_imports(package)
    print_sizes(trees)
    print_lines(trees, texts)
    print_repetition(trees, texts)
    print_folders(trees)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
