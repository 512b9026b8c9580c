"""Topics that come and go under a producer."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.producer.batch import BatchSizing
from aiokafka.producer.message_accumulator import PartitionQueue
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.record.batch import iter_batches
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results, send_all, values


@pytest.mark.parametrize("version", ["2.1", "2.8", "4.3"])
async def test_a_topic_made_anew_elsewhere(version: str) -> None:
    """Its leader epochs begin again; before topic ids nothing else tells that it is another."""
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1, 2)})
        for leader in (1, 2, 0):
            cluster.move_leader((TOPIC, 0), leader)
        async with new_producer(cluster) as producer:
            for _ in range(3):
                await producer.send_and_wait(TOPIC, b"old", partition=0)
            await cluster.delete_topic(TOPIC)
            await cluster.create_topic(TOPIC, assignment={0: (1, 2, 0)})
            async with timeout(10):
                await producer.send_and_wait(TOPIC, b"1", partition=0)
                await producer.send_and_wait(TOPIC, b"2", partition=0)
        assert values(cluster) == [b"1", b"2"]


def count_of(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def count_queues() -> int:
    return count_of(PartitionQueue)


async def test_partitions_that_are_not_used_are_forgotten(cluster: FakeCluster) -> None:
    others = [f"other-{number}" for number in range(20)]
    before = count_queues()
    options = {"metadata_max_idle_ms": 1000}
    async with new_producer(cluster, **options) as producer:
        for topic in others:
            await cluster.create_topic(topic, partitions=10)
            await producer.send_and_wait(topic, b"1", partition=0)
        assert count_queues() - before == 200
        sizings = count_of(BatchSizing)
        for _ in range(3):
            await asyncio.sleep(0.5)
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        await producer.client.force_metadata_update()
        assert count_queues() - before == 3
        assert count_of(BatchSizing) <= sizings - len(others) + 1
        # The same number of records as before: under the same epoch, a repetition.
        for topic in others:
            await producer.send_and_wait(topic, b"2", partition=0)
        for topic in others:
            assert values(cluster, topic=topic) == [b"1", b"2"]
    assert values(cluster) == [b"v"] * 3
    sent = [
        batch.producer_epoch
        for seen in cluster.requests(ProduceRequest)
        for part in seen.request.topic_data[0].partition_data
        for batch in iter_batches(part.records)
    ]
    assert max(sent) == 1, "one epoch for all that was forgotten"


@pytest.mark.parametrize("version", ["2.8", "4.3"])
def test_the_order_in_a_topic_made_anew(version: str) -> None:
    """Its leader has no state of the producer, so it would take the second batch as the first."""

    async def main(_: Simulation) -> list[bytes | None]:
        async with FakeCluster(as_version=version) as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, max_batch_size=100) as producer:
                await producer.send_and_wait(TOPIC, b"old", partition=0)
                await cluster.delete_topic(TOPIC)
                await cluster.create_topic(TOPIC)
                await producer.client.force_metadata_update()
                # It hears of the topic between the two.
                cluster.intercept(ProduceRequest, Fail(UnknownTopicOrPartitionError), times=1)
                await results(await send_all(producer, [b"1" * 80, b"2" * 80, b"3" * 80]))
            return values(cluster)

    assert simulate(main) == [b"1" * 80, b"2" * 80, b"3" * 80]
