"""How long the oldest record waits, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.errors import ProducerClosed
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results


def test_the_age_is_that_of_the_oldest() -> None:
    async def main(simulation: Simulation) -> float | None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=3)
            async with new_producer(cluster, request_timeout_ms=60_000) as producer:
                assert producer.health().pending_age_ms is None
                cluster.intercept(ProduceRequest, Silence())
                sent = []
                for partition in range(3):
                    sent.append(await producer.send(TOPIC, b"v", partition=partition))
                    await asyncio.sleep(10)
                health = producer.health()
                assert health.pending == 3
                await producer.stop(0)
                assert all(isinstance(one, ProducerClosed) for one in await results(sent))
                return health.pending_age_ms

    assert simulate(main) == pytest.approx(30_000, abs=100)
