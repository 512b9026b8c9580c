"""What comes in between: while interceptors look, a commit has to wait, or logs are compared."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import CommitFailedError, GroupLoadInProgressError
from aiokafka.interceptors import ConsumerInterceptor
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.handlers import _01_fetch
from tests.support.consumers import T0, Start, client_of, fill, read


@pytest.fixture
async def cluster() -> Any:
    async with FakeCluster(brokers=2) as fake:
        await fake.create_topic("t", replication_factor=2)
        yield fake


class Gate(ConsumerInterceptor):
    """An interceptor that takes its time."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def on_consume(self, records: Any) -> None:
        self.entered.set()
        await self.open.wait()


async def test_records_that_interceptors_look_at_are_not_committed(cluster: FakeCluster) -> None:
    gate = Gate()
    gate.open.set()
    fill(cluster, 0, 5)
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        interceptors=[gate],
    )
    async with ParallelConsumer(consumer, commit_interval_ms=10) as parallel:
        run = asyncio.create_task(parallel.run(lambda record: None))
        await cluster.wait_for(lambda: cluster.groups.committed("g", "t") == 5)
        gate.open.clear()
        gate.entered.clear()
        fill(cluster, 0, 5)
        await gate.entered.wait()
        assert await consumer.position(T0) == 5
        # What is committed now is all that is finished.
        await consumer.commit()
        assert cluster.groups.committed("g", "t") == 5
        gate.open.set()
        await cluster.wait_for(lambda: cluster.groups.committed("g", "t") == 10)
        await parallel.stop()
        await run


async def test_a_commit_that_waits_for_its_turn_does_not_outlive_the_membership(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 0, 10)
    consumer = await start(
        cluster, "t", group_id="g", enable_auto_commit=False, heartbeat_interval_ms=20
    )
    await read(consumer, 3)
    refusals = cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError))
    first = asyncio.create_task(consumer.commit({T0: 2}))
    await refusals.wait()
    second = asyncio.create_task(consumer.commit({T0: 3}))
    before = consumer.group_metadata().member_id
    cluster.groups.expire("g", before)

    def is_back() -> bool:
        try:
            return consumer.group_metadata().member_id not in (before, "") and bool(
                consumer.assignment()
            )
        except CommitFailedError:
            return False

    await cluster.wait_for(is_back)
    refusals.remove()
    for commit in (first, second):
        with pytest.raises(CommitFailedError):
            await commit
    assert cluster.groups.committed("g", "t") is None


async def test_commit_waits_for_a_join_that_takes_away_what_is_not_in_hand(
    start: Start,
) -> None:
    """A cooperative member reads on while it joins. Its commit was refused because of a partition
    of which it had nothing to commit, and what it had of the other one was not stored."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 1, 2)
        options: dict[str, Any] = {
            "group_id": "g",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 20,
            "partition_assignment_strategy": [CooperativeStickyAssignor],
        }
        first = await start(cluster, "t", client_id="first", **options)
        assert await read(first, 2) == [(1, 0), (1, 1)]
        await first.commit()
        fill(cluster, 0, 3)
        assert await read(first, 3) == [(0, 0), (0, 1), (0, 2)]
        committing = asyncio.Event()

        def hold(request: SyncGroupRequest, context: Any) -> Hold | None:
            return Hold(committing) if context.client_id == "first" else None

        syncs = cluster.intercept(SyncGroupRequest, hold)
        newcomer: Any = start(cluster, "t", client_id="second", **options)
        second = asyncio.create_task(newcomer)
        await cluster.wait_for(lambda: cluster.groups.state_of("g") == "CompletingRebalance")
        commit = asyncio.create_task(first.commit())
        asyncio.get_running_loop().call_soon(committing.set)
        await commit
        syncs.remove()
        assert cluster.groups.committed("g", "t", 0) == 3
        await second
        await cluster.wait_for(lambda: first.assignment() == {T0})


async def test_a_late_response_of_the_old_leader_while_the_logs_are_compared(
    cluster: FakeCluster, start: Start
) -> None:
    def other_leader() -> None:
        cluster.move_leader(T0, 1 - cluster.partition("t").leader)

    fill(cluster, 0, 4)
    other_leader()
    consumer = await start(cluster, assign=[T0], fetch_max_wait_ms=500)
    got = await read(consumer, 4)
    written, on_its_way, arrives, told = (asyncio.Event() for _ in range(4))

    async def slow_network(request: FetchRequest, context: Any) -> Any:
        await written.wait()
        response = _01_fetch.handle(context, request)
        if inspect.isawaitable(response):
            response = await response
        on_its_way.set()
        await arrives.wait()
        return response

    await cluster.intercept(FetchRequest, slow_network, times=1).wait()
    fill(cluster, 0, 2)
    written.set()
    await on_its_way.wait()
    look_ups = cluster.intercept(OffsetForLeaderEpochRequest, Hold(told))
    other_leader()
    await client_of(consumer).force_metadata_update()
    await look_ups.wait()
    arrives.set()
    got += await read(consumer, 2)
    told.set()
    fill(cluster, 0, 1)
    got += await read(consumer, 1)
    assert [offset for _, offset in got] == list(range(7))


@pytest.mark.real_time
async def test_a_long_record_set_does_not_hold_up_other_tasks(
    cluster: FakeCluster, start: Start
) -> None:
    """All of it is there at once, and the reader has no other reason to wait."""
    fill(cluster, 0, 2000, batch=2000)
    consumer = await start(cluster, assign=[T0])
    loop = asyncio.get_running_loop()
    turns = seen = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await consumer.getone()
    before, began_at = turns, loop.time()
    async for _record in consumer:
        seen += 1
        while loop.time() < began_at + seen * 0.0001:
            pass
        if seen == 1000:
            break
    counting.cancel()
    assert turns > before + 2
