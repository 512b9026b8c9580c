"""A log is cut while records of it wait to be processed: an unclean election of a leader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka.parallel import RetryInfo, RetryTopics
from aiokafka.parallel.work import OffsetTracker, WorkQueue
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.parallel.support import Record, Runs, add_topics, make_parallel, make_producer, until

T0 = TopicPartition("t", 0)


def write(cluster: FakeCluster, text: bytes, first: int, end: int) -> None:
    for number in range(first, end):
        cluster.log("t").append(text + b"%d" % number, key=b"k%d" % (number % 3))


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("cut", [2, 6, 9])
async def test_what_is_left_of_the_log_is_processed(order: str, cut: int) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        write(cluster, b"old", 0, 10)
        parallel = make_parallel(
            cluster, consumer={"metadata_max_age_ms": 50}, order=order, concurrency=4
        )
        go = asyncio.Event()
        done: list[bytes] = []

        async def handle(record: Record) -> None:
            if record.value.startswith(b"old"):
                await go.wait()
            done.append(record.value)

        async with parallel:
            run = asyncio.ensure_future(parallel.run(handle))
            await until(lambda: parallel.unfinished == 10)
            cluster.log("t").truncate(cut)
            cluster.move_leader(T0, 1 - cluster.partition("t").leader)
            write(cluster, b"new", cut, 12)
            await until(lambda: parallel.consumer.highwater(T0) == 12)
            go.set()
            news = [b"new%d" % number for number in range(cut, 12)]
            await until(lambda: set(news) <= set(done) and not parallel.unfinished)
            # Once each, and those that were cut off at most because they were begun before.
            assert len(done) == len(set(done))
            assert {b"old%d" % number for number in range(cut)} <= set(done)
            if order == "partition":
                assert [value for value in done if value in news] == news
            await until(lambda: cluster.groups.committed("g", "t") == 12)
            assert parallel.unfinished_bytes == 0
            parallel.request_stop()
            await run


async def test_nothing_unfinished_is_committed_when_the_log_was_cut() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        write(cluster, b"old", 0, 10)
        parallel = make_parallel(
            cluster, consumer={"metadata_max_age_ms": 50}, order="none", concurrency=16
        )
        go = asyncio.Event()
        done: list[bytes] = []

        async def handle(record: Record) -> None:
            if record.offset == 3:
                await go.wait()
            done.append(record.value)

        async with parallel:
            run = asyncio.ensure_future(parallel.run(handle))
            await until(lambda: len(done) == 9)
            cluster.log("t").truncate(6)
            cluster.move_leader(T0, 1 - cluster.partition("t").leader)
            write(cluster, b"new", 6, 12)
            await until(lambda: len(done) == 15)
            assert cluster.groups.committed("g", "t") in (None, 3)
            parallel.request_stop()
            go.set()
            await run
        assert cluster.groups.committed("g", "t") == 12


def test_a_retry_topic_that_was_made_anew_keeps_its_delay() -> None:
    """Its records have offsets that others had long ago."""

    async def main(simulation: Simulation) -> None:
        handled: list[tuple[bytes, float]] = []

        async def handle(record: Record) -> None:
            handled.append((record.value, simulation.wall_time()))

        async with simulation.cluster(1) as cluster, make_producer(cluster) as producer:
            await add_topics(cluster, "t", "t-retry-1")
            retry = RetryTopics(producer, [5000])
            reading = {"metadata_max_age_ms": 50}
            async with make_parallel(cluster, consumer=reading, retry=retry) as parallel:
                runs = Runs(parallel, handle)
                for value in (b"old", b"new"):
                    due = simulation.wall_time() + 5
                    headers = RetryInfo("t", 0, 0, 0, 1, int(due * 1000), "E", "m").headers()
                    log = cluster.log("t-retry-1")
                    for _ in range(2 if value == b"old" else 1):
                        log.append(value, key=b"k", headers=headers)
                    await until(lambda value=value: value in dict(handled))
                    assert dict(handled)[value] > due - 0.001
                    await cluster.delete_topic("t-retry-1")
                    # The next look at the metadata makes it again.
                    await until(lambda: "t-retry-1" in cluster.state.topics)
                await runs.stop()

    simulate(main)


async def test_a_commit_that_was_on_its_way_when_the_log_was_cut_is_followed_by_another() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        write(cluster, b"old", 0, 10)
        parallel = make_parallel(
            cluster, consumer={"metadata_max_age_ms": 50}, order="none", concurrency=16
        )
        go = asyncio.Event()
        slow = cluster.intercept(OffsetCommitRequest, Hold(go))
        done: list[bytes] = []

        async def handle(record: Record) -> None:
            done.append(record.value)

        async with parallel:
            run = asyncio.ensure_future(parallel.run(handle))
            await until(lambda: len(done) == 10 and slow.hits)
            cluster.log("t").truncate(4)
            cluster.move_leader(T0, 1 - cluster.partition("t").leader)
            write(cluster, b"new", 4, 7)
            await until(lambda: len(done) == 13)
            slow.remove()
            go.set()
            await until(lambda: cluster.groups.committed("g", "t") == 7)
            parallel.request_stop()
            await run


@pytest.mark.parametrize("is_made_again", [False, True])
def test_what_was_finished_of_a_former_log_skips_nothing_of_this_one(is_made_again: bool) -> None:
    """The log is shorter, and nothing is written to it until the last commit."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            write(cluster, b"old", 0, 10)
            done: list[bytes] = []

            async def handle(record: Record) -> None:
                done.append(record.value)

            reading = {"metadata_max_age_ms": 50}
            parallel = make_parallel(cluster, consumer=reading, commit_interval_ms=60_000)
            async with parallel:
                runs = Runs(parallel, handle)
                await until(lambda: len(done) == 10)
                if is_made_again:
                    await cluster.delete_topic("t")
                    await cluster.create_topic("t", replication_factor=2)
                else:
                    cluster.log("t").truncate(4)
                    cluster.move_leader(T0, 1 - cluster.partition("t").leader)
                while await parallel.consumer.position(T0) == 10:
                    await asyncio.sleep(0.01)
                await runs.stop()
            write(cluster, b"new", cluster.log("t").end_offset, 14)
            async with make_parallel(cluster) as parallel:
                runs = Runs(parallel, handle)
                await until(lambda: cluster.groups.committed("g", "t") == 14)
                await runs.stop()
            assert {record.value for record in cluster.log("t").records()} <= set(done)

    simulate(main)


def test_a_tracker_forgets_what_was_cut() -> None:
    tracker = OffsetTracker()
    for offset in range(8):
        tracker.take(offset)
    for offset in (0, 2, 5, 7):
        tracker.finish(offset)
    tracker.truncate(5)
    assert (tracker.committable, tracker.position, tracker.span) == (1, 5, 4)
    tracker.take(5)
    for offset in (1, 3, 4):
        tracker.finish(offset)
    assert tracker.committable == 5
    tracker.truncate(2)
    assert (tracker.committable, tracker.position, tracker.span) == (2, 2, 0)


def records(*offsets: int) -> list[Any]:
    return [
        Record("t", 0, offset, 0, 0, b"k", b"v", None, 1, 1, ())  # type: ignore[misc]
        for offset in offsets
    ]


def test_a_work_that_was_cut_is_not_begun_again_and_counts_no_more() -> None:
    queue = WorkQueue(lambda record: record.key)
    queue.add(T0, records(0, 1, 2), 1000)
    first = queue.start_next()
    assert first is not None
    queue.add(T0, records(0, 1), 1000)
    assert not first.is_current
    assert queue.records == 3  # what runs, and what waits for its end
    assert queue.start_next() is None
    queue.release(first)
    assert queue.records == 2
    second = queue.start_next()
    assert second is not None
    assert (second.record.offset, second.is_current) == (0, True)
    queue.finish(second)
    third = queue.start_next()
    assert third is not None
    queue.finish(third)
    assert (queue.records, queue.nbytes, queue.running) == (0, 0, 0)
