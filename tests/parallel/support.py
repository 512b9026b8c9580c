"""What tests of parallel processing share: consumers, handlers that remember, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka._compat import timeout
from aiokafka.parallel import ParallelConsumer
from aiokafka.testing import FakeCluster

Record = ConsumerRecord[Any, Any]


def make_consumer(fake: FakeCluster, *topics: str, **options: Any) -> AIOKafkaConsumer:
    options.setdefault("group_id", "g")
    options.setdefault("auto_offset_reset", "earliest")
    options.setdefault("enable_auto_commit", False)
    if options.get("group_protocol") != "consumer":
        options.setdefault("heartbeat_interval_ms", 20)
    options.setdefault("retry_backoff_ms", 10)
    options.setdefault("fetch_max_wait_ms", 50)
    return AIOKafkaConsumer(*topics, bootstrap_servers=fake.bootstrap_servers, **options)


def make_parallel(
    fake: FakeCluster, *topics: str, consumer: dict[str, Any] | None = None, **options: Any
) -> ParallelConsumer:
    """A ParallelConsumer that reads `topics` ("t") from the beginning and commits often."""
    options.setdefault("commit_interval_ms", 20)
    reader = make_consumer(fake, *(topics or ("t",)), **(consumer or {}))
    return ParallelConsumer(reader, **options)


def fill(fake: FakeCluster, count: int, *, keys: int = 10, partitions: int = 4) -> None:
    """`count` numbered records; the records of a key in one partition, with rising numbers."""
    for number in range(count):
        key = number % keys
        fake.log("t", key % partitions).append(b"%d" % number, key=b"k%d" % key)


def committed(fake: FakeCluster, partitions: int = 4, topic: str = "t") -> list[int]:
    return [fake.groups.committed("g", topic, number) or 0 for number in range(partitions)]


def ends(fake: FakeCluster, partitions: int = 4, topic: str = "t") -> list[int]:
    return [fake.log(topic, number).end_offset for number in range(partitions)]


async def until(condition: Callable[[], Any], seconds: float = 15) -> None:
    async with timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


class Seen:
    """A handler that writes down what it begins and what it ends."""

    def __init__(self, pause: Callable[[Record], float] = lambda record: 0.0) -> None:
        self.begun: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.by_key: dict[bytes | None, list[int]] = {}
        self.open: set[bytes | None] = set()
        self.most = 0
        self.running = 0
        self._pause = pause

    async def __call__(self, record: Record) -> None:
        self.begun.append((record.partition, record.offset))
        if record.key is not None:
            assert record.key not in self.open, "two records of a key at once"
            self.open.add(record.key)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._pause(record))
            self.ended.append((record.partition, record.offset))
            self.by_key.setdefault(record.key, []).append(int(record.value))
        finally:
            self.running -= 1
            self.open.discard(record.key)


class Runs:
    """`run()` of a started ParallelConsumer, in a task."""

    def __init__(self, parallel: ParallelConsumer, handler: Any) -> None:
        self.parallel = parallel
        self.task = asyncio.get_running_loop().create_task(parallel.run(handler))

    async def stop(self) -> None:
        """Stop in good order; raises what `run()` raised."""
        await self.parallel.stop()
        await self.task

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()


def make_producer(cluster: FakeCluster, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)


async def add_topics(cluster: FakeCluster, *names: str) -> None:
    for name in names or ("t-retry-1", "t-retry-2", "t-dead-letter"):
        await cluster.create_topic(name)


def record_in(topic: str, headers: Any = (), timestamp: int = 0) -> Record:
    return ConsumerRecord(topic, 0, 7, timestamp, 0, b"k", b"v", None, 1, 1, tuple(headers))


def written(cluster: FakeCluster, topic: str) -> list[Any]:
    return list(cluster.log(topic).records())
