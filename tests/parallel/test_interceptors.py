"""Interceptors of the consumer: they may leave records out, and take their time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.parallel import RetryTopics
from aiokafka.protocol.messages.group_members import JoinGroupRequest
from aiokafka.testing import FakeCluster, Hold
from tests.parallel.support import (
    Record,
    Runs,
    Seen,
    add_topics,
    committed,
    ends,
    fill,
    make_parallel,
    make_producer,
    until,
)


class OddOnly(ConsumerInterceptor):
    """Leaves out records with even numbers, and keeps the partition where nothing is left."""

    def on_consume(self, records: Records) -> Records:
        return {tp: [one for one in some if int(one.value) % 2] for tp, some in records.items()}


async def test_records_that_are_left_out_count_as_read(cluster: FakeCluster) -> None:
    """Of partitions 0 and 2 nothing is left; nothing is committed of them before a record is."""
    fill(cluster, 40, keys=4)
    seen = Seen()
    async with make_parallel(cluster, consumer={"interceptors": [OddOnly()]}) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 20)
        cluster.log("t", 0).append(b"41", key=b"k0")
        cluster.log("t", 2).append(b"43", key=b"k2")
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    numbers = sorted(number for some in seen.by_key.values() for number in some)
    assert numbers == [*range(1, 40, 2), 41, 43]


class Slow(ConsumerInterceptor):
    """Looks at records until the test says `go`."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()

    async def on_consume(self, records: Records) -> None:
        self.calls += 1
        await self.go.wait()


@pytest.mark.parametrize("topic", ["t", "t-retry-1"])
async def test_what_an_interceptor_looks_at_is_given_up_with_its_partition(
    cluster: FakeCluster, topic: str
) -> None:
    """The rebalance, which waits for another member, goes on when the interceptor has ended."""
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    log = cluster.log(topic)
    for number in range(3):
        log.append(b"%d" % number, key=b"k", timestamp_ms=1)
    slow = Slow()
    begun: list[int] = []

    async def handle(record: Record) -> None:
        begun.append(record.offset)

    options: dict[str, Any] = {"commit_interval_ms": 20, "drain_timeout_ms": 50}
    async with make_producer(cluster) as producer:
        options["retry"] = RetryTopics(producer, [1000])
        reading = {"interceptors": [slow]}
        async with make_parallel(cluster, consumer=reading, **options) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: slow.calls)
            others = asyncio.Event()
            member = parallel.consumer.group_metadata().member_id
            has_given_up = asyncio.Event()

            def hold_first(request: JoinGroupRequest, context: object) -> Hold | None:
                if request.member_id != member:
                    return None
                has_given_up.set()
                return Hold(others)

            cluster.intercept(JoinGroupRequest, hold_first)
            second = make_parallel(cluster, **options)
            starting = asyncio.ensure_future(second.start())
            # The first member has given up everything, and waits for its next assignment.
            await has_given_up.wait()
            slow.go.set()
            await asyncio.sleep(2)
            assert begun == []
            assert parallel.unfinished == parallel.waiting == 0
            others.set()
            await starting
            other_runs = Runs(second, handle)
            await until(lambda: committed(cluster, 1, topic) == [3])
            assert begun == [0, 1, 2]
            await other_runs.stop()
            await runs.stop()
