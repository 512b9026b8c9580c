"""Positions that the consumer moves by itself: the log was cut, or the offset is not in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, Start, fill, partition_error, read
from tests.support.groups import until

OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "metadata_max_age_ms": 50,
    "auto_commit_interval_ms": 20,
}


def cut(cluster: FakeCluster, offset: int) -> None:
    """What an unclean election of a leader does."""
    cluster.log("t").truncate(offset)
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)


@pytest.mark.parametrize("how", ["retention", "cut ahead", "cut below"])
async def test_what_the_application_has_in_hand_stays_unfinished(start: Start, how: str) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 8, batch=2)
        consumer = await start(cluster, "t", **OPTIONS)
        assert len((await consumer.getmany(timeout_ms=5000, max_records=4))[T0]) == 4
        assert len((await consumer.getmany(timeout_ms=5000, max_records=4))[T0]) == 4
        # Now records 4 to 7 are in hand.
        if how == "retention":
            fill(cluster, 0, 32)
            cluster.log("t").delete_before(30)
            await until(cluster, lambda: consumer.lag(T0) == 10)
        else:
            if how == "cut ahead":
                fill(cluster, 0, 8, batch=2)
                await until(cluster, lambda: consumer.known_end_offsets()[T0] == 16)
            leader = cluster.partition("t").leader
            cut(cluster, 12 if how == "cut ahead" else 6)
            # The new leader is asked for records when the position was compared with its log.
            await until(cluster, lambda: last_fetched_from(cluster) != leader)
        moved = {"retention": 30, "cut ahead": 8, "cut below": 6}
        assert await consumer.position(T0) == moved[how]
        # By another task than the one that reads, so it says nothing of what that has in hand.
        await asyncio.create_task(consumer.stop())
        assert cluster.groups.committed("g", "t") == 4


def last_fetched_from(cluster: FakeCluster) -> int:
    return cluster.requests(FetchRequest)[-1].broker_id


async def test_the_next_call_finishes_it(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    consumer = await start(cluster, "t", **OPTIONS)
    await read(consumer, 8)
    fill(cluster, 0, 32)
    cluster.log("t").delete_before(30)
    await until(cluster, lambda: consumer.lag(T0) == 10)
    await consumer.getmany(timeout_ms=5000, max_records=1)
    await consumer.getmany(timeout_ms=5000, max_records=1)
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 31)


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_what_waits_to_be_read_outlives_its_log(
    cluster: FakeCluster, start: Start, policy: str
) -> None:
    """Retention overtakes a slow application, which has the next records in memory already."""
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    consumer = await start(cluster, assign=[T0], auto_offset_reset=policy)
    consumer.seek(T0, 0)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    fetches = cluster.count(FetchRequest)
    fill(cluster, 0, 32)
    cluster.log("t").delete_before(30)
    await until(cluster, lambda: cluster.count(FetchRequest) > fetches + 1)
    assert await read(consumer, 6) == [(0, offset) for offset in range(2, 8)]
    if policy == "earliest":
        assert await read(consumer, 1) == [(0, 30)]
        return
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await consumer.getone()
    assert caught.value.args == ({T0: 8},)


async def test_a_log_without_any_offset_costs_few_requests(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 2)
    script = cluster.intercept(FetchRequest, partition_error(OffsetOutOfRangeError))
    consumer = await start(cluster, "t", retry_backoff_ms=50)
    await asyncio.sleep(0.5)
    # From the second on there are back-offs of 50 ms and more; without them it is hundreds.
    assert 3 < script.hits < 20
    script.remove()
    assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_a_committed_offset_moves_no_partition_that_was_assigned_anew(
    cluster: FakeCluster, start: Start
) -> None:
    """What was sought is the position of an assignment that is over."""
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    await consumer.commit()
    goes_on = asyncio.Event()
    asked = cluster.intercept(OffsetFetchRequest, Hold(goes_on), times=1)
    seeking = asyncio.create_task(consumer.seek_to_committed(T0))
    await asked.wait()
    consumer.assign([])
    consumer.assign([T0])
    consumer.seek(T0, 5)
    assert await read(consumer, 2) == [(0, 5), (0, 6)]
    goes_on.set()
    assert await seeking == {T0: 1}
    assert await read(consumer, 3) == [(0, 7), (0, 8), (0, 9)]


async def test_behind_the_end_of_a_log_nothing_lags(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, assign=[T0], auto_offset_reset="none")
    consumer.seek(T0, 0)
    await read(consumer, 1)
    assert consumer.lag(T0) == 2
    consumer.seek(T0, 10)
    assert consumer.lag(T0) == 0
    assert consumer.health().lag == 0


@pytest.mark.parametrize("how", ["seek", "beginning"])
def test_a_seek_does_not_wait_for_the_pause_of_before(how: str) -> None:
    """What is asked for now is another thing than what has failed."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            async with AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="none",
                retry_backoff_ms=20_000,
                retry_backoff_max_ms=20_000,
            ) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 50)
                with pytest.raises(OffsetOutOfRangeError):
                    await consumer.getone()
                began = loop.time()
                if how == "seek":
                    consumer.seek(T0, 0)
                else:
                    assert await consumer.seek_to_beginning(T0)
                assert len(await read(consumer, 5)) == 5
                assert loop.time() - began < 5

    simulate(main)
