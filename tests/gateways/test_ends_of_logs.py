"""Servers that do not know where a log ends, or say so differently."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, fill, read


async def handle(record: Any) -> None:
    """Do nothing with a record."""


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
async def test_parallel_consumers_commit_the_last_record(
    cluster: FakeCluster, isolation_level: str
) -> None:
    """Also where the last stable offset is that of the last record, not the one after it."""
    fill(cluster, 0, 5)
    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation_level,
    )
    parallel = ParallelConsumer(consumer, commit_interval_ms=20)
    async with timeout(20), parallel:
        running = asyncio.ensure_future(parallel.run(handle))
        await cluster.wait_for(lambda: cluster.groups.committed("g", "t", 0) == 5)
        parallel.request_stop()
        await running


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
async def test_the_lag_is_never_negative(
    cluster: FakeCluster, start: Start, isolation_level: str
) -> None:
    fill(cluster, 0, 5)
    async with timeout(20):
        consumer = await start(cluster, assign=[T0, T1], isolation_level=isolation_level)
        await read(consumer, 3)
        lag, end = consumer.lag(T0), consumer.known_end_offsets()[T0]
        assert (lag is None) == (end is None)
        assert lag in (None, 1, 2)
        assert end in (None, 4, 5)
        await read(consumer, 2)
        assert consumer.lag(T0) in (None, 0)
        assert consumer.known_end_offsets()[T0] in (None, 5)
        assert consumer.highwater(T0) in (None, 5)


async def test_records_are_retried_after_their_delay(cluster: FakeCluster) -> None:
    """Records that fail one after the other: each is behind the end that was known before."""
    await cluster.create_topic("t-retry-1")
    done: list[Any] = []
    tried: set[Any] = set()

    async def fail_once(record: Any) -> None:
        if record.value not in tried:
            tried.add(record.value)
            raise LookupError
        done.append(record.value)

    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    async with timeout(20), producer:
        retry = RetryTopics(producer, [20])
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            running = asyncio.ensure_future(parallel.run(fail_once))
            for number in range(4):
                fill(cluster, 0, 1)
                await cluster.wait_for(lambda n=number: len(done) > n)
            await cluster.wait_for(lambda: cluster.groups.committed("g", "t-retry-1", 0) == 4)
            parallel.request_stop()
            await running
    assert done == [b"0", b"1", b"2", b"3"]
