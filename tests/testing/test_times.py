"""Records that the fake cluster finds by their time."""

from __future__ import annotations

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.protocol.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafka.testing import FakeCluster

from .support import RawClient

T0 = TopicPartition("t", 0)


async def test_the_marker_of_a_transaction_has_a_time() -> None:
    """As Kafka sees it, a marker is a record that is found by its time, and may be the newest."""
    async with FakeCluster() as cluster, timeout(20):
        await cluster.create_topic("t")
        log = cluster.log("t", 0)
        servers = cluster.bootstrap_servers
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
        consumer = AIOKafkaConsumer(bootstrap_servers=servers)
        async with producer, consumer:
            async with producer.transaction():
                await (await producer.send("t", b"one", timestamp_ms=2000))
            ((offset, when),) = (await consumer.offsets_for_times({T0: 3000})).values()
            assert offset == 1
            assert log.offset_of_max_timestamp() == (when, 1, 0)
            log.delete_before(1)
            ((offset, _),) = (await consumer.offsets_for_times({T0: 0})).values()
            assert offset == 1


@pytest.mark.parametrize(("level", "found"), [(0, 0), (1, -1)])
async def test_the_newest_record_may_not_be_read_yet(level: int, found: int) -> None:
    async with FakeCluster() as cluster, timeout(20):
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
            await producer.begin_transaction()
            await (await producer.send("t", b"open"))
            part = ListOffsetsPartition(partition_index=0, timestamp=-3)
            topic = ListOffsetsTopic(name="t", partitions=[part])
            request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])
            async with RawClient(servers) as client:
                (answer,) = (await client.call(request, 7)).topics[0].partitions
            assert answer.offset == found
            await producer.abort_transaction()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_what_may_not_be_read_is_not_found(isolation: str) -> None:
    async with FakeCluster() as cluster, timeout(20):
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        cluster.log("t", 0).append(b"plain", timestamp_ms=1000)
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x")
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=isolation)
        async with producer, consumer:
            await producer.begin_transaction()
            await (await producer.send("t", b"open", timestamp_ms=2000))
            (found,) = (await consumer.offsets_for_times({T0: 1500})).values()
            assert found == (None if isolation == "read_committed" else (1, 2000))
            (found,) = (await consumer.offsets_for_times({T0: 500})).values()
            assert found == (0, 1000)
            await producer.commit_transaction()
            (found,) = (await consumer.offsets_for_times({T0: 1500})).values()
            assert found == (1, 2000)
