"""Clients that come and go by the thousand leave nothing behind: no task, socket or warning."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TransactionalSession
from aiokafka.errors import KafkaConnectionError
from aiokafka.parallel import ParallelConsumer
from aiokafka.testing import FakeCluster
from tests.kafka.fixtures import Scale

TOPIC = "topic"
AT_ONCE = 50

Use = Callable[[FakeCluster, int], Awaitable[None]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=2) as fake:
        await fake.create_topic(TOPIC, partitions=4)
        yield fake
        assert fake.failures == []


def sockets() -> int:
    """Descriptors that are open in this process; a system that cannot tell has none."""
    return len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0


async def produce(cluster: FakeCluster, number: int) -> None:
    """Some are used, some only started; some in transactions, some of these stopped within one."""
    kind = number % 4
    options: dict[str, Any] = {"transactional_id": f"id-{number}"} if kind > 1 else {}
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    async with producer:
        if kind > 1:
            await producer.begin_transaction()
        if kind != 1:
            await producer.send_and_wait(TOPIC, b"%d" % number)
        if kind == 2:
            await producer.commit_transaction()


async def consume(cluster: FakeCluster, number: int) -> None:
    """With and without a group; every group has two members."""
    group = None if number % 2 else f"group-{number // 4}"
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
    )
    async with consumer:
        await consumer.getmany(timeout_ms=0)


async def fail_to_start(cluster: FakeCluster, number: int) -> None:
    """Nothing listens there."""
    kind = AIOKafkaProducer if number % 2 else AIOKafkaConsumer
    with pytest.raises(KafkaConnectionError):
        await kind(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1000).start()


async def cancel(cluster: FakeCluster, number: int) -> None:
    """Each a little later than the one before: while it starts, works, or stops."""
    kind = AIOKafkaProducer if number % 2 else AIOKafkaConsumer
    client = kind(*([] if number % 2 else [TOPIC]), bootstrap_servers=cluster.bootstrap_servers)
    task = asyncio.create_task(use_briefly(client))
    for _ in range(1 + number % 100):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def cancel_twice(cluster: FakeCluster, number: int) -> None:
    """What owns clients of its own: once in its work, and again a little later while it stops."""
    servers = cluster.bootstrap_servers
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=servers,
        group_id=f"group-{number}",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    owner: ParallelConsumer | TransactionalSession
    if number % 2:
        owner = ParallelConsumer(consumer)
    else:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"id-{number}")
        owner = TransactionalSession(consumer, producer)
    task = asyncio.create_task(stay(owner))
    while not consumer.assignment() and not task.done():
        await asyncio.sleep(0.001)
    task.cancel()
    for _ in range(1 + number // 2 % 50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stay(owner: ParallelConsumer | TransactionalSession) -> None:
    async with owner:
        await asyncio.Event().wait()


async def use_briefly(client: Any) -> None:
    async with client:
        if isinstance(client, AIOKafkaProducer):
            await client.send_and_wait(TOPIC, b"value")
        else:
            await client.getmany(timeout_ms=0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("use", "short", "long"),
    [
        (produce, 1000, 10_000),
        (consume, 200, 5000),
        (fail_to_start, 100, 1000),
        (cancel, 300, 5000),
        (cancel_twice, 200, 2000),
    ],
)
async def test_nothing_is_left(
    cluster: FakeCluster, scale: Scale, use: Use, short: int, long: int
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await asyncio.gather(*(use(cluster, number) for number in range(AT_ONCE)))
        await cluster.wait_for(lambda: not cluster.connections, 10)
        tasks, open_before = asyncio.all_tasks(), sockets()
        for first in range(AT_ONCE, scale(short, long), AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            await asyncio.gather(*(use(cluster, number) for number in numbers))
        await cluster.wait_for(lambda: not cluster.connections, 10)
        gc.collect()
        await asyncio.sleep(0)
    assert [str(one.message) for one in warned] == []
    assert asyncio.all_tasks() - tasks == set()
    assert sockets() <= open_before
