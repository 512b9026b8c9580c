"""The table of features and the tests that prove them, `features.csv`, names tests that exist."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def rows() -> list[tuple[str, str]]:
    with (TESTS / "features.csv").open(newline="", encoding="utf-8") as file:
        header, *found = csv.reader(file)
    assert header == ["feature", "test"]
    return [(feature, test) for feature, test in found]


@pytest.mark.parametrize(("feature", "test"), rows())
def test_the_test_of_a_feature_exists(feature: str, test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((TESTS.parent / path).read_text(encoding="utf-8"))
    names = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
    }
    assert names if not name else name in names


def test_features_are_named_once() -> None:
    features = [feature for feature, _ in rows()]
    assert len(features) == len(set(features))
