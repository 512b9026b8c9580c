"""What fails when its partition is another member's already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.testing import FakeCluster
from tests.parallel.support import (
    Record,
    Runs,
    add_topics,
    committed,
    make_parallel,
    make_producer,
    until,
    written,
)


def expel(cluster: FakeCluster, parallel: ParallelConsumer) -> None:
    """The group removes the member, as if its process had stood still for too long."""
    cluster.groups.expire("g", parallel.consumer.group_metadata().member_id)


@pytest.mark.parametrize("has_retries", [False, True])
@pytest.mark.parametrize("seconds", [0.0, 1.5])
async def test_a_handler_that_fails_as_its_partition_was_lost(
    cluster: FakeCluster, has_retries: bool, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled, and cannot roll back: soon, or when the partition is long given up."""
    await add_topics(cluster)
    cluster.log("t").append(b"0", key=b"k")
    calls = 0

    async def handle(record: Record) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(seconds)
                raise ConnectionError("cannot roll back")

    async with make_producer(cluster) as producer:
        options: dict[str, Any] = {"retry": RetryTopics(producer, [10])} if has_retries else {}
        async with make_parallel(cluster, **options) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: calls)
            expel(cluster, parallel)
            await until(lambda: committed(cluster)[0] == 1)
            assert calls == 2
            assert parallel.failure is None
            await runs.stop()
    assert written(cluster, "t-retry-1") == []
    assert "cannot roll back" in caplog.text


async def test_a_work_that_fails_as_its_partition_was_lost(cluster: FakeCluster) -> None:
    """The block sees its exception, and the loop goes on."""
    cluster.log("t").append(b"0", key=b"k")
    async with make_parallel(cluster) as parallel:
        work = await anext(parallel)
        with pytest.raises(LookupError):
            async with work:
                expel(cluster, parallel)
                await until(lambda: not work.is_current)
                raise LookupError
        async with await anext(parallel) as record:
            assert record.offset == 0
        assert parallel.failure is None
    assert committed(cluster)[0] == 1
