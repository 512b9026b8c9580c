"""The time of day in simulated time: the conftest of a folder imports this fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka import _clock
from aiokafka.testing.simulation import SimulatedLoop


@pytest.fixture
async def wall_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The time of day in the clients, which passes as fast as the time of the loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        monkeypatch.setattr(_clock, "wall_time", loop.wall_time)
    return _clock.wall_time
