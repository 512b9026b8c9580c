"""The figures of the source code are right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.figures import class_figures, code_lines, count_lines, main, repeated_blocks
from tests.house.imports import cycles, module_graph


def package(folder: Path, **modules: str) -> Path:
    """Write a package with these modules; two underscores in a keyword stand for a dot."""
    root = folder / "thing"
    for name, text in {"__init__": "", **modules}.items():
        path = root / f"{name}.py" if name == "__init__" else root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


def test_a_cycle_of_plain_imports_is_found(tmp_path: Path) -> None:
    root = package(
        tmp_path, a="from thing.b import x", b="from thing.a import y", c="import thing.a"
    )
    assert cycles(module_graph(root)) == [["a", "b"]]


def test_type_checking_and_inner_imports_close_a_cycle(tmp_path: Path) -> None:
    root = package(
        tmp_path,
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thing.b import x",
        b="def f():\n    from .c import y",
        c="from . import a",
    )
    assert cycles(module_graph(root)) == [["a", "b", "c"]]


def test_a_name_of_a_package_counts_as_its_init(tmp_path: Path) -> None:
    root = package(tmp_path, sub__a="from thing.sub import name", b="from thing.sub import a")
    (root / "sub" / "__init__.py").write_text("from thing.sub.a import name")
    graph = module_graph(root)
    assert graph["b"] == {"sub.a"}
    assert cycles(graph) == [["sub", "sub.a"]]


def test_blank_lines_comments_and_imports_do_not_repeat() -> None:
    block = "\n".join(f"x{number} = {number}" for number in range(6))
    one = f'"""Text."""\nimport os\n{block}\n'
    other = "import os\n\n# Why.\n" + block.replace("x3", "# Text.\n\nx3")
    files = {name: code_lines(text, ast.parse(text)) for name, text in (("a", one), ("b", other))}
    assert repeated_blocks(files) == [("a", 3, "b", 4, 6)]
    files["b"] = files["b"][:-1]
    assert repeated_blocks(files) == []


def test_banners_are_no_comments() -> None:
    text = '"""Text."""\n# -- part ----\n\n# Why.\nx = 1  # What.\n'
    counted = count_lines(text, ast.parse(text))
    assert counted == {"docstring": 1, "banner": 1, "blank": 1, "comment": 1, "code": 1}


def test_attributes_are_what_methods_set() -> None:
    text = "class C:\n z = 0\n def f(self):\n  self.x, self.y = 1, 2\n  other.w = 3\n"
    (figures,) = class_figures(ast.parse(text))
    assert (figures.methods, figures.attributes) == (1, 2)


def test_all_figures_of_a_package_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        package(tmp_path, a='def f():\n    """Return nothing."""\n', sub__b="from thing.a import f")
    )
    printed = capsys.readouterr().out
    assert "Import cycles at run time (inside functions included): 0" in printed
    assert "Lines of code" in printed
    assert "Modules at the root: 2" in printed
