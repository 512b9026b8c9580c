"""Values of other libraries: whole numbers of NumPy that are no int, offsets of kafka-python."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
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
            with pytest.raises(TypeError, match=r"partition=.*: must be an integer or None"):
                await producer.send("orders", b"v", partition=wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"partition=.*: must be an integer or None"):
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


class OtherOffset(NamedTuple):
    """Offsets of kafka-python since version 2.1: three fields, where aiokafka has two."""

    offset: int
    metadata: str
    leader_epoch: int | None


class OtherPartition(NamedTuple):
    topic: str
    partition: int


async def test_offsets_of_another_library(cluster: FakeCluster) -> None:
    servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    given: Any = OtherPartition("orders", 0)
    async with AIOKafkaConsumer(group_id="g", **servers) as consumer:
        consumer.assign([given])
        await consumer.commit({given: OtherOffset(3, "ours", 4)})
        found = await consumer.committed_offsets([given])
        assert found == {given: OffsetAndMetadata(3, "ours")}
        stored = found[given]
        assert stored is not None
        assert stored.leader_epoch == 4
        async with AIOKafkaProducer(transactional_id="id", **servers) as producer:
            for offset in (OtherOffset(5, "theirs", None), [5, "theirs"]):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({given: offset}, "other")
        for wrong in (OtherOffset(-1, "", None), OtherOffset(1, b"", None), "12", (1,), (1, "", 3)):
            with pytest.raises((ValueError, TypeError)):
                await consumer.commit({given: wrong})
    async with AIOKafkaConsumer(group_id="other", **servers) as consumer:
        assert await consumer.committed_offsets([given]) == {given: (5, "theirs")}
