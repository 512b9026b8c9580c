"""Ends that cross each other, and how long they may take."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.group_members import JoinGroupRequest, LeaveGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Delay, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.parallel.support import (
    Record,
    Runs,
    Seen,
    committed,
    ends,
    fill,
    make_consumer,
    make_parallel,
    until,
)


async def test_two_at_once_end_together(cluster: FakeCluster) -> None:
    """As when a signal handler stops it while `async with` is left."""
    fill(cluster, 20)
    loop = asyncio.get_running_loop()
    cluster.intercept(OffsetCommitRequest, Delay(0.02))
    seen = Seen()
    async with make_parallel(cluster, commit_interval_ms=60_000) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 20)
        stops = [loop.create_task(parallel.stop()) for _ in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*stops)
    await runs.task
    assert committed(cluster) == ends(cluster)
    assert cluster.count(LeaveGroupRequest) == 1
    assert cluster.groups.state_of("g") == "Empty"


@pytest.mark.parametrize("turns", [0, 1, 3, 8, 20, 50])
async def test_one_goes_on_when_another_is_cancelled(cluster: FakeCluster, turns: int) -> None:
    fill(cluster, 20)
    loop = asyncio.get_running_loop()
    seen = Seen(lambda record: 0.002)
    parallel = make_parallel(cluster)
    await parallel.start()
    runs = Runs(parallel, seen)
    await until(lambda: seen.ended)
    first = loop.create_task(parallel.stop())
    await asyncio.sleep(0)
    second = loop.create_task(parallel.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    async with timeout(10):
        await second
    await runs.task
    assert sum(committed(cluster)) == len(seen.ended)
    assert cluster.groups.state_of("g") == "Empty"
    assert repr(parallel).startswith("<ParallelConsumer stopped")


async def test_again_when_it_was_cancelled_behind_a_commit_that_failed(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 1)
    silent = cluster.intercept(OffsetCommitRequest, Silence())
    seen = Seen()
    parallel = make_parallel(cluster, commit_interval_ms=60_000, drain_timeout_ms=50)
    await parallel.start()
    runs = Runs(parallel, seen)
    await until(lambda: seen.ended)
    leaving = cluster.intercept(LeaveGroupRequest, Silence())
    first = asyncio.get_running_loop().create_task(parallel.stop())
    await until(lambda: leaving.hits)
    assert silent.hits
    first.cancel()
    await asyncio.wait([first])
    leaving.remove()
    async with timeout(20):
        await parallel.stop()
    await runs.task
    assert repr(parallel).startswith("<ParallelConsumer stopped")


async def test_during_start(cluster: FakeCluster) -> None:
    loop = asyncio.get_running_loop()
    joining = cluster.intercept(JoinGroupRequest, Delay(0.3))
    parallel = make_parallel(cluster)
    starting = loop.create_task(parallel.start())
    await until(lambda: joining.hits)
    async with timeout(10):
        await parallel.stop()
        with pytest.raises((ConsumerStoppedError, IllegalStateError)):
            await starting
    assert cluster.connections == 0 or await _closed(cluster)


async def _closed(cluster: FakeCluster) -> bool:
    await until(lambda: cluster.connections == 0)
    return True


async def test_a_request_before_the_start_counts(cluster: FakeCluster) -> None:
    """As of a signal that comes while the program still waits for something else."""
    fill(cluster, 8)
    seen = Seen()
    parallel = make_parallel(cluster)
    parallel.request_stop()
    async with timeout(10), parallel:
        await parallel.run(seen)
        assert [work async for work in parallel] == []
    assert not seen.begun
    assert committed(cluster) == [0] * 4


async def test_partitions_chosen_by_hand_end_before_the_start_as_well(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 8)
    consumer = make_consumer(cluster)
    consumer.assign([TopicPartition("t", 0)])
    parallel = ParallelConsumer(consumer)
    parallel.request_stop()
    seen = Seen()
    async with timeout(10), parallel:
        await parallel.run(seen)
    assert not seen.begun


async def test_nothing_runs_when_it_was_stopped_before_the_start(cluster: FakeCluster) -> None:
    parallel = make_parallel(cluster)
    await parallel.stop()
    async with timeout(10):
        await parallel.run(Seen())


async def test_a_listener_cannot_stop(cluster: FakeCluster) -> None:
    class Stops(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            await parallel.stop()

    parallel = make_parallel(cluster, listener=Stops())
    async with timeout(10):
        async with parallel:
            with pytest.raises(IllegalStateError, match=r"request_stop\(\)"):
                await parallel.run(Seen())


def test_brokers_that_are_silent_do_not_hold_it_up() -> None:
    """The handlers, and the commit, have as long as the options say, and the consumer its own."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t", partitions=4)
            fill(cluster, 10)
            loop = asyncio.get_running_loop()
            begun = asyncio.Event()

            async def handle(record: Record) -> None:
                if record.offset:
                    begun.set()
                    await asyncio.Event().wait()

            options: dict[str, Any] = {"drain_timeout_ms": 100, "commit_interval_ms": 60_000}
            async with make_parallel(cluster, **options) as parallel:
                runs = Runs(parallel, handle)
                await begun.wait()
                commits = cluster.intercept(OffsetCommitRequest, Silence())
                began_at = loop.time()
                await runs.stop()
                took = loop.time() - began_at
            assert commits.hits
            # 0.1 s for the handlers, as long for the commit.
            assert took < 5

    simulate(main)
