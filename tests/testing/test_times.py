"""Records that the fake cluster finds by their time."""

from __future__ import annotations

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.testing import FakeCluster

T0 = TopicPartition("t", 0)


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
