"""Three brokers, one of them killed while records flow: nothing lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import RecordMetadata
from tests.kafka.fixtures import Scale
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

PARTITIONS = 3
SHORT, LONG = 20_000, 200_000
# So many may be on their way: the stream must not run ahead of a broker that is down.
WINDOW = 1_000

Numbers = dict[int, list[tuple[int, int]]]


class Stream:
    """Numbered records; per partition, the (offset, number) of what was acknowledged and read."""

    def __init__(self, cluster: KafkaCluster, topic: str, total: int) -> None:
        self.total = total
        self.sent = 0
        self.acknowledged: Numbers = defaultdict(list)
        self.read: Numbers = defaultdict(list)
        self._servers = cluster.bootstrap_servers
        self._topic = topic
        self._progress = asyncio.Condition()

    async def produce(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, acks="all")
        async with producer:
            waiting: list[tuple[int, asyncio.Future[RecordMetadata]]] = []
            for number in range(self.total):
                value = b"%d" % number
                future = await producer.send(self._topic, value, partition=number % PARTITIONS)
                waiting.append((number, future))
                if len(waiting) == WINDOW:
                    await self._settle(waiting)
            await self._settle(waiting)

    async def _settle(self, waiting: list[tuple[int, asyncio.Future[RecordMetadata]]]) -> None:
        for number, future in waiting:
            done = await future
            self.acknowledged[done.partition].append((done.offset, number))
        async with self._progress:
            self.sent += len(waiting)
            self._progress.notify_all()
        waiting.clear()

    async def consume(self) -> None:
        """Read until as many records were seen as are sent in all."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([TopicPartition(self._topic, number) for number in range(PARTITIONS)])
        seen = 0
        async with consumer:
            while seen < self.total:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        assert record.value is not None
                        pair = (record.offset, int(record.value))
                        self.read[record.partition].append(pair)
                    seen += len(records)

    async def reached(self, count: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self.sent >= count)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_every_acknowledged_record_is_read_once_in_order(
    kafka3: KafkaCluster, scale: Scale
) -> None:
    topic = f"crash-{uuid.uuid4().hex[:8]}"
    config = {"min.insync.replicas": "2"}
    await create_topic(kafka3.bootstrap_servers, topic, PARTITIONS, 3, config)
    stream = Stream(kafka3, topic, scale(SHORT, LONG))
    tasks = [asyncio.create_task(stream.produce()), asyncio.create_task(stream.consume())]
    crashes = asyncio.create_task(crash_twice(kafka3, stream))
    try:
        await asyncio.gather(*tasks, crashes)
    finally:
        for task in (*tasks, crashes):
            task.cancel()
        await asyncio.gather(*tasks, crashes, return_exceptions=True)

    assert sum(map(len, stream.acknowledged.values())) == stream.total
    for partition in range(PARTITIONS):
        assert stream.read[partition] == stream.acknowledged[partition]
        numbers = [number for _offset, number in stream.read[partition]]
        assert numbers == list(range(partition, stream.total, PARTITIONS))


async def crash_twice(cluster: KafkaCluster, stream: Stream) -> None:
    """Each broker that is killed leads a partition; it is started again while records flow."""
    for turn, node in enumerate((1, 2)):
        await stream.reached(stream.total * (4 * turn + 1) // 10)
        cluster.kill(node)
        await stream.reached(stream.total * (4 * turn + 3) // 10)
        await asyncio.to_thread(cluster.restart, node)
