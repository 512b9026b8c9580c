"""Requests that a broker carries out after their client has given them up."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.errors import (
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import (
    TOPIC,
    committed,
    new_producer,
    results,
    transactional,
    values,
)

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


def test_an_aborted_record_that_is_written_late_is_not_in_the_next_transaction() -> None:
    """Its time is up while the leader still works; before KIP-890 leaders take it at any time."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await cluster.create_topic(TOPIC)
            # A broker that leads as well would end the transaction behind the record.
            cluster.move_leader((TOPIC, 0), 0)
            cluster.move_coordinator("transaction", "worker", 1)
            async with transactional(cluster, **TIMES) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                # Sent once more after 0.8 s, and given up 0.7 s later.
                cluster.intercept(
                    ProduceRequest, Delay(0.7, Fail(NotLeaderForPartitionError)), times=1
                )
                goes_on = asyncio.Event()
                cluster.intercept(ProduceRequest, Hold(goes_on), times=1)
                given_up = await results([await producer.send(TOPIC, b"late", partition=0)])
                asyncio.get_running_loop().call_later(0.1, goes_on.set)
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"next", partition=0)
                await producer.commit_transaction()
                assert goes_on.is_set()
            assert values(cluster)[:2] == [b"first", b"late"]
            return given_up, committed(cluster)

    (given_up,), seen = simulate(main)
    assert isinstance(given_up, KafkaTimeoutError)
    assert seen == [b"next"]
