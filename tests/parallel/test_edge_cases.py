"""What seldom happens, and must neither lose, double nor reorder: too much at once, commits of
partitions that are lost, keys and copies that fail outside of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka._compat import timeout
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError
from aiokafka.parallel import RetryTopics
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster
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
    written,
)


async def test_several_partitions_that_are_too_much_at_once(cluster: FakeCluster) -> None:
    """The first one fills the memory: the others are read again, from their first record on."""
    size = 50_000
    for number in range(4):
        cluster.log("t", number).extend([(None, bytes(size), ())] * 4)
    seen: list[tuple[int, int]] = []
    most = 0

    async def handle(record: Record) -> None:
        nonlocal most
        most = max(most, parallel.unfinished_bytes)
        seen.append((record.partition, record.offset))

    async with make_parallel(cluster, concurrency=1, max_bytes=3 * size) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert most < 4 * size
    for number in range(4):
        offsets = [offset for partition, offset in seen if partition == number]
        assert offsets == [0, 1, 2, 3]


async def test_nothing_is_committed_of_partitions_that_are_lost(cluster: FakeCluster) -> None:
    """Not even while the application's listener takes its time over the loss."""
    fill(cluster, 40)
    is_told, gate = asyncio.Event(), asyncio.Event()
    commits = 0

    class Slow(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            pass

        def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
            pass

        async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
            is_told.set()
            await gate.wait()

    def count(request: Any, context: Any) -> None:
        nonlocal commits
        commits += is_told.is_set() and not gate.is_set()

    seen = Seen()
    async with make_parallel(cluster, listener=Slow(), commit_interval_ms=100) as parallel:
        cluster.intercept(OffsetCommitRequest, count)
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        fill(cluster, 40)
        await until(lambda: len(seen.ended) >= 80)  # and not committed yet
        cluster.groups.expire("g", parallel.consumer.group_metadata().member_id)
        await is_told.wait()
        await asyncio.sleep(0.3)  # three times the interval between commits
        assert commits == 0
        gate.set()
        await until(lambda: committed(cluster) == ends(cluster))
        assert parallel.failure is None
        await runs.stop()


async def test_a_key_that_cannot_be_had_ends_the_iteration(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(None, b"good", ()), (None, b"bad", ()), (None, b"good", ())])

    def key(record: Record) -> bytes:
        if record.value == b"bad":
            raise LookupError("no key")
        return b"k"

    async with timeout(10):
        async with make_parallel(cluster, key=key, concurrency=1) as parallel:
            with pytest.raises(LookupError, match="no key"):
                async for work in parallel:
                    async with work as record:
                        assert record.value == b"good"
    assert isinstance(parallel.failure, LookupError)
    assert committed(cluster)[0] == 1


async def test_a_work_whose_copy_cannot_be_sent(cluster: FakeCluster) -> None:
    """What keeps it from being sent is raised in place of what the block raised."""
    await add_topics(cluster)
    cluster.log("t").append(bytes(300))
    async with make_producer(cluster, max_request_size=200) as producer:
        retry = RetryTopics(producer, [3_600_000], dead_letter_topic=None)
        with pytest.raises(MessageSizeTooLargeError) as failure:
            async with make_parallel(cluster, retry=retry) as parallel:
                async for work in parallel:
                    async with work:
                        raise LookupError("the cause")
    assert isinstance(failure.value.__cause__, LookupError)
    assert committed(cluster)[0] == 0


async def test_a_dead_letter_that_is_refused_for_another_reason_is_not_cut() -> None:
    """The record does not fit into its retry topic, and the topic of dead letters must not be
    written to at the moment: that is no reason to send it there without its value."""
    refused = 0

    def refuse(request: Any, context: Any) -> Fail | None:
        nonlocal refused
        if refused or all(topic.name != "t-dead-letter" for topic in request.topic_data):
            return None
        refused += 1
        return Fail(TopicAuthorizationFailedError)

    async def handle(record: Record) -> None:
        raise LookupError("no luck")

    # Its requests have the names of topics.
    async with FakeCluster(as_version="3.9") as cluster:
        await add_topics(cluster, "t", "t-dead-letter")
        await cluster.create_topic("t-retry-1", config={"max.message.bytes": 1000})
        cluster.log("t").append(bytes(2000), key=b"k")
        cluster.intercept(ProduceRequest, refuse)
        async with make_producer(cluster) as producer, timeout(20):
            retry = RetryTopics(producer, [3_600_000])
            with pytest.raises(TopicAuthorizationFailedError):
                async with make_parallel(cluster, retry=retry) as parallel:
                    await parallel.run(handle)
        assert refused == 1
        assert written(cluster, "t-dead-letter") == []
        assert committed(cluster, 1) == [0]


async def test_a_partition_that_the_application_resumes_stays_in_order(
    cluster: FakeCluster,
) -> None:
    """It is paused while its first record is not due; what comes then waits behind that."""
    await add_topics(cluster, "t-retry-1")
    log, place = cluster.log("t-retry-1"), TopicPartition("t-retry-1", 0)
    seen: list[bytes] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [400])
        async with make_parallel(cluster, retry=retry) as parallel:
            log.append(b"first")
            runs = Runs(parallel, handle)
            await until(lambda: parallel.waiting == 1)
            assert place in parallel.consumer.paused()
            log.append(b"second", timestamp_ms=0)  # due at once
            parallel.consumer.resume(place)
            await until(lambda: parallel.waiting == 2)
            assert seen == []
            await until(lambda: committed(cluster, 1, "t-retry-1") == [2])
            await runs.stop()
    assert seen == [b"first", b"second"]


async def test_a_record_without_key_may_outlive_its_partition(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its handler ignores that it is cancelled, and ends when the partition was given up."""
    cluster.log("t").append(b"x")
    gate = asyncio.Event()
    calls = 0

    async def handle(record: Record) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    pass

    async with make_parallel(cluster, drain_timeout_ms=20) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: calls == 1)
        cluster.groups.rebalance("g")
        await until(lambda: committed(cluster)[0] == 1)  # the second call
        assert "Cancelling handlers that run for longer" in caplog.text
        gate.set()
        await until(lambda: parallel.running == 0)
        assert (calls, parallel.failure) == (2, None)
        await runs.stop()


async def test_what_is_finished_is_committed_though_the_listener_fails(
    cluster: FakeCluster,
) -> None:
    class Bad(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
            if revoked:
                raise LookupError("no state to close")

        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            pass

    fill(cluster, 40)
    seen = Seen()
    async with make_parallel(cluster, listener=Bad(), commit_interval_ms=60_000) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 40)
        async with make_parallel(cluster):
            with pytest.raises(LookupError, match="no state to close"):
                await runs.task
            assert committed(cluster) == ends(cluster)


async def test_delays_may_come_from_an_iterator(cluster: FakeCluster) -> None:
    async with make_producer(cluster) as producer:
        delays: Any = map(int, ["10", "20"])
        assert RetryTopics(producer, delays).topics_for("t") == ["t-retry-1", "t-retry-2"]


async def test_an_exception_whose_text_cannot_be_had_is_a_failure_like_any_other(
    cluster: FakeCluster,
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("text")

    async def handle(record: Record) -> None:
        raise Mute

    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    cluster.log("t").append(b"x", key=b"k")
    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [10])
        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: written(cluster, "t-dead-letter"))
            await runs.stop()
    headers = dict(written(cluster, "t-dead-letter")[0].headers)
    assert headers["retry.message"] == b"no text: its __str__ raised KeyError"
