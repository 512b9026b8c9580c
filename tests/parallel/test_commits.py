"""What is committed, and commits that fail."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    UnknownTopicOrPartitionError,
)
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster
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


async def test_a_commit_that_is_too_late_is_not_the_end(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 20)
    refusals = cluster.intercept(OffsetCommitRequest, Fail(IllegalGenerationError), times=1)
    seen = Seen()
    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: refusals.hits)
        cluster.log("t").append(b"20")
        await until(lambda: committed(cluster) == ends(cluster))
        assert parallel.failure is None
        await runs.stop()
    assert len(set(seen.ended)) == 21
    assert "others may process these records again" in caplog.text


async def test_a_commit_that_takes_too_long_is_followed_by_another(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 20)
    refusals = cluster.intercept(OffsetCommitRequest, Fail(14))  # the coordinator loads
    seen = Seen()
    async with make_parallel(cluster, consumer={"default_api_timeout_ms": 200}) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: "will be tried again" in caplog.text)
        assert refusals.hits
        refusals.remove()
        await until(lambda: committed(cluster) == ends(cluster))
        assert parallel.failure is None
        await runs.stop()
    assert len(seen.ended) == 20


def test_commits_that_go_on_failing_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There was a line for each, some in a second; one that works makes the next failure news."""
    told = "Commit failed, will be tried again"

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if told in each.getMessage()]

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=4)
            fill(cluster, 20)
            options = {"default_api_timeout_ms": 200}
            async with make_parallel(cluster, consumer=options) as parallel:
                runs = Runs(parallel, Seen())
                with cluster.intercept(OffsetCommitRequest, Fail(14)):  # the coordinator loads
                    await asyncio.sleep(130)
                    assert len(lines()) == 3
                    assert "failures before it were not logged" not in lines()[0]
                    assert re.search(r"\([1-9]\d+ failures before it were not logged\)", lines()[2])
                await cluster.wait_for(lambda: committed(cluster) == ends(cluster))
                cluster.log("t").append(b"20")
                with cluster.intercept(OffsetCommitRequest, Fail(14)):
                    await asyncio.sleep(5)
                    assert len(lines()) == 4
                await runs.stop()

    simulate(main)


async def test_a_commit_that_is_refused_for_good_ends_it(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError))
    async with timeout(20):
        with pytest.raises(GroupAuthorizationFailedError):
            async with make_parallel(cluster) as parallel:
                await parallel.run(Seen())
    assert isinstance(parallel.failure, GroupAuthorizationFailedError)


async def test_the_last_commit_may_be_refused(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 20)
    seen = Seen()
    cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError))
    async with make_parallel(cluster, commit_interval_ms=60_000) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 20)
        async with timeout(10):
            await parallel.stop()
        await asyncio.wait([runs.task])
    assert committed(cluster) == [0, 0, 0, 0]


async def test_a_deleted_topic_keeps_nothing_of_the_others_from_being_committed(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("gone")
    cluster.log("gone").append(b"0")
    gate = asyncio.Event()
    seen = Seen()

    async def handle(record: Record) -> None:
        if record.topic == "gone":
            await gate.wait()
        else:
            await seen(record)

    async with make_parallel(cluster, "t", "gone") as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.running == 1)
        await cluster.delete_topic("gone")
        gate.set()
        fill(cluster, 20)
        await until(lambda: committed(cluster) == ends(cluster))
        fill(cluster, 20)
        await until(lambda: committed(cluster) == ends(cluster))
        assert parallel.failure is None
        async with timeout(10):
            await runs.stop()
    assert len(seen.ended) == 40
    # The group forgets what is gone: it is not tried again and again.
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([each for each in warnings if "ommit" in each.getMessage()]) <= 2


async def test_a_topic_that_is_unknown_for_a_moment_is_committed_later(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 20)
    cluster.intercept(OffsetCommitRequest, Fail(UnknownTopicOrPartitionError), times=1)
    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, Seen())
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()


# -- markers ---------------------------------------------------------------------------------------


async def write_in_transactions(cluster: FakeCluster, *ends_of: bool) -> None:
    """One record in each, to partition 0; False: the transaction is aborted."""
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="writer"
    ) as producer:
        for is_committed in ends_of:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"1", partition=0)
            if is_committed:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_markers_behind_the_last_record_leave_no_lag(
    cluster: FakeCluster, isolation: str
) -> None:
    await write_in_transactions(cluster, True, False, True, False)
    async with make_parallel(cluster, consumer={"isolation_level": isolation}) as parallel:
        runs = Runs(parallel, Seen())
        await until(lambda: committed(cluster)[0] == 8)
        await write_in_transactions(cluster, True)
        await until(lambda: committed(cluster)[0] == 10)
        await runs.stop()
    assert ends(cluster)[0] == 10


async def test_markers_are_not_passed_before_what_is_unfinished(cluster: FakeCluster) -> None:
    await write_in_transactions(cluster, True, True)
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.offset == 2:
            await gate.wait()

    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster)[0] == 2)
        gate.set()
        await until(lambda: committed(cluster)[0] == 4)
        await runs.stop()


async def test_records_that_wait_to_be_tried_again_are_not_passed(cluster: FakeCluster) -> None:
    """The second record of a retry topic is in hand, not due, when the first one is finished."""
    await cluster.create_topic("t-retry-1")
    log = cluster.log("t-retry-1")
    log.append(b"due", timestamp_ms=0)
    log.append(b"waits")
    seen: list[bytes] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        retry = RetryTopics(producer, [3_600_000])
        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster, 1, "t-retry-1") == [1])
            await until(lambda: parallel.waiting == 1)
            await runs.stop()
    assert seen == [b"due"]
    assert committed(cluster, 1, "t-retry-1") == [1]


@pytest.mark.parametrize("way", ["subscribe", "assign"])
async def test_a_restart_begins_with_the_first_unfinished_record(
    cluster: FakeCluster, way: str
) -> None:
    """The group has no committed offset, and `auto_offset_reset="latest"` would skip the record."""
    cluster.log("t").append(b"old")
    tried: list[bytes] = []

    async def handle(record: Record) -> None:
        tried.append(record.value)
        if len(tried) == 1:
            raise ZeroDivisionError

    def make() -> ParallelConsumer:
        consumer = make_consumer(cluster, auto_offset_reset="latest")
        if way == "assign":
            consumer.assign([TopicPartition("t", number) for number in range(4)])
        else:
            consumer.subscribe(["t"])
        return ParallelConsumer(consumer)

    async with make() as parallel:
        cluster.log("t").append(b"1")
        with pytest.raises(ZeroDivisionError):
            await parallel.run(handle)
    assert committed(cluster, 1) == [1]
    cluster.log("t").append(b"2")
    async with make() as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: len(tried) == 3)
        await runs.stop()
    assert tried == [b"1", b"1", b"2"]


async def test_partitions_without_records_are_committed(cluster: FakeCluster) -> None:
    """Records that are written while the group has no member are not skipped."""
    cluster.log("t", 1).append(b"old")
    tried: list[bytes] = []

    def handle(record: Record) -> None:
        tried.append(record.value)

    options = {"consumer": {"auto_offset_reset": "latest"}}
    async with make_parallel(cluster, **options) as parallel:
        await until(lambda: cluster.groups.committed("g", "t", 1) == 1)
        # One commit is enough.
        count = len(list(cluster.requests(OffsetCommitRequest)))
        await asyncio.sleep(0.1)
        assert len(list(cluster.requests(OffsetCommitRequest))) <= count + 1
        await Runs(parallel, handle).stop()
    cluster.log("t", 1).append(b"while stopped")
    async with make_parallel(cluster, **options) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: tried == [b"while stopped"])
        await runs.stop()


async def test_the_next_owner_begins_with_the_first_unfinished_record(
    cluster: FakeCluster,
) -> None:
    begun: list[bytes] = []
    ended: list[bytes] = []

    async def handle_slowly(record: Record) -> None:
        begun.append(record.value)
        await asyncio.sleep(100)

    def handle(record: Record) -> None:
        ended.append(record.value)

    options = {"consumer": {"auto_offset_reset": "latest"}, "drain_timeout_ms": 50}
    async with make_parallel(cluster, **options) as first:
        slow = Runs(first, handle_slowly)
        for number in range(4):
            cluster.log("t", number).append(b"%d" % number)
        await until(lambda: len(begun) == 4)
        async with make_parallel(cluster, **options) as second:
            runs = Runs(second, handle)
            await until(lambda: len(second.consumer.assignment()) == 2)
            moved = {b"%d" % tp.partition for tp in second.consumer.assignment()}
            await until(lambda: set(ended) == moved)
            await runs.stop()
        await slow.cancel()
