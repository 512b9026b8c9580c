"""Requests that a broker carries out after their client has given them up."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.errors import KafkaTimeoutError, OutOfOrderSequenceNumber
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Edit, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results, values

TIMES = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1500, "retry_backoff_ms": 100}


def test_what_followed_a_record_without_answer_is_not_written_twice() -> None:
    """It is refused while the first is missing, and then both are written after all."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, max_batch_size=100, **TIMES) as producer:
                await producer.send_and_wait(TOPIC, b"known", partition=0)
                goes_on = asyncio.Event()
                # The first, and the first once more; the second waits behind it.
                cluster.intercept(ProduceRequest, Hold(goes_on), times=2)
                cluster.intercept(ProduceRequest, Edit(lambda _: goes_on.set()))
                first = await producer.send(TOPIC, b"1" * 80, partition=0)
                await asyncio.sleep(0.9)
                second = await producer.send(TOPIC, b"2" * 80, partition=0)
                (lost,) = await results([first])
                found = await results([second])
            return [lost, *found], values(cluster)

    (lost, second), written = simulate(main)
    assert isinstance(lost, KafkaTimeoutError)
    assert written == [b"known", b"1" * 80, b"2" * 80]
    assert isinstance(second, OutOfOrderSequenceNumber)
    assert "may have been written" in str(second)
