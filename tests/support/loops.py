"""In which loop a test runs: a folder's conftest imports the hook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from aiokafka.testing.simulation import SimulatedLoop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    """Return simulated loops, for tests in which a client talks to the fake cluster: deadlines mean
    the same on every machine, and nothing waits. A test that measures real time or has threads of
    its own is marked `real_time`; with ``--real-time`` all of them run in asyncio's loop.
    """
    if config.getoption("real_time") or item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": SimulatedLoop}
