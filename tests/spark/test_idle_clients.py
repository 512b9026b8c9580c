"""How long a client that no task uses is kept, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.spark._loop import SharedClients
from aiokafka.testing.simulation import Simulation, simulate

IDLE_S = 10.0


def test_the_time_counts_from_the_last_use() -> None:
    async def main(simulation: Simulation) -> list[float]:
        loop, closed = asyncio.get_running_loop(), list[float]()
        began = loop.time()

        async def make() -> str:
            return "a client"

        async def close(client: str) -> None:
            closed.append(loop.time() - began)

        clients = SharedClients()
        for _ in range(3):
            async with clients.use("key", make, close, IDLE_S) as client:
                assert client == "a client"
            await asyncio.sleep(IDLE_S - 1)
            assert not closed
        await asyncio.sleep(5)
        assert len(clients) == 0
        await clients.close()
        return closed

    (closed_at,) = simulate(main)
    assert closed_at == pytest.approx(2 * (IDLE_S - 1) + IDLE_S, abs=0.1)
