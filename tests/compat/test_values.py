"""Whole numbers that are no int: those of NumPy."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.testing import FakeCluster


class Whole:
    """A whole number as numpy.int64 is one: no int."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __eq__(self, other: object) -> bool:
        return self._number == other

    def __lt__(self, other: int) -> bool:
        return self._number < other


@pytest.fixture
async def cluster() -> Any:
    async with FakeCluster() as cluster:
        await cluster.create_topic("orders", partitions=2)
        yield cluster


async def test_whole_numbers_of_a_producer(cluster: FakeCluster) -> None:
    number: Any = Whole(1)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(2):  # before the topic is known, and after
            sent = await producer.send_and_wait(
                "orders", b"v", partition=number, timestamp_ms=Whole(7)
            )
            assert (sent.partition, sent.timestamp) == (1, 7)
            assert type(sent.partition) is int
        batch = producer.create_batch()
        time: Any = Whole(8)
        batch.append(key=None, value=b"v", timestamp=time)
        done = await (await producer.send_batch(batch, "orders", partition=number))
        assert (done.partition, done.timestamp) == (1, 8)
        for wrong in (True, "1", 1.0):
            with pytest.raises(TypeError, match="partition: must be an int or None, not "):
                await producer.send("orders", b"v", partition=wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="partition: must be an int or None, not "):
                await producer.send_batch(batch, "orders", partition=wrong)  # type: ignore[arg-type]


async def test_whole_numbers_of_a_consumer(cluster: FakeCluster) -> None:
    cluster.log("orders", 1).append(b"v")
    number: Any = Whole(1)
    tp = TopicPartition("orders", number)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([tp])
        async with timeout(20):
            record = await consumer.getone(tp)
        assert (record.partition, type(record.partition)) == (1, int)
        assert await consumer.position(tp) == 1
        assert await consumer.end_offsets([tp]) == {tp: 1}
        assert (await consumer.offsets_for_times({tp: Whole(0)}))[tp].offset == 0
