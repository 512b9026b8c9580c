"""Tests of this folder run in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.loops import LoopFactory, in_virtual_time


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    return in_virtual_time(config, item)
