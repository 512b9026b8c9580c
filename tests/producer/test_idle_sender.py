"""A sender that waits for a response costs nothing, however long the response takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 1, "enable_idempotence": False},
        {"acks": "all"},
        {"acks": "all", "linger_ms": 3},
        {"acks": "all", "max_in_flight_requests_per_connection": 1},
    ],
)
def test_a_batch_behind_one_whose_answer_is_late(options: dict[str, Any]) -> None:
    """With one request in flight for the partition the second batch cannot leave. The sender asked
    whether it could in every turn of the loop.
    """

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", 2)
            late = asyncio.Event()
            servers = cluster.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
                await producer.send_and_wait("t", b"warm", partition=0)
                with cluster.intercept(ProduceRequest, Hold(late)):
                    futures = [await producer.send("t", b"first", partition=0)]
                    await asyncio.sleep(0.1)
                    futures += [await producer.send("t", b"next", partition=0) for _ in range(3)]
                    futures.append(await producer.send("t", b"other", partition=1))
                    before = simulation.loop.turns
                    await asyncio.sleep(5)
                    turns = simulation.loop.turns - before
                    late.set()
                await asyncio.gather(*futures)
            return turns

    assert simulate(main) < 200
