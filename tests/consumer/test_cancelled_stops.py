"""A `stop()` that is cancelled, and the one after it."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.testing.simulation import Simulation, simulate


@pytest.mark.parametrize("turns", range(0, 10, 2))
def test_the_next_stop_waits_for_the_goodbye(turns: int) -> None:
    """Others do not wait for the end of the session, which is 45 seconds."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=4) as cluster:
            await cluster.create_topic("t")
            cluster.move_coordinator("group", "g", 0)
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.address(0),
                group_id="g",
                enable_auto_commit=False,
                heartbeat_interval_ms=100,
            )
            await consumer.start()
            # Only heartbeats go to this broker: the goodbye needs another connection.
            leader = cluster.partition("t", 0).leader
            cluster.move_coordinator("group", "g", 3 if leader != 3 else 2)
            await asyncio.sleep(1)
            stopping = asyncio.get_running_loop().create_task(consumer.stop())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert not stopping.done()
            stopping.cancel()
            await asyncio.wait([stopping])
            assert stopping.cancelled()
            await consumer.stop()
            await asyncio.sleep(1)
            assert cluster.groups.state_of("g") == "Empty"

    simulate(main)
