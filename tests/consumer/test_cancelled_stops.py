"""A `stop()` that is cancelled, the one after it, and one of a throttled consumer."""

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


def test_a_throttled_broker_does_not_hold_up_the_end() -> None:
    """It answers one request of the connection each three seconds; the last one closes the fetch
    session."""

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
            await consumer.start()
            await consumer.getmany(timeout_ms=1000)
            cluster.throttle(3000)
            (partition,) = consumer.assignment()
            calls = [loop.create_task(consumer.end_offsets([partition])) for _ in range(5)]
            await asyncio.sleep(0.1)
            began = loop.time()
            await consumer.stop(timeout=0)
            assert loop.time() - began <= 1.1
            await asyncio.gather(*calls, return_exceptions=True)

    simulate(main)


def test_the_end_of_its_fetches_leaves_a_slow_broker_connected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It leads nothing any more, and is told so over the connection that others use as well."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            cluster.move_leader(("t", 0), 0)
            address = cluster.address(0)
            async with AIOKafkaConsumer("t", bootstrap_servers=address) as consumer:
                await consumer.getmany(timeout_ms=1000)
                cluster.faults.slow(0, 2.0)
                cluster.move_leader(("t", 0), 1)
                await asyncio.sleep(10)

    with caplog.at_level("DEBUG", logger="aiokafka"):
        simulate(main)
    assert "Broker 0: session not closed" in caplog.text
    assert "got no response in time" not in caplog.text
