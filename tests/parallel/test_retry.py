"""Records that fail: retry topics, delays, and the dead-letter topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka import AIOKafkaProducer, RejectRecord
from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError, MessageSizeTooLargeError
from aiokafka.parallel import ParallelConsumer, RetryInfo, RetryTopics
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster, Hold
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

DELAYS = [60, 120]


async def test_the_way_of_a_record_that_always_fails(
    cluster: FakeCluster, wall_time: Callable[[], float]
) -> None:
    await add_topics(cluster)
    log = cluster.log("t", 2)
    log.append(b"good", key=b"k")
    log.append(b"bad", key=b"k", timestamp_ms=12345, headers=(("trace", b"1"),))
    log.append(b"good", key=b"k")
    tries: list[tuple[str, float]] = []

    async def handle(record: Record) -> None:
        if record.value == b"bad":
            tries.append((record.topic, wall_time()))
            raise LookupError(f"try {len(tries)}")

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, DELAYS)
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            assert consumer.subscription() == {"t", "t-retry-1", "t-retry-2"}
            runs = Runs(parallel, handle)
            await until(lambda: written(cluster, "t-dead-letter"))
            await until(lambda: committed(cluster, 1, "t-retry-2") == [1])
            assert committed(cluster) == [0, 0, 3, 0]
            assert committed(cluster, 1, "t-retry-1") == [1]
            await runs.stop()
    assert [topic for topic, _ in tries] == ["t", "t-retry-1", "t-retry-2"]
    # Sent after the failure, so never early. (Dates are in milliseconds.)
    times = [at for _, at in tries]
    assert times[1] - times[0] >= 0.059
    assert times[2] - times[1] >= 0.119
    (dead,) = written(cluster, "t-dead-letter")
    assert (dead.key, dead.value) == (b"k", b"bad")
    assert dict(dead.headers) == {
        "trace": b"1",
        "retry.topic": b"t",
        "retry.partition": b"2",
        "retry.offset": b"1",
        "retry.timestamp": b"12345",
        "retry.attempts": b"3",
        "retry.due": b"-1",
        "retry.exception": b"builtins.LookupError",
        "retry.message": b"try 3",
    }


async def test_success_at_the_second_try(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    for number in range(40):
        cluster.log("t").append(b"%d" % number, key=b"%d" % (number % 5))
    tried: set[bytes] = set()
    done: list[bytes] = []

    async def handle(record: Record) -> None:
        if int(record.value) % 3 == 0 and record.value not in tried:
            tried.add(record.value)
            raise LookupError
        done.append(record.value)

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, DELAYS)
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: len(done) == 40)
            await until(lambda: committed(cluster, 1, "t-retry-1") == [14])
            await runs.stop()
    assert sorted(map(int, done)) == list(range(40))
    assert not written(cluster, "t-retry-2")


async def test_waiting_neither_blocks_others_nor_ends_membership(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad")
    seen: list[bytes] = []

    async def handle(record: Record) -> None:
        seen.append(record.value)
        if record.value == b"bad":
            raise LookupError

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [3_600_000])
        consumer = make_consumer(cluster, "t", max_poll_interval_ms=300)
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: written(cluster, "t-retry-1"))
            members = set(cluster.groups.classic["g"].members)
            await asyncio.sleep(1)  # more than three times what a member may go without a call
            cluster.log("t").append(b"good")
            await until(lambda: committed(cluster)[0] == 2)
            assert set(cluster.groups.classic["g"].members) == members
            await runs.stop()
    assert seen == [b"bad", b"good"]
    assert committed(cluster, 1, "t-retry-1") == [0]


async def test_what_is_not_to_be_retried(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    errors: list[Exception] = [KeyError("a"), IndexError("b"), ValueError("c"), RejectRecord("d")]
    for number in range(4):
        cluster.log("t").append(b"%d" % number)

    async def handle(record: Record) -> None:
        raise errors[int(record.value)]

    async with make_producer(cluster) as producer:
        retry = RetryTopics(
            producer, [3_600_000], retry_on=[LookupError, RejectRecord], never_retry=[IndexError]
        )
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster)[0] == 4)
            await runs.stop()
    assert [record.value for record in written(cluster, "t-retry-1")] == [b"0"]
    dead = sorted(record.value for record in written(cluster, "t-dead-letter"))
    assert dead == [b"1", b"2", b"3"]


async def test_nothing_is_committed_before_the_copy_is_acknowledged(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad")
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        raise LookupError

    async with make_producer(cluster) as producer:
        held = cluster.intercept(ProduceRequest, Hold(gate))
        retry = RetryTopics(producer, [3_600_000])
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=5) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: held.hits)
            await asyncio.sleep(0.05)
            assert committed(cluster)[0] == 0
            gate.set()
            await until(lambda: committed(cluster)[0] == 1)
            await runs.stop()


async def test_without_a_dead_letter_topic_the_last_error_ends_it(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad")
    topics = []

    async def handle(record: Record) -> None:
        topics.append(record.topic)
        raise LookupError("for ever")

    async with make_producer(cluster) as producer:
        # Long enough for the response to the copy: without it, the first record is not finished.
        retry = RetryTopics(producer, [1000], dead_letter_topic=None)
        consumer = make_consumer(cluster, "t")
        with pytest.raises(LookupError, match="for ever"):
            async with ParallelConsumer(consumer, retry=retry) as parallel:
                await parallel.run(handle)
    assert topics == ["t", "t-retry-1"]
    assert committed(cluster)[0] == 1
    assert committed(cluster, 1, "t-retry-1") == [0]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"acks": 0, "enable_idempotence": False}, IllegalStateError),
        ({"max_request_size": 200}, MessageSizeTooLargeError),
    ],
)
async def test_a_copy_that_cannot_be_sent_ends_it(
    cluster: FakeCluster, options: dict[str, Any], error: type[Exception]
) -> None:
    await add_topics(cluster)
    cluster.log("t").append(bytes(300))

    async def handle(record: Record) -> None:
        raise LookupError("the cause")

    async with make_producer(cluster, **options) as producer:
        retry = RetryTopics(producer, [3_600_000])
        consumer = make_consumer(cluster, "t")
        with pytest.raises(error) as failure:
            async with ParallelConsumer(consumer, retry=retry) as parallel:
                await parallel.run(handle)
    assert isinstance(failure.value.__cause__, LookupError)
    assert committed(cluster)[0] == 0


async def test_works_of_ones_own_are_retried_too(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad")
    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [20])
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry) as parallel:
            async for work in parallel:
                async with work as record:
                    if record.topic == "t":
                        raise LookupError
                    parallel.request_stop()
    assert committed(cluster)[0] == 1
    assert committed(cluster, 1, "t-retry-1") == [1]


async def test_serializers_turn_back_what_deserializers_made(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad", key=b"key")

    async def handle(record: Record) -> None:
        assert (record.key, record.value) == ("key", "bad")
        raise LookupError

    async with make_producer(
        cluster, key_serializer=str.encode, value_serializer=str.encode
    ) as producer:
        retry = RetryTopics(producer, [3_600_000])
        consumer = make_consumer(
            cluster, "t", key_deserializer=bytes.decode, value_deserializer=bytes.decode
        )
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster)[0] == 1)
            await runs.stop()
    (copy,) = written(cluster, "t-retry-1")
    assert (copy.key, copy.value) == (b"key", b"bad")


# -- names and headers -----------------------------------------------------------------------------


@pytest.fixture
async def producer(cluster: FakeCluster) -> Any:
    async with make_producer(cluster) as started:
        yield started


async def test_names(producer: AIOKafkaProducer) -> None:
    retry = RetryTopics(
        producer, [1, 2], retry_topic="retry.{n}.of.{topic}", dead_letter_topic="dead"
    )
    assert retry.topics_for("a.b") == ["retry.1.of.a.b", "retry.2.of.a.b"]
    assert retry.dead_letter_topic_for("a.b") == "dead"
    assert retry.origin_of("retry.2.of.a.b") == ("a.b", 2)
    for other in ("a.b", "retry.3.of.a.b", "retry.0.of.a", "xretry.1.of.a", "retry.1.of."):
        assert retry.origin_of(other) == (other, 0)
        assert not retry.is_retry_topic(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delays_ms": [-1]}, "delays_ms=-1: must be an integer of at least 0"),
        ({"delays_ms": ["5"]}, "delays_ms='5': must be an integer"),
        ({"delays_ms": 5}, "delays_ms: must be several numbers of milliseconds, not int"),
        ({"delays_ms": [1], "producer": None}, "producer: must be an AIOKafkaProducer"),
        ({"delays_ms": [1], "retry_topic": None}, "retry_topic: must be a str"),
        ({"delays_ms": [1], "dead_letter_topic": 3}, "dead_letter_topic: must be a str"),
        ({"delays_ms": [1], "retry_on": ValueError}, "retry_on: must be several classes"),
        ({"delays_ms": [], "retry_topic": "{n}"}, "retry_topic='{n}'"),
        ({"delays_ms": [1], "retry_topic": "{topic}"}, "retry_topic"),
        ({"delays_ms": [1], "retry_topic": "{topic}-{n}-{group}"}, "retry_topic"),
        ({"delays_ms": [1], "dead_letter_topic": "{n}"}, "dead_letter_topic"),
        ({"delays_ms": [1], "dead_letter_topic": ""}, "dead_letter_topic"),
        ({"delays_ms": [1], "dead_letter_topic": "{topic}"}, "another topic than those"),
        ({"delays_ms": [1], "dead_letter_topic": "{topic}-retry-1"}, "another topic than those"),
        ({"delays_ms": [1], "retry_topic": "{topic}{n}" + "x" * 250}, "too long"),
        ({"delays_ms": [1], "retry_on": ["LookupError"]}, "retry_on"),
        ({"delays_ms": [1], "never_retry": [asyncio.CancelledError]}, "never_retry"),
        ({"delays_ms": [1], "max_message_bytes": -1}, "max_message_bytes=-1"),
    ],
)
async def test_wrong_arguments(
    producer: AIOKafkaProducer, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        RetryTopics(**{"producer": producer, **options})


async def test_wrong_arguments_of_calls(producer: AIOKafkaProducer) -> None:
    retry: Any = RetryTopics(producer, [1])
    record = record_in("t")
    for call in (
        retry.topics_for,
        retry.dead_letter_topic_for,
        retry.origin_of,
        retry.is_retry_topic,
        retry.is_dead_letter_topic,
        retry.delay_for,
    ):
        for wrong in (None, b"t", ["t"]):
            with pytest.raises(TypeError, match=r"^topic: must be a str, not "):
                call(wrong)
    with pytest.raises(TypeError, match=r"^topics: must be several names, not one str"):
        retry.with_retry_topics("t")
    with pytest.raises(TypeError, match=r"^record: must be a ConsumerRecord, not NoneType"):
        retry.due_in(None)
    with pytest.raises(TypeError, match=r"^record: must be a ConsumerRecord, not str"):
        await retry.send("t", ValueError())
    with pytest.raises(TypeError, match=r"^record: must be a ConsumerRecord, not str"):
        await retry.send_back("t")
    with pytest.raises(TypeError, match=r"^error: must be a BaseException, not 'x'"):
        await retry.send(record, "x")


async def test_the_message_is_cut(cluster: FakeCluster, producer: AIOKafkaProducer) -> None:
    await add_topics(cluster, "t-retry-1")
    retry = RetryTopics(producer, [5], max_message_bytes=10)
    assert await retry.send(record_in("t"), LookupError("äöü" * 100))
    (copy,) = written(cluster, "t-retry-1")
    assert dict(copy.headers)["retry.message"].decode() == "äöüäö"


@pytest.mark.parametrize(
    ("headers", "timestamp", "least", "most"),
    [
        ([], 0, -1e12, 0),
        ([], 2**62, 5, 5),
        ([("retry.due", b"9" * 18)], 2**62, 5, 5),
        ([("retry.due", b"9" * 5000)], 0, -1e12, 0),
        ([("retry.due", None), ("retry.topic", b"\xff")], 0, -1e12, 0),
    ],
)
async def test_headers_of_others_hold_up_nothing(
    producer: AIOKafkaProducer, headers: Any, timestamp: int, least: float, most: float
) -> None:
    retry = RetryTopics(producer, [5000])
    info = RetryInfo("t", 1, 2, 3, 1, 4, "E", "m")
    own = {**dict(info.headers()), **dict(headers)} if headers else {}
    seconds = retry.due_in(record_in("t-retry-1", own.items(), timestamp))
    assert least <= seconds <= most
    assert retry.due_in(record_in("t", own.items(), timestamp)) == 0


@settings(max_examples=25, deadline=None)
@given(st.builds(RetryInfo, *[st.text()] + [st.integers(-(2**63), 2**63)] * 5 + [st.text()] * 2))
def test_headers_tell_all(info: RetryInfo) -> None:
    assert RetryInfo.of(record_in("t", [("other", None), *info.headers()])) == info


@given(st.lists(st.tuples(st.text(), st.none() | st.binary())))
def test_any_headers_can_be_looked_at(headers: list[tuple[str, bytes | None]]) -> None:
    named = [(f"retry.{name}", value) for name, value in headers]
    assert RetryInfo.of(record_in("t", named)) is None


async def test_a_seen_retry_is_in_order_of_due(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    for number in range(30):
        cluster.log("t").append(b"%d" % number, key=b"%d" % number)
    order: list[int] = []
    failing = Seen(lambda record: int(record.value) / 300)

    async def handle(record: Record) -> None:
        if record.topic == "t":
            await failing(record)
            raise LookupError
        order.append(int(record.value))

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [200])
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(
            consumer, retry=retry, concurrency=30, commit_interval_ms=20
        ) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster, 1, "t-retry-1") == [30])
            await runs.stop()
    assert order == [int(record.value) for record in written(cluster, "t-retry-1")]


@pytest.mark.parametrize("way", ["subscribe", "assign"])
async def test_copies_of_an_earlier_run_are_not_skipped(cluster: FakeCluster, way: str) -> None:
    """A run that has not committed in the retry topic has left a copy there."""
    await add_topics(cluster)
    cluster.log("t").append(b"old")
    for value in (b"deleted", b"copy"):
        cluster.log("t-retry-1").append(value)
    cluster.log("t-retry-1").delete_before(1)
    tried: list[bytes] = []

    async def handle(record: Record) -> None:
        tried.append(record.value)

    async def run(end: int) -> None:
        """Process the retry topic up to this offset."""
        topics = ["t"] if way == "subscribe" else []
        consumer = make_consumer(cluster, *topics, auto_offset_reset="latest")
        if way == "assign":
            consumer.assign([TopicPartition("t", 0), TopicPartition("t-retry-1", 0)])
        async with ParallelConsumer(consumer, retry=retry, commit_interval_ms=20) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: committed(cluster, 1, "t-retry-1") == [end])
            await runs.stop()

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [1])
        await run(2)
        assert tried == [b"copy"]
        # From now on, the group continues at the committed offset.
        cluster.log("t-retry-1").append(b"next")
        await run(3)
        assert tried == [b"copy", b"next"]


async def test_copies_after_deleted_ones_are_not_skipped(cluster: FakeCluster) -> None:
    """Retention has deleted the record at the committed offset, and not those after it."""
    await add_topics(cluster)
    log = cluster.log("t-retry-1")
    tried: list[bytes] = []

    def handle(record: Record) -> None:
        tried.append(record.value)

    async with make_producer(cluster) as producer:
        for values in ([b"1"], [b"deleted", b"2", b"3"]):
            for value in values:
                log.append(value)
            if b"deleted" in values:
                log.delete_before(2)
            parallel = make_parallel(
                cluster,
                "t",
                consumer={"auto_offset_reset": "latest"},
                retry=RetryTopics(producer, [1]),
            )
            async with parallel:
                runs = Runs(parallel, handle)
                await until(lambda: committed(cluster, 1, "t-retry-1") == [log.end_offset])
                await runs.stop()
    assert tried == [b"1", b"2", b"3"]


async def test_dead_letter_topics_of_a_pattern_are_not_committed(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    async with make_producer(cluster) as producer:
        consumer = make_consumer(cluster)
        retry = RetryTopics(producer, [1])
        async with ParallelConsumer(
            consumer, pattern="t.*", retry=retry, commit_interval_ms=20
        ) as parallel:
            runs = Runs(parallel, lambda record: None)
            await until(lambda: cluster.groups.committed("g", "t-retry-1", 0) == 0)
            await runs.stop()
    assert cluster.groups.committed("g", "t-dead-letter", 0) is None


async def test_a_retry_topic_without_a_leader_holds_back_no_other() -> None:
    tried: list[bytes] = []

    async def handle(record: Record) -> None:
        tried.append(record.value)

    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t", assignment={0: [0]})
        await cluster.create_topic("t-retry-1", assignment={0: [1]})
        cluster.move_coordinator("group", "g", 0)
        cluster.log("t").append(b"record")
        cluster.log("t-retry-1").append(b"copy")
        await cluster.stop_broker(1)
        async with make_producer(cluster) as producer:
            retry = RetryTopics(producer, [1])
            consumer = make_consumer(cluster, "t")
            parallel = ParallelConsumer(consumer, retry=retry)
            async with timeout(15):
                await parallel.start()
            runs = Runs(parallel, handle)
            await until(lambda: tried == [b"record"])
            await cluster.start_broker(1)
            await until(lambda: tried == [b"record", b"copy"])
            await runs.stop()
