"""Retry topics where something is wrong: clocks, sizes, names, and what is read beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition, _clock
from aiokafka.errors import InvalidRecord, KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.parallel import ParallelConsumer, RetryInfo, RetryTopics
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.structs import SubscriptionPattern
from aiokafka.testing import Delay, Fail, FakeCluster, Silence
from tests.parallel.support import (
    Record,
    Runs,
    Seen,
    add_topics,
    committed,
    make_consumer,
    make_parallel,
    make_producer,
    record_in,
    until,
    written,
)


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[AIOKafkaProducer]:
    async with make_producer(cluster) as started:
        yield started


async def fails(record: Record) -> None:
    raise LookupError("no luck")


# -- clocks ----------------------------------------------------------------------------------------


def headers_due(due: float) -> list[tuple[str, bytes]]:
    info = RetryInfo("t", 0, 0, 0, 1, int(due * 1000), "E", "m")
    return [(name, value or b"") for name, value in info.headers()]


async def test_a_clock_that_is_wrong_holds_up_nothing_for_long(
    cluster: FakeCluster, producer: AIOKafkaProducer, wall_time: Callable[[], float]
) -> None:
    """Copies of a host whose clock is an hour ahead: each waits for the delay at most, from when it
    was seen, and those behind it do not wait for each other."""
    await add_topics(cluster, "t-retry-1")
    log = cluster.log("t-retry-1")
    wrong = wall_time() + 3600
    for number in range(40):
        log.append(b"%d" % number, headers=headers_due(wrong), timestamp_ms=int(wrong * 1000))
    seen: list[int] = []

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    # In hand are so few that it takes many turns.
    retry = RetryTopics(producer, [500])
    began_at = wall_time()
    async with make_parallel(cluster, retry=retry, max_records=4) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster, 1, "t-retry-1") == [40])
        took = wall_time() - began_at
        await runs.stop()
    assert seen == list(range(40))
    assert 0.45 < took < 5


async def test_a_clock_that_is_put_back_holds_up_nothing_for_long(
    cluster: FakeCluster,
    producer: AIOKafkaProducer,
    wall_time: Callable[[], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await add_topics(cluster, "t-retry-1")
    cluster.log("t").append(b"x")
    seen: list[str] = []

    async def handle(record: Record) -> None:
        seen.append(record.topic)
        if record.topic == "t":
            raise LookupError

    retry = RetryTopics(producer, [500])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.waiting == 1)
        monkeypatch.setattr(_clock, "wall_time", lambda: wall_time() - 3600)
        await until(lambda: seen == ["t", "t-retry-1"], 5)
        await runs.stop()


# -- what is read, and how often -------------------------------------------------------------------


async def test_what_is_not_due_is_fetched_once(
    cluster: FakeCluster, producer: AIOKafkaProducer, wall_time: Callable[[], float]
) -> None:
    """A long queue that becomes due bit by bit."""
    await add_topics(cluster, "t-retry-1")
    log = cluster.log("t-retry-1")
    began_at = wall_time()
    for number in range(300):
        due = began_at + 0.3 + number / 200
        log.append(bytes(1000), headers=headers_due(due), timestamp_ms=int(began_at * 1000))
    topic_id = cluster.state.topics["t-retry-1"].topic_id
    fetched = 0

    def count(request: Any, context: Any) -> None:
        nonlocal fetched
        for topic in request.topics:
            for partition in topic.partitions:
                if topic.topic_id == topic_id:
                    fetched += log.end_offset - min(partition.fetch_offset, log.end_offset)

    cluster.intercept(FetchRequest, count)
    seen: list[tuple[int, float]] = []

    async def handle(record: Record) -> None:
        seen.append((record.offset, wall_time()))

    retry = RetryTopics(producer, [3_600_000])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster, 1, "t-retry-1") == [300], 20)
        await runs.stop()
    assert [offset for offset, _ in seen] == list(range(300))
    # Dates are in milliseconds.
    early = [(n, at - began_at) for n, at in seen if at < began_at + 0.3 + n / 200 - 0.01]
    assert not early
    assert fetched < 3 * 300


@pytest.mark.real_time
async def test_what_waits_in_hand_is_bounded(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await cluster.create_topic("t-retry-1", partitions=4)
    for number in range(4):
        cluster.log("t-retry-1", number).extend([(b"k", bytes(1000), ())] * 100)
    cluster.log("t").append(b"x")
    seen = Seen()
    retry = RetryTopics(producer, [1000])
    async with make_parallel(cluster, retry=retry, max_bytes=40_000) as parallel:
        runs = Runs(parallel, lambda record: None)
        await until(lambda: parallel.waiting > 20)
        most = 0
        while sum(committed(cluster, 4, "t-retry-1")) < 400:
            most = max(most, parallel.waiting)
            await asyncio.sleep(0)
        await runs.stop()
    assert not seen.ended
    assert most <= 40
    assert parallel.waiting == 0


async def test_a_record_that_is_due_waits_for_the_delayed_ones_before_it(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    """Also if the application resumes the partition, which is paused while records are delayed."""
    await add_topics(cluster, "t-retry-1")
    retry_partition = TopicPartition("t-retry-1", 0)
    log = cluster.log("t-retry-1")
    log.append(b"first", headers=headers_due(time.time() + 3600))
    seen: list[int] = []

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    retry = RetryTopics(producer, [1000])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.waiting == 1)
        log.append(b"second", headers=headers_due(time.time() - 3600))
        parallel.consumer.resume(retry_partition)
        await until(lambda: committed(cluster, 1, "t-retry-1") == [2])
        await runs.stop()
    assert seen == [0, 1]


async def test_what_waits_is_given_up_with_its_partition(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster, "t-retry-1")
    log = cluster.log("t-retry-1")
    log.extend([(b"k", b"%d" % n, ()) for n in range(10)])
    seen: list[int] = []

    async def handle(record: Record) -> None:
        seen.append(record.offset)

    retry = RetryTopics(producer, [1500])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.waiting == 10)
        cluster.groups.rebalance("g")
        await until(lambda: parallel.waiting == 0)
        await until(lambda: committed(cluster, 1, "t-retry-1") == [10])
        await runs.stop()
    assert seen == list(range(10))


# -- copies that do not fit ------------------------------------------------------------------------


async def test_a_copy_that_fits_without_its_message_loses_that(
    cluster: FakeCluster,
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(bytes(2000))
    async with make_producer(cluster, max_request_size=3000) as producer:
        retry = RetryTopics(producer, [3_600_000])

        async def handle(record: Record) -> None:
            raise LookupError("x" * 1000)

        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster)[0] == 1)
            await runs.stop()
    (copy,) = written(cluster, "t-retry-1")
    info = RetryInfo.of(copy)
    assert info is not None
    assert (info.message, info.attempts, len(copy.value)) == ("", 1, 2000)
    assert not written(cluster, "t-dead-letter")


@pytest.mark.parametrize(
    ("key", "headers", "omitted"),
    [
        (b"k", (("trace", b"1"),), "value"),
        (b"k", (("trace", bytes(3000)),), "value, headers"),
        (bytes(3000), (("trace", b"1"),), "key, value, headers"),
    ],
)
async def test_a_copy_that_does_not_fit_becomes_a_dead_letter_without_it(
    cluster: FakeCluster, key: bytes, headers: Any, omitted: str
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"good")
    cluster.log("t").append(bytes(2000), key=key, headers=headers)
    cluster.log("t").append(b"good")

    async def handle(record: Record) -> None:
        if record.value != b"good":
            raise LookupError("no luck")

    async with make_producer(cluster, max_request_size=1500) as producer:
        retry = RetryTopics(producer, [3_600_000])
        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster)[0] == 3)
            await runs.stop()
    (dead,) = written(cluster, "t-dead-letter")
    assert dead.value is None
    info = RetryInfo.of(dead)
    assert info is not None
    assert (info.topic, info.partition, info.offset, info.due) == ("t", 0, 1, -1)
    assert (info.exception, info.message) == ("builtins.LookupError", "no luck")
    assert info.omitted == omitted
    assert ("trace", b"1") in dead.headers or "headers" in omitted


async def test_a_dead_letter_that_fits_and_is_not_written_in_time_keeps_its_headers(
    cluster: FakeCluster,
) -> None:
    """The processing ends with what went wrong; the next attempt writes it whole."""
    await cluster.create_topic("t-dead-letter", config={"max.message.bytes": 1000})
    cluster.log("t").append(bytes(2000), key=b"k", headers=(("trace", b"1"),))
    tries = 0

    def answer(request: Any, context: Any) -> Any:
        nonlocal tries
        tries += 1
        return Silence() if tries == 3 else None  # two are too large, with the value

    cluster.intercept(ProduceRequest, answer)
    in_time = {"request_timeout_ms": 300, "delivery_timeout_ms": 300}
    async with make_producer(cluster, **in_time) as producer:
        retry = RetryTopics(producer, [])
        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, fails)
            await until(runs.task.done)
            with pytest.raises(KafkaTimeoutError, match="t-dead-letter"):
                await runs.task
        assert not written(cluster, "t-dead-letter")
        async with make_parallel(cluster, retry=retry) as parallel:
            runs = Runs(parallel, fails)
            await until(lambda: committed(cluster)[0] == 1)
            await runs.stop()
    (dead,) = written(cluster, "t-dead-letter")
    assert (dead.key, dict(dead.headers)["trace"]) == (b"k", b"1")


async def test_a_retry_topic_with_a_smaller_limit_is_passed_over(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster, "t-dead-letter")
    await cluster.create_topic("t-retry-1", config={"max.message.bytes": 1000})
    cluster.log("t").append(bytes(2000), key=b"k")
    retry = RetryTopics(producer, [3_600_000])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, fails)
        await until(lambda: committed(cluster)[0] == 1)
        await runs.stop()
    (dead,) = written(cluster, "t-dead-letter")
    info = RetryInfo.of(dead)
    assert info is not None
    assert (len(dead.value), info.due, info.omitted) == (2000, -1, "")


async def test_a_compacted_retry_topic_does_not_hold_up_records_without_key(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    """And those that were refused only because they were in the same batch are tried again."""
    await add_topics(cluster, "t-dead-letter")
    await cluster.create_topic("t-retry-1", config={"cleanup.policy": "compact"})
    keys = [b"a", None, b"b", b"c", None, b"d"]
    cluster.log("t").extend([(key, b"%d" % n, ()) for n, key in enumerate(keys)])
    # So that the first copies share batches.
    cluster.intercept(ProduceRequest, Delay(0.05), times=2)
    retry = RetryTopics(producer, [3_600_000])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, fails)
        await until(lambda: committed(cluster)[0] == 6)
        await runs.stop()
    assert sorted(copy.key for copy in written(cluster, "t-retry-1")) == [b"a", b"b", b"c", b"d"]
    assert sorted(copy.value for copy in written(cluster, "t-dead-letter")) == [b"1", b"4"]


async def test_records_without_key_and_value_are_retried(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(None, headers=(("trace", b"1"),))
    tries: list[tuple[str, Any, Any]] = []

    async def handle(record: Record) -> None:
        tries.append((record.topic, record.key, record.value))
        raise LookupError

    retry = RetryTopics(producer, [1, 1])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: written(cluster, "t-dead-letter"))
        await runs.stop()
    assert tries == [(topic, None, None) for topic in ("t", "t-retry-1", "t-retry-2")]
    (dead,) = written(cluster, "t-dead-letter")
    assert (dead.key, dead.value, dead.headers[0]) == (None, None, ("trace", b"1"))


async def later(value: bytes | None) -> bytes | None:
    return value


def with_context(value: bytes | None, ctx: Any) -> bytes | None:
    assert ctx.topic.startswith("t-")
    return value


@pytest.mark.parametrize("serializer", [later, with_context])
async def test_copies_that_are_alone_in_their_batch_are_serialized(
    cluster: FakeCluster, serializer: Any
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(None, headers=(("trace", b"1"),))
    cluster.log("t").append(bytes(2000))

    async def handle(record: Record) -> None:
        raise LookupError

    options = {"max_request_size": 1500, "value_serializer": serializer}
    async with make_producer(cluster, **options) as producer:
        async with make_parallel(cluster, retry=RetryTopics(producer, [1])) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: len(written(cluster, "t-dead-letter")) == 2)
            await runs.stop()
    assert sorted(
        str(RetryInfo.of(dead).omitted) for dead in written(cluster, "t-dead-letter")
    ) == [
        "",
        "value",
    ]


async def test_what_cannot_be_written_anywhere_ends_it(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"x")
    cluster.intercept(ProduceRequest, Fail(InvalidRecord))
    retry = RetryTopics(producer, [3_600_000])
    with pytest.raises(InvalidRecord) as failure:
        async with make_parallel(cluster, retry=retry) as parallel:
            await parallel.run(fails)
    assert isinstance(failure.value.__cause__, LookupError)
    assert committed(cluster)[0] == 0


async def test_without_dead_letters_what_does_not_fit_ends_it(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(bytes(2000))
    async with make_producer(cluster, max_request_size=1500) as producer:
        retry = RetryTopics(producer, [3_600_000], dead_letter_topic=None)
        with pytest.raises(MessageSizeTooLargeError) as failure:
            async with make_parallel(cluster, retry=retry) as parallel:
                await parallel.run(fails)
    assert isinstance(failure.value.__cause__, LookupError)
    assert committed(cluster)[0] == 0


# -- headers of one's own --------------------------------------------------------------------------


async def test_headers_of_ones_own_are_kept(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    """Whatever their names are, at every attempt."""
    await add_topics(cluster)
    own = [("retry.policy", b"x"), ("retry.topic", b"mine"), ("retry.", b""), ("a", b"1")]
    cluster.log("t").append(b"x", headers=own)
    retry = RetryTopics(producer, [1, 1])
    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, fails)
        await until(lambda: written(cluster, "t-dead-letter"))
        await runs.stop()
    (dead,) = written(cluster, "t-dead-letter")
    assert list(dead.headers[:4]) == own
    assert len(dead.headers) == 4 + 8
    info = RetryInfo.of(dead)
    assert info is not None
    assert (info.topic, info.attempts) == ("t", 3)


async def test_a_dead_letter_keeps_its_history_in_a_second_pipeline(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster, "t-dead-letter", "t-dead-letter-dead-letter")
    first = RetryTopics(producer, [])
    assert await first.send(record_in("t"), LookupError("first"))
    async with make_parallel(cluster, "t-dead-letter", retry=first) as parallel:
        runs = Runs(parallel, fails)
        await until(lambda: written(cluster, "t-dead-letter-dead-letter"))
        await runs.stop()
    (dead,) = written(cluster, "t-dead-letter-dead-letter")
    topics = [value for name, value in dead.headers if name == "retry.topic"]
    assert topics == [b"t", b"t-dead-letter"]


# -- what is subscribed to -------------------------------------------------------------------------


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_pattern_that_matches_dead_letters_is_no_loop(
    cluster: FakeCluster,
    producer: AIOKafkaProducer,
    is_given: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    cluster.log("t-dead-letter").append(b"old")
    consumer = make_consumer(cluster)
    options: dict[str, Any] = {"pattern": "^t.*"} if is_given else {}
    if not is_given:
        consumer.subscribe(pattern="^t.*")
    retry = RetryTopics(producer, [10])
    calls: list[str] = []

    async def handle(record: Record) -> None:
        calls.append(record.topic)
        raise LookupError

    async with ParallelConsumer(
        consumer, retry=retry, commit_interval_ms=20, **options
    ) as parallel:
        cluster.log("t").append(b"x")
        runs = Runs(parallel, handle)
        await until(lambda: len(written(cluster, "t-dead-letter")) == 2)
        # Others of its topics are still read.
        cluster.log("t").append(b"y")
        await until(lambda: len(written(cluster, "t-dead-letter")) == 3)
        await runs.stop()
    assert calls == ["t", "t-retry-1"] * 2
    assert committed(cluster, 1, "t-dead-letter") == [0]
    assert len([name for name in cluster.state.topics if name.startswith("t")]) == 3
    assert "'t-dead-letter' is not read" in caplog.text


async def test_dead_letters_that_a_broker_matches_are_not_read(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    consumer = make_consumer(cluster, group_protocol="consumer")
    consumer.subscribe(pattern=SubscriptionPattern("^t.*"))
    retry = RetryTopics(producer, [10])
    async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
        cluster.log("t").append(b"x")
        runs = Runs(parallel, fails)
        await until(lambda: len(written(cluster, "t-dead-letter")) == 1)
        cluster.log("t").append(b"y")
        await until(lambda: len(written(cluster, "t-dead-letter")) == 2)
        await runs.stop()
    assert len([name for name in cluster.state.topics if name.startswith("t")]) == 3


@pytest.mark.parametrize("is_given", [True, False])
async def test_dead_letters_and_where_they_come_from_cannot_be_read_together(
    cluster: FakeCluster, producer: AIOKafkaProducer, is_given: bool
) -> None:
    names = ["t", "t-dead-letter"]
    consumer = make_consumer(cluster, *([] if is_given else names))
    with pytest.raises(ValueError, match="'t-dead-letter' is the dead-letter topic of 't'"):
        ParallelConsumer(
            consumer, topics=names if is_given else None, retry=RetryTopics(producer, [1])
        )
    same = RetryTopics(producer, [1], dead_letter_topic="dead")
    with pytest.raises(ValueError, match="'dead' is the dead-letter topic of 'dead'"):
        ParallelConsumer(consumer, topics=["dead"], retry=same)
    await consumer.stop()


async def test_partitions_chosen_by_hand_need_those_of_the_retry_topics(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    await add_topics(cluster, "t-retry-1", "t-dead-letter")
    retry = RetryTopics(producer, [10])
    consumer = make_consumer(cluster)
    consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(ValueError, match=r"'t-retry-1'.*assign"):
        ParallelConsumer(consumer, retry=retry)
    consumer.assign([TopicPartition("t", 0), TopicPartition("t-retry-1", 0)])
    cluster.log("t").append(b"x")
    async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
        runs = Runs(parallel, fails)
        await until(lambda: written(cluster, "t-dead-letter"))
        await until(lambda: committed(cluster, 1, "t-retry-1") == [1])
        await runs.stop()


async def test_partitions_chosen_later_are_looked_at_as_well(
    cluster: FakeCluster, producer: AIOKafkaProducer
) -> None:
    consumer = make_consumer(cluster)
    parallel = ParallelConsumer(consumer, retry=RetryTopics(producer, [10]))
    consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(ValueError, match=r"'t-retry-1'.*assign"):
        await parallel.start()
    await parallel.stop()
