"""These tests need the environments of other projects: `make test-dependents` makes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if not os.environ.get("AIOKAFKA_DEPENDENTS"):
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a program writes what it has to say besides."""
    return tmp_path / "log.txt"
