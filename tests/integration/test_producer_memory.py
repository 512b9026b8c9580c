"""What a producer keeps in memory while its brokers take less than it is given."""

from __future__ import annotations

import asyncio
import resource
import uuid
from pathlib import Path

from aiokafka import AIOKafkaClient, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    EntityData,
    OpData,
)
from aiokafka.structs import RecordMetadata
from tests.integration.support import read
from tests.kafka.fixtures import Kafka, Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

MIB = 2**20
BUFFER = 8 * MIB
# Batches on their way are in the buffers of the socket as well; the allocator keeps some.
LIMIT = 3 * BUFFER
QUOTA = 2 * MIB
# Seconds. Brokers average over eleven windows of a second: so much of a quota may go at once.
WINDOWS = 11


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Load:
    """Sends as fast as it may, forgetting the futures; counts what was written and what was not."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self.sent = self.written = 0
        self.growth = 0
        self._before = resident()
        self._producer = producer
        self._topic = topic
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        value = b"v" * 1000
        while True:
            future = await self._producer.send(self._topic, value)
            future.add_done_callback(self._count)
            self.sent += 1
            if self.sent % 1000 == 0:
                self.growth = max(self.growth, resident() - self._before)

    def _count(self, future: asyncio.Future[RecordMetadata]) -> None:
        self.written += future.exception() is None

    async def end(self) -> None:
        """Stop sending; wait for what was sent."""
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()
        await self._producer.flush(60)


async def test_while_the_broker_is_down(scale: Scale) -> None:
    need_own_brokers()
    with KafkaCluster() as cluster:
        await create_topic(cluster.bootstrap_servers, "topic", 4, 1, {})
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=BUFFER
        )
        async with producer:
            load = Load(producer, "topic")
            while load.written < 10_000:
                assert not load.task.done()
                await asyncio.sleep(0.1)
            await asyncio.to_thread(cluster.kill, 1)
            await asyncio.sleep(scale(4, 30))
            async with timeout(60):
                while producer.buffer_available_bytes >= BUFFER // 10:
                    assert not load.task.done()
                    await asyncio.sleep(0.1)
            at_rest = load.sent
            await asyncio.to_thread(cluster.restart, 1)
            while load.sent == at_rest:
                assert not load.task.done()
                await asyncio.sleep(0.1)
            await load.end()
        assert load.growth < LIMIT
        assert load.written == load.sent
        found = await read(cluster.bootstrap_servers, "topic", load.sent, partitions=4)
        assert len(found) == load.sent


async def test_under_a_quota(kafka: Kafka, topic: str, scale: Scale) -> None:
    name = f"limited-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        await limit_writing(client, name, QUOTA)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, client_id=name, buffer_memory=BUFFER
    )
    async with producer:
        loop = asyncio.get_running_loop()
        start = loop.time()
        load = Load(producer, topic)
        await asyncio.sleep(scale(4, 30))
        # On a busy machine the load takes longer to reach the quota.
        async with timeout(60):
            while producer.buffer_available_bytes >= BUFFER // 2:
                assert not load.task.done()
                await asyncio.sleep(0.1)
        # The rest was on its way when the first throttled answer came. Without a quota it is
        # many times as much.
        assert load.written * 1000 < QUOTA * (WINDOWS + loop.time() - start) + BUFFER
        await load.end()
    assert load.growth < LIMIT
    assert load.written == load.sent


async def limit_writing(client: AIOKafkaClient, name: str, rate: float) -> None:
    """Have brokers slow down a client of that name to `rate` bytes a second."""
    entity = EntityData(entity_type="client-id", entity_name=name)
    limit = OpData(key="producer_byte_rate", value=rate, remove=False)
    request = AlterClientQuotasRequest(
        entries=[AlterEntryData(entity=[entity], ops=[limit])], validate_only=False
    )
    node_id = client.get_random_node()
    assert node_id is not None
    (answer,) = (await client.send(node_id, request)).entries
    assert answer.error_code == 0, answer.error_message
