"""The code under test is the form that was asked for: compiled, or the plain sources."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

import aiokafka

ROOT = Path(str(aiokafka.__file__)).parent
COMPILABLE = sorted(
    ".".join(("aiokafka", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.pxd")
    if path.with_suffix(".py").exists()
)


def asked_for(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


@pytest.mark.parametrize("name", COMPILABLE)
def test_each_module_is_loaded_in_the_form_that_was_asked_for(name: str) -> None:
    is_plain = str(importlib.import_module(name).__file__).endswith(".py")
    if asked_for("AIOKAFKA_NO_EXTENSIONS"):
        assert is_plain
    elif asked_for("REQUIRE_EXTENSIONS"):
        assert not is_plain


def test_all_modules_have_the_same_form() -> None:
    plain = [
        name for name in COMPILABLE if str(importlib.import_module(name).__file__).endswith(".py")
    ]
    assert plain in ([], COMPILABLE)
