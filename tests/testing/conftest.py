"""Tests of how the cluster replicates and fails run in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.support import loops

_VIRTUAL = {
    "test_controller.py",
    "test_faults.py",
    "test_moving_coordinators.py",
    "test_replication.py",
    "test_share_groups.py",
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, loops.LoopFactory]:
    if item.path.name in _VIRTUAL:
        return loops.pytest_asyncio_loop_factories(config, item)
    return {"real": asyncio.new_event_loop}
