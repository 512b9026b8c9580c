"""Three brokers, one of them killed while records flow: nothing lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections import defaultdict

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.messages.produce import InitProducerIdRequest
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


STALL = 3.0


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("codec", ["gzip", None])
async def test_batches_that_are_sent_again_are_written_once(
    kafka3: KafkaCluster, scale: Scale, codec: str | None
) -> None:
    """Followers stall for longer than requests may take, so leaders have what is sent again.

    Compressed, a batch is far smaller than max_request_size, and before that far larger.
    """
    topic, total = f"stall-{uuid.uuid4().hex[:8]}", scale(60_000, 600_000)
    await create_topic(kafka3.bootstrap_servers, topic, 1, 3, {"min.insync.replicas": "2"})
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka3.bootstrap_servers,
        compression_type=codec,
        max_batch_size=131_072,
        request_timeout_ms=1000,
    )
    offsets: list[int] = []
    await wait_for_producer_ids(kafka3)
    async with producer:
        stalls = asyncio.create_task(stall_brokers(kafka3, offsets, total, scale(2, 12)))
        try:
            waiting: list[asyncio.Future[RecordMetadata]] = []
            for number in range(total):
                value = b"%09d" % number + b"x" * 491
                waiting.append(await producer.send(topic, value, partition=0))
                if len(waiting) == 15_000:
                    offsets.extend([(await future).offset for future in waiting])
                    waiting.clear()
            offsets.extend([(await future).offset for future in waiting])
            await stalls
        finally:
            stalls.cancel()
            await asyncio.gather(stalls, return_exceptions=True)
    found = await read_numbers(kafka3, topic)
    assert [number for _, number in found] == list(range(total))
    # Of a batch that the leader had already it may not know the offset any more.
    assert all(told in (-1, there) for told, (there, _) in zip(offsets, found, strict=True))


async def wait_for_producer_ids(cluster: KafkaCluster) -> None:
    """Return when every broker gives producer ids, which takes a new broker a while.

    A producer whose requests may take one second gives up earlier.
    """
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    try:
        for node in cluster.nodes:
            # One that was killed before may be back, and not yet in the metadata.
            while client.cluster.broker_metadata(node) is None:
                await asyncio.sleep(0.05)
                await client.force_metadata_update()
            while (await client.send(node, request)).error_code:
                await asyncio.sleep(0.05)
    finally:
        await client.close()


async def stall_brokers(cluster: KafkaCluster, done: list[int], total: int, stalls: int) -> None:
    """Freeze one broker after the other while records flow."""
    for turn in range(stalls):
        while len(done) < total * turn // (stalls + 1):
            await asyncio.sleep(0.01)
        pid = cluster.pid(list(cluster.nodes)[turn % len(cluster.nodes)])
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(STALL)
        finally:
            os.kill(pid, signal.SIGCONT)


async def read_numbers(cluster: KafkaCluster, topic: str) -> list[tuple[int, int]]:
    """The (offset, number) of all that is in the only partition of `topic`."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    found: list[tuple[int, int]] = []
    async with consumer:
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found.extend((one.offset, int((one.value or b"")[:9])) for one in records)
    return found
