"""Records without a key, while one of the brokers is slow or hangs."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer

COUNT = 3000


@pytest.mark.parametrize("seconds", [None, 2.0])
@pytest.mark.parametrize("per_broker", [1, 5])
def test_the_others_take_what_it_does_not(seconds: float | None, per_broker: int) -> None:
    """Otherwise its records fill the memory, and no others can be sent."""
    limits = {"buffer_memory": 300_000, "max_batch_size": 1000, "max_block_ms": 1000}

    async def main(_: Simulation) -> list[int]:
        async with FakeCluster(brokers=3) as cluster:
            total = 3 * per_broker
            await cluster.create_topic(TOPIC, assignment={i: [i % 3] for i in range(total)})
            if seconds is None:
                cluster.faults.hang(0, [ProduceRequest])
            else:
                cluster.faults.slow(0, seconds, [ProduceRequest])
            async with new_producer(cluster, **limits) as producer:
                for number in range(COUNT):
                    await producer.send(TOPIC, b"x" * 900)
                    if number % 10 == 0:
                        await asyncio.sleep(0.01)
                cluster.faults.revive(0)
                await producer.flush()
            return [cluster.log(TOPIC, number).end_offset for number in range(total)]

    ends = simulate(main)
    assert sum(ends) == COUNT
    assert sum(ends[::3]) < COUNT / 20
    for other in (1, 2):
        assert sum(ends[other::3]) > COUNT / 3


def test_with_none_slow_all_get_alike() -> None:
    async def main(_: Simulation) -> list[int]:
        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic(TOPIC, assignment={i: [i] for i in range(3)})
            async with new_producer(cluster, max_batch_size=1000) as producer:
                for _ in range(COUNT):
                    await producer.send(TOPIC, b"x" * 900)
                await producer.flush()
            return [cluster.log(TOPIC, number).end_offset for number in range(3)]

    assert min(simulate(main)) > COUNT / 4
