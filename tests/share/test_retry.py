"""process(retry=): records of a share group that fail go to retry topics, and then to a dead-letter
topic."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import (
    AIOKafkaProducer,
    AIOKafkaShareConsumer,
    RejectRecord,
    ShareRecord,
    TopicPartition,
)
from aiokafka.errors import (
    IllegalStateError,
    InvalidRecord,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from aiokafka.parallel import RetryInfo, RetryTopics
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.support.share import Start, fill, is_empty, offsets, take, without_renewals

LOCK = 10.0
DELAYS = [3 * LOCK * 1000, 6 * LOCK * 1000]
TOPICS = ("t-retry-1", "t-retry-2", "t-dead-letter")

Record = ShareRecord[Any, Any]
Make = Callable[..., RetryTopics[Any, Any]]


@pytest.fixture(autouse=True)
async def topics(cluster: FakeCluster, wall_time: Callable[[], float]) -> None:
    for topic in TOPICS:
        await cluster.create_topic(topic, assignment={0: [0, 1]})


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def retry(producer: AIOKafkaProducer) -> RetryTopics[Any, Any]:
    return RetryTopics(producer, [int(delay) for delay in DELAYS])


class Processing:
    """`process()` of a started consumer, in a task."""

    def __init__(self, consumer: AIOKafkaShareConsumer[Any, Any], handler: Any, **o: Any) -> None:
        self.consumer = consumer
        self.task = asyncio.ensure_future(consumer.process(handler, **o))

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the consumer; raise what `process()` raised."""
        await self.consumer.stop(timeout)
        await self.task


def written(cluster: FakeCluster, topic: str) -> list[Any]:
    return list(cluster.log(topic).records())


def events(cluster: FakeCluster, kind: str, topic: str = "t") -> list[int]:
    """Return the offsets of a topic to which this happened, each as often as it did."""
    return sorted(
        offset
        for event in cluster.groups.share_events("g")
        if event.kind == kind and event.topic == topic
        for offset in range(event.first, event.last + 1)
    )


async def fail(_: Record) -> None:
    raise LookupError("always")


async def test_a_record_that_always_fails_becomes_a_dead_letter(
    cluster: FakeCluster,
    start: Start,
    retry: RetryTopics[Any, Any],
    wall_time: Callable[[], float],
) -> None:
    cluster.log("t").append(b"good", key=b"k")
    cluster.log("t").append(b"bad", key=b"k", timestamp_ms=12345, headers=(("trace", b"1"),))
    tries: list[tuple[str, int, float]] = []

    async def handle(record: Record) -> None:
        if record.value == b"bad":
            tries.append((record.topic, record.delivery_count, wall_time()))
            raise LookupError(f"try {len(tries)}")

    consumer = await start()
    running = Processing(consumer, handle, retry=retry)
    await cluster.wait_for(lambda: written(cluster, "t-dead-letter"), timeout_s=120)
    assert consumer.subscription() == {"t", "t-retry-1", "t-retry-2"}
    await running.stop()
    # The locks were renewed while the record waited.
    assert [(topic, count) for topic, count, _ in tries] == [
        ("t", 1),
        ("t-retry-1", 1),
        ("t-retry-2", 1),
    ]
    times = [at for _, _, at in tries]
    for before, after, delay in zip(times, times[1:], DELAYS, strict=False):
        assert delay / 1000 - 0.001 <= after - before < delay / 1000 + 1
    (dead,) = written(cluster, "t-dead-letter")
    assert (dead.key, dead.value) == (b"k", b"bad")
    assert dict(dead.headers) == {
        "trace": b"1",
        "retry.topic": b"t",
        "retry.partition": b"0",
        "retry.offset": b"1",
        "retry.timestamp": b"12345",
        "retry.attempts": b"3",
        "retry.due": b"-1",
        "retry.exception": b"builtins.LookupError",
        "retry.message": b"try 3",
    }
    assert events(cluster, "accepted") == [0, 1]
    assert events(cluster, "accepted", "t-retry-1") == events(cluster, "accepted", "t-retry-2")
    assert await is_empty(await start("t", *TOPICS[:2]), 2 * LOCK * 1000)


async def test_waiting_records_take_no_handler(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    """Although ten times as many records wait as handlers may run."""
    fill(cluster, 20)
    done: Counter[bytes] = Counter()

    async def handle(record: Record) -> None:
        if record.topic == "t" and int(record.value) < 20:
            raise LookupError
        done[record.value] += 1

    consumer = await start()
    running = Processing(consumer, handle, concurrency=2, retry=retry)
    await cluster.wait_for(lambda: len(written(cluster, "t-retry-1")) == 20)
    await asyncio.sleep(2 * LOCK)
    fill(cluster, 10, first=20)
    await cluster.wait_for(lambda: len(done) == 10)
    await cluster.wait_for(lambda: len(done) == 30, timeout_s=60)
    await running.stop()
    assert set(done.values()) == {1}
    assert events(cluster, "acquired", "t-retry-1") == list(range(20))


async def test_a_member_holds_the_waiting_records_of_one_fetch(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    fill(cluster, 100)
    consumer = await start(share_acquire_mode="record_limit")
    running = Processing(consumer, fail, concurrency=5, retry=retry)
    await cluster.wait_for(lambda: len(written(cluster, "t-retry-1")) == 100)
    await asyncio.sleep(LOCK)
    acquired = events(cluster, "acquired", "t-retry-1")
    assert acquired == list(range(len(acquired)))
    assert 0 < len(acquired) <= 10
    await running.stop()


async def test_a_partition_is_fetched_again_when_all_its_waiting_records_are_due(
    cluster: FakeCluster,
    start: Start,
    retry: RetryTopics[Any, Any],
    wall_time: Callable[[], float],
) -> None:
    """Although records that are due earlier are behind one that is due later."""
    log = cluster.log("t-retry-1")
    due = [20, 5, 10]
    now = wall_time()
    for seconds in due:
        info = RetryInfo("t", 0, 0, 0, 1, int((now + seconds) * 1000), "", "")
        log.append(b"%d" % seconds, headers=tuple(info.headers()))
    done: list[tuple[int, int]] = []

    async def handle(record: Record) -> None:
        done.append((int(record.value), round(wall_time() - now)))

    running = Processing(await start("t-retry-1"), handle, retry=retry)
    await cluster.wait_for(lambda: events(cluster, "acquired", "t-retry-1") == [0, 1, 2])
    log.append(b"0", timestamp_ms=0)
    await cluster.wait_for(lambda: len(done) == 4, timeout_s=60)
    await running.stop()
    assert done == [(5, 5), (10, 10), (20, 20), (0, 20)]


async def test_a_copy_is_acknowledged_before_its_record_is_accepted(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    fill(cluster, 1)
    running = Processing(await start(), fail, retry=retry)
    may_answer = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(may_answer)):
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
        await asyncio.sleep(2 * LOCK)
        assert events(cluster, "accepted") == []
        may_answer.set()
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0])
    assert events(cluster, "acquired") == [0]
    await running.stop()


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_handler_that_is_cancelled_releases_its_record(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any], is_stopped: bool
) -> None:
    fill(cluster, 1)
    is_running = asyncio.Event()

    async def hang(_: Record) -> None:
        is_running.set()
        await asyncio.sleep(1000)

    running = Processing(await start(), hang, retry=retry)
    await is_running.wait()
    if is_stopped:
        await running.stop(timeout=1)
    else:
        running.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.task
    assert written(cluster, "t-retry-1") == []
    (again,) = await take(await start(), 1, seconds=5)
    assert again.delivery_count == 2


async def test_a_send_that_is_cancelled_releases_its_record(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    fill(cluster, 1)
    running = Processing(await start(), fail, retry=retry)
    may_answer = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(may_answer)):
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
        await running.stop(timeout=1)
        may_answer.set()
    # The copy was sent, and the record is delivered again: there will be two copies.
    (again,) = await take(await start(), 1, seconds=5)
    assert (again.offset, again.delivery_count) == (0, 2)
    await cluster.wait_for(lambda: len(written(cluster, "t-retry-1")) == 1)


async def test_a_copy_that_cannot_be_sent_ends_the_processing(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    fill(cluster, 3)
    cancelled: list[int] = []
    begun: set[int] = set()

    async def handle(record: Record) -> None:
        begun.add(record.offset)
        if record.offset == 1:
            await cluster.wait_for(lambda: len(begun) == 3)
            raise LookupError
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError))
    consumer = await start()
    running = Processing(consumer, handle, retry=retry)
    with pytest.raises(TopicAuthorizationFailedError) as raised:
        await running.task
    assert isinstance(raised.value.__cause__, TopicAuthorizationFailedError)
    assert isinstance(raised.value.__cause__.__cause__, LookupError)
    assert sorted(cancelled) == [0, 2]
    again = await take(consumer, 3, seconds=5)
    assert sorted(offsets(again)) == [0, 1, 2]


async def test_the_topics_of_exceptions_that_are_not_retried(
    cluster: FakeCluster, start: Start, producer: AIOKafkaProducer
) -> None:
    errors = [ValueError("a"), KeyError("b"), RejectRecord("c"), OSError("d")]
    fill(cluster, 4)

    async def handle(record: Record) -> None:
        raise errors[int(record.value)]

    retry = RetryTopics(
        producer, [60_000], retry_on=[ValueError, LookupError, RejectRecord], never_retry=[KeyError]
    )
    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0, 1, 2, 3])
    await running.stop()
    assert [record.value for record in written(cluster, "t-retry-1")] == [b"0"]
    dead = {record.value: RetryInfo.of(record) for record in written(cluster, "t-dead-letter")}
    assert sorted(dead) == [b"1", b"2", b"3"]
    assert {info.attempts for info in dead.values() if info} == {1}
    assert (retry.sent["t"].retried, retry.sent["t"].dead) == (1, 3)


async def test_without_a_dead_letter_topic_records_are_released_or_rejected(
    cluster: FakeCluster,
    start: Start,
    producer: AIOKafkaProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(cluster, 2)
    calls: Counter[int] = Counter()

    async def handle(record: Record) -> None:
        calls[record.offset] += 1
        raise RejectRecord if record.offset else LookupError("always")

    retry = RetryTopics(producer, [], dead_letter_topic=None)
    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(lambda: calls == {0: 5, 1: 1}, timeout_s=60)
    await running.stop()
    assert events(cluster, "rejected") == [1]
    assert events(cluster, "released") == [0] * 5
    assert "the handler failed for offset 0 of topic t, partition 0, delivery 5" in caplog.text


async def test_a_handler_that_awaits_what_was_cancelled_has_failed(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    async def handle(record: Record) -> None:
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        await cancelled

    fill(cluster, 1)
    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0])
    await running.stop()
    (copy,) = written(cluster, "t-retry-1")
    assert dict(copy.headers)["retry.exception"] == b"builtins.RuntimeError"


async def test_members_that_stop_use_up_no_deliveries_of_a_waiting_record(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    """More members have a waiting record than it may be delivered. All copies are due when the
    first one is."""
    cluster.log("t").append(None, key=b"k", headers=(("trace", b"1"),))
    done: list[tuple[Any, ...]] = []

    async def handle(record: Record) -> None:
        if record.topic == "t":
            raise LookupError
        done.append((record.key, record.value, record.delivery_count, RetryInfo.of(record)))

    for number in range(7):
        running = Processing(await start(), handle, retry=retry)
        await cluster.wait_for(
            lambda: len(events(cluster, "acquired", "t-retry-1")) > number  # noqa: B023
        )
        await asyncio.sleep(0.5)
        await running.stop()
    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(lambda: bool(done), timeout_s=60)
    await running.stop()
    copies = [RetryInfo.of(record) for record in written(cluster, "t-retry-1")]
    assert len(copies) >= 3
    assert set(copies) == {copies[0]}
    assert {record.timestamp for record in written(cluster, "t-retry-1")} == {
        written(cluster, "t-retry-1")[0].timestamp
    }
    assert [(key, value, info) for key, value, _, info in done] == [(b"k", None, copies[0])]
    assert written(cluster, "t-dead-letter") == []


async def lose_connections(cluster: FakeCluster) -> None:
    for _ in range(7):
        cluster.drop_connections(0)
        await asyncio.sleep(LOCK / 3)


async def move_leaders(cluster: FakeCluster) -> None:
    for number in range(8):
        cluster.move_leader(TopicPartition("t-retry-1", 0), 1 - number % 2)
        await asyncio.sleep(LOCK / 4)


@pytest.mark.parametrize("disturb", [lose_connections, move_leaders])
async def test_waiting_records_are_processed_once_although_they_are_delivered_again(
    cluster: FakeCluster,
    start: Start,
    retry: RetryTopics[Any, Any],
    disturb: Callable[[FakeCluster], Awaitable[None]],
) -> None:
    fill(cluster, 3)
    calls: Counter[tuple[str, bytes]] = Counter()

    async def handle(record: Record) -> None:
        calls[record.topic, record.value] += 1
        if record.topic == "t":
            raise LookupError

    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(lambda: events(cluster, "acquired", "t-retry-1") == [0, 1, 2])
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0, 1, 2])
    await disturb(cluster)
    await cluster.wait_for(lambda: len(calls) == 6, timeout_s=90)
    await asyncio.sleep(2 * LOCK)
    await running.stop()
    assert set(calls.values()) == {1}


async def test_brokers_without_renewals_deliver_a_waiting_record_again(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    """Its lock expires, but the delivery limit does not archive it, with two members, either."""

    without_renewals(cluster)
    fill(cluster, 4)
    calls: Counter[tuple[str, bytes]] = Counter()

    async def handle(record: Record) -> None:
        calls[record.topic, record.value] += 1
        if record.topic != "t-retry-2":
            raise LookupError

    running = [Processing(await start(), handle, retry=retry) for _ in range(2)]
    await cluster.wait_for(
        lambda: sum(topic == "t-retry-2" for topic, _ in calls) == 4, timeout_s=300
    )
    for one in running:
        await one.stop()
    assert {value for topic, value in calls if topic == "t-retry-2"} == {b"0", b"1", b"2", b"3"}
    assert written(cluster, "t-dead-letter") == []


async def test_a_lock_that_expires_while_the_copy_is_sent_leads_to_two_copies(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    cluster.state.other_configs[32, "g"]["share.renew.acknowledge.enable"] = "false"
    fill(cluster, 1)
    running = Processing(await start(), fail, retry=retry)
    may_answer = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(may_answer), times=1):
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
        await asyncio.sleep(LOCK + 1)
        may_answer.set()
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0])
    await running.stop()
    assert len(written(cluster, "t-retry-1")) == 2


async def test_a_smaller_copy_is_sent_if_a_broker_refuses_the_whole_one(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    fill(cluster, 1)
    cluster.intercept(ProduceRequest, Fail(InvalidRecord), times=2)
    running = Processing(await start(), fail, retry=retry)
    await cluster.wait_for(lambda: events(cluster, "accepted") == [0])
    await running.stop()
    (copy,) = written(cluster, "t-retry-1")
    assert dict(copy.headers)["retry.message"] == b""


async def later(value: int) -> bytes:
    return b"%d" % value


def with_context(value: int, ctx: Any) -> bytes:
    assert ctx.topic.startswith("t-")
    return b"%d" % value


SERIALIZERS = [later, with_context]


async def test_objects_are_sent_by_a_producer_with_serializers(
    cluster: FakeCluster, start: Start
) -> None:
    cluster.log("t").append(b"7")
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        value_serializer=lambda value: b"%d" % value,
    )
    async with producer:
        retry = RetryTopics(producer, [1000])
        consumer = await start(value_deserializer=int)
        running = Processing(consumer, fail, retry=retry)
        await cluster.wait_for(lambda: written(cluster, "t-dead-letter"), timeout_s=60)
        await running.stop()
    assert written(cluster, "t-dead-letter")[0].value == b"7"


@pytest.mark.parametrize("serializer", SERIALIZERS)
async def test_objects_that_are_delivered_again_before_they_are_due_are_serialized(
    cluster: FakeCluster, start: Start, serializer: Any
) -> None:
    """Such a copy is sent alone in its batch, which has calls of its own for serializers."""
    cluster.log("t").append(b"7")
    done: list[Any] = []

    def handle(record: Record) -> None:
        if record.topic == "t":
            raise LookupError
        done.append((record.value, record.delivery_count))

    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer
    )
    async with producer:
        retry = RetryTopics(producer, [5000])
        for number in range(2):
            running = Processing(await start(value_deserializer=int), handle, retry=retry)
            await cluster.wait_for(
                lambda: len(events(cluster, "acquired", "t-retry-1")) > number  # noqa: B023
            )
            await running.stop()
        running = Processing(await start(value_deserializer=int), handle, retry=retry)
        await cluster.wait_for(lambda: bool(done), timeout_s=60)
        await running.stop()
    assert len(written(cluster, "t-retry-1")) >= 2
    assert done[0][0] == 7


async def test_wrong_topics_and_producers(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    consumer = await start("t", "t-dead-letter")
    with pytest.raises(ValueError, match="'t-dead-letter' is the dead-letter topic of 't'"):
        await consumer.process(fail, retry=retry)
    assert consumer.subscription() == {"t", "t-dead-letter"}
    fill(cluster, 1)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0) as careless:
        other = await start()
        with pytest.raises(IllegalStateError, match="not acks=0"):
            await other.process(fail, retry=RetryTopics(careless, [1000]))


async def test_a_member_may_read_retry_topics_alone(
    cluster: FakeCluster, start: Start, retry: RetryTopics[Any, Any]
) -> None:
    consumer = await start("t-retry-1")
    done = asyncio.Event()

    async def handle(record: Record) -> None:
        done.set()

    cluster.log("t-retry-1").append(b"without headers")
    running = Processing(consumer, handle, retry=retry)
    begun_at = asyncio.get_running_loop().time()
    await done.wait()
    assert asyncio.get_running_loop().time() - begun_at > DELAYS[0] / 1000 - 1
    assert consumer.subscription() == {"t-retry-1"}
    await running.stop()


async def test_a_stop_at_each_turn_loses_no_record(
    cluster: FakeCluster, start: Start, producer: AIOKafkaProducer
) -> None:
    """Each record is accepted, or released, and has a copy if it was accepted."""
    retry = RetryTopics(producer, [1000])

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        raise LookupError

    for number in range(60):
        fill(cluster, 2, first=2 * number)
        consumer = await start()
        running = Processing(consumer, handle, retry=retry, concurrency=1)
        for _ in range(5 * number):
            await asyncio.sleep(0)
        running.task.cancel()
        await asyncio.wait([running.task])
        with contextlib.suppress(KafkaTimeoutError):
            await consumer.commit()
        await consumer.stop(timeout=0)
        accepted = set(events(cluster, "accepted"))
        copied = {
            int(dict(record.headers)["retry.offset"])
            for topic in TOPICS
            for record in written(cluster, topic)
        }
        assert accepted <= copied
    running = Processing(await start(), handle, retry=retry)
    await cluster.wait_for(
        lambda: (
            {record.value for record in written(cluster, "t-dead-letter")}
            == {b"%d" % number for number in range(120)}
        ),
        timeout_s=300,
    )
    await running.stop()
    assert set(events(cluster, "accepted")) == set(range(120))
