"""The order of records: of several tasks, and at leaders that do not know the producer."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiokafka.errors import NotEnoughReplicasError, NotLeaderForPartitionError
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Delay, Fail, FakeCluster, RequestContext
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results, send_all, values


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


@pytest.mark.parametrize("version", ["2.8", "4.3"])
@pytest.mark.parametrize("reason", ["long ago", "another leader"])
def test_the_order_at_a_leader_that_does_not_know_the_producer(reason: str, version: str) -> None:
    """It takes any number as the first, so that of the second batch, if it refuses the first."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=version) as cluster:
            await cluster.create_topic(TOPIC, assignment={0: (0, 1), 1: (0, 1)})
            async with new_producer(cluster, max_batch_size=100) as producer:
                for _ in range(2):
                    await producer.send_and_wait(TOPIC, b"old", partition=0)
                    await producer.client.force_metadata_update()
                if reason == "long ago":
                    for _ in range(400):  # producer.id.expiration.ms is a day
                        await asyncio.sleep(225)
                        await producer.send_and_wait(TOPIC, b"other", partition=1)
                else:
                    # It has copied the log when retention had deleted what the producer wrote.
                    cluster.move_leader((TOPIC, 0), 1)
                    await producer.client.force_metadata_update()
                producers = cluster.log(TOPIC).producers
                for producer_id in list(producers.entries):
                    producers.forget(producer_id)
                cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=1)
                await results(await send_all(producer, [b"1" * 80, b"2" * 80, b"3" * 80]))
            return [value and value[:1] for value in values(cluster)]

    assert simulate(main, limit_s=100_000) == [b"o", b"o", b"1", b"2", b"3"]


def test_a_partition_does_not_wait_for_the_longer_pause_of_another() -> None:
    """Both are on one broker."""

    async def main(_: Simulation) -> float:
        loop = asyncio.get_running_loop()
        pauses = {"retry_backoff_ms": 10_000, "retry_backoff_max_ms": 100_000}
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=2)
            refusals = {0: 100, 1: 1}

            def refuse(request: ProduceRequest, _: RequestContext) -> Fail | None:
                number = request.topic_data[0].partition_data[0].index
                refusals[number] -= 1
                return Fail(NotEnoughReplicasError) if refusals[number] >= 0 else None

            cluster.intercept(ProduceRequest, refuse)
            async with new_producer(cluster, delivery_timeout_ms=600_000, **pauses) as producer:
                late = await producer.send(TOPIC, b"late", partition=0)
                # Three pauses, of 10, 20 and 40 s, are over at the latest; the next one of 80 s is
                # not.
                await asyncio.sleep(90)
                began = loop.time()
                await producer.send_and_wait(TOPIC, b"early", partition=1)
                took = loop.time() - began
                refusals[0] = 0
                await late
                return took

    assert 8 <= simulate(main) < 13


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_rare_record_is_not_passed_for_ever_by_full_batches(
    codec: str | None, linger_ms: int
) -> None:
    """They come faster than the broker takes them, and each request is full of them."""
    source = random.Random(1)
    limits = {"max_batch_size": 1000, "max_request_size": 3000}

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=11)
            slow = cluster.intercept(ProduceRequest, Delay(0.1))
            async with new_producer(
                cluster, linger_ms=linger_ms, compression_type=codec, **limits
            ) as producer:
                sent = []

                async def write() -> None:
                    while loop.time() < 8:
                        for number in range(10):
                            value = source.randbytes(800)
                            sent.append(await producer.send(TOPIC, value, partition=number))
                        await asyncio.sleep(0.01)

                writing = asyncio.create_task(write())
                await asyncio.sleep(2)
                rare = await producer.send(TOPIC, b"rare", partition=10)
                await asyncio.wait([rare], timeout=5)
                assert rare.done()
                await writing
                slow.remove()
                await asyncio.gather(*sent)

    simulate(main)
