"""The order of records that several tasks send at the same time."""

from __future__ import annotations

import asyncio

from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values


def test_tasks_that_send_at_the_same_time_keep_their_order() -> None:
    """Also when some of them have to give the event loop a turn, after so many bytes."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, max_batch_size=100_000) as producer:
                await producer.send_and_wait(TOPIC, b"00", partition=0)
                values_ = [b"%02d" % number + b"x" * 90_000 for number in range(1, 12)]
                await asyncio.gather(
                    *[producer.send_and_wait(TOPIC, value, partition=0) for value in values_]
                )
            return [value and value[:2] for value in values(cluster)]

    assert simulate(main) == [b"%02d" % number for number in range(12)]
