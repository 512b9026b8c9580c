"""What a ParallelConsumer reads, and whose listener it calls: what holds when it starts."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, IllegalStateError
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.testing import Fail, FakeCluster
from tests.parallel.support import (
    Record,
    Runs,
    Seen,
    add_topics,
    committed,
    ends,
    fill,
    make_consumer,
    make_parallel,
    make_producer,
    until,
    written,
)


class Told(ConsumerRebalanceListener):
    """Remembers what it was assigned."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self.assigned |= assigned


async def fails(record: Record) -> None:
    raise ValueError("no good")


async def test_retry_topics_of_what_is_subscribed_to_later_are_read(cluster: FakeCluster) -> None:
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    cluster.log("t").append(b"bad", key=b"k")
    consumer = make_consumer(cluster)
    async with make_producer(cluster) as producer:
        parallel = ParallelConsumer(consumer, retry=RetryTopics(producer, [10]))
        consumer.subscribe(["t"])
        async with parallel:
            runs = Runs(parallel, fails)
            await until(lambda: written(cluster, "t-dead-letter"))
            await runs.stop()


async def test_the_topics_of_the_last_subscription_count(cluster: FakeCluster) -> None:
    await add_topics(cluster, "other", "other-retry-1")
    fill(cluster, 3)
    cluster.log("other").append(b"7", key=b"k")
    consumer = make_consumer(cluster, "t")
    seen = Seen()
    async with make_producer(cluster) as producer:
        parallel = ParallelConsumer(consumer, retry=RetryTopics(producer, [10]))
        consumer.subscribe(["other"])
        async with parallel:
            runs = Runs(parallel, seen)
            await until(lambda: committed(cluster, 1, "other") == [1])
            assert consumer.subscription() == {"other", "other-retry-1"}
            await runs.stop()
    assert seen.by_key == {b"k": [7]}


async def test_dead_letters_that_are_subscribed_to_later_are_refused_as_well(
    cluster: FakeCluster,
) -> None:
    consumer = make_consumer(cluster)
    async with make_producer(cluster) as producer:
        parallel = ParallelConsumer(consumer, retry=RetryTopics(producer, [10]))
        consumer.subscribe(["t", "t-dead-letter"])
        with pytest.raises(ValueError, match="'t-dead-letter' is the dead-letter topic of 't'"):
            await parallel.start()
        await parallel.stop()


async def test_a_listener_of_a_later_subscription_is_called(cluster: FakeCluster) -> None:
    fill(cluster, 8)
    consumer = make_consumer(cluster)
    parallel = ParallelConsumer(consumer, commit_interval_ms=20)
    told = Told()
    consumer.subscribe(["t"], listener=told)
    async with parallel:
        runs = Runs(parallel, Seen())
        await until(lambda: committed(cluster) == ends(cluster))
        assert told.assigned == {TopicPartition("t", number) for number in range(4)}
        await runs.stop()


async def test_topics_may_come_from_an_iterator(cluster: FakeCluster) -> None:
    fill(cluster, 4)
    seen = Seen()
    parallel = ParallelConsumer(make_consumer(cluster), topics=iter(["t"]))  # type: ignore[arg-type]
    async with parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 4)
        await runs.stop()


@pytest.mark.parametrize("how", ["subscribe", "assign"])
async def test_whoever_subscribes_meanwhile_is_told_that_it_is_too_late(
    cluster: FakeCluster, how: str
) -> None:
    """The listener that gives up partitions would not be called any more."""
    fill(cluster, 8)
    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, Seen())
        await until(lambda: committed(cluster) == ends(cluster))
        if how == "subscribe":
            parallel.consumer.subscribe(["t", "u"])
        else:
            parallel.consumer.unsubscribe()
            parallel.consumer.assign([TopicPartition("t", 0)])
        fill(cluster, 8)
        await until(runs.task.done)
        with pytest.raises(IllegalStateError, match="before it starts"):
            await runs.task


async def test_a_pattern_may_take_the_place_of_names(cluster: FakeCluster) -> None:
    """Dead letters that it matches are not read, whatever the consumer was subscribed to before."""
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    calls: list[str] = []

    async def handle(record: Record) -> None:
        calls.append(record.topic)
        raise LookupError

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [10])
        async with make_parallel(cluster, "t", pattern="^t", retry=retry) as parallel:
            runs = Runs(parallel, handle)
            cluster.log("t").append(b"x")
            await until(lambda: len(written(cluster, "t-dead-letter")) == 1)
            cluster.log("t").append(b"y")
            await until(lambda: len(written(cluster, "t-dead-letter")) == 2)
            await runs.stop()
    assert calls == ["t", "t-retry-1"] * 2


@pytest.mark.parametrize("is_pattern", [False, True])
async def test_a_start_that_found_no_broker_is_tried_again(
    cluster: FakeCluster, is_pattern: bool
) -> None:
    """As a consumer's: with the same subscription, and the application's listener."""
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    cluster.log("t").append(b"bad", key=b"k")
    told = Told()
    consumer = make_consumer(cluster)
    names: dict[str, Any] = {"pattern": "^t"} if is_pattern else {"topics": ["t"]}
    consumer.subscribe(**names, listener=told)
    async with make_producer(cluster) as producer:
        parallel = ParallelConsumer(consumer, retry=RetryTopics(producer, [10]))
        with cluster.intercept(FindCoordinatorRequest, Fail(GroupAuthorizationFailedError)):
            for _ in range(2):
                with pytest.raises(GroupAuthorizationFailedError):
                    await parallel.start()
        async with parallel:
            runs = Runs(parallel, fails)
            await until(lambda: written(cluster, "t-dead-letter"))
            await runs.stop()
    assert {tp.topic for tp in told.assigned} >= {"t", "t-retry-1"}
    assert consumer.subscription() == {"t", "t-retry-1", *(["t-dead-letter"] if is_pattern else [])}
