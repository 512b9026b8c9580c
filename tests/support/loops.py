"""The event loop of a test: the conftest of a folder imports this hook of pytest-asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from aiokafka.testing.simulation import SimulatedLoop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    """Return the simulated loop: deadlines do not depend on the speed of the machine, and no test
    waits for real time. Tests marked `real_time`, which measure real time or use threads, and all
    tests with ``--real-time``, run in asyncio's loop.
    """
    if config.getoption("real_time") or item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": SimulatedLoop}
