"""In which time the tests of this folder run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.support.loops import LoopFactory
from tests.support.loops import pytest_asyncio_loop_factories as choose_loops


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    """Return simulated loops for test_authentication: a busy machine exceeds its limits."""
    if item.path.name != "test_authentication.py":
        return {"real": asyncio.new_event_loop}
    return choose_loops(config, item)
