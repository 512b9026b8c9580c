"""Interceptors: they see and change records, in their order, and never break a client."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

import aiokafka
from aiokafka import TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    IllegalStateError,
    MessageSizeTooLargeError,
    ProducerClosed,
    TransactionStateError,
)
from aiokafka.interceptors import (
    ConsumerInterceptor,
    ProducerInterceptor,
    ProducerRecord,
    Records,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.structs import RecordMetadata
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.support.consumers import Start, fill
from tests.support.consumers import start as start
from tests.support.producers import TOPIC, new_producer, transactional, values

T0 = TopicPartition(TOPIC, 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


Outcome = tuple[ProducerRecord, RecordMetadata | None, BaseException | None]


class Adds(ProducerInterceptor):
    """Adds a letter to each value, and notes the outcomes."""

    def __init__(self, letter: Any) -> None:
        self.letter = letter
        self.outcomes: list[Outcome] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=record.value + self.letter)

    def on_acknowledgement(self, *outcome: Any) -> None:
        self.outcomes.append(outcome)


class AddsLater(Adds):
    """Does the same in coroutines."""

    async def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[override]
        await asyncio.sleep(0)
        return replace(record, value=record.value + self.letter)

    async def on_acknowledgement(self, *outcome: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(0.001)
        self.outcomes.append(outcome)


class Raises(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("a broken interceptor")

    def on_acknowledgement(self, *outcome: Any) -> None:
        raise RuntimeError("a broken interceptor")


class ReturnsNonsense(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> Any:
        return "nonsense"


async def test_records_pass_in_the_order_of_the_list(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Adds("a"), AddsLater("b")
    interceptors = [first, Raises(), ReturnsNonsense(), second]
    async with new_producer(
        cluster, interceptors=interceptors, value_serializer=str.encode
    ) as producer:
        for _ in range(3):
            await producer.send_and_wait(TOPIC, "value-", partition=0)
    assert values(cluster) == [b"value-ab"] * 3
    # stop() waits for the coroutines.
    for interceptor in (first, second):
        assert [record.value for record, _, _ in interceptor.outcomes] == ["value-ab"] * 3
        offsets = [metadata.offset for _, metadata, _ in interceptor.outcomes if metadata]
        assert offsets == [0, 1, 2]
        assert [error for _, _, error in interceptor.outcomes] == [None] * 3
    assert len([r for r in caplog.records if "a broken interceptor" in r.getMessage()]) == 1


async def test_another_topic_and_headers(cluster: FakeCluster) -> None:
    class Moves(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return replace(record, topic="other", headers=(*record.headers, ("by", b"me")))

    await cluster.create_topic("other")
    async with new_producer(cluster, interceptors=[Moves()]) as producer:
        metadata = await producer.send_and_wait(TOPIC, b"value", headers=[("a", b"b")])
    assert metadata.topic == "other"
    (record,) = cluster.log("other").records()
    assert list(record.headers) == [("a", b"b"), ("by", b"me")]


async def test_failures_are_told(cluster: FakeCluster) -> None:
    notes = Adds("")
    async with new_producer(cluster, interceptors=[notes], value_serializer=str.encode) as producer:
        with pytest.raises(TypeError):
            await producer.send(TOPIC, "value", key=1)  # type: ignore[arg-type]
        with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(TOPIC, "value", partition=0)
    assert [type(error) for _, _, error in notes.outcomes] == [TypeError, MessageSizeTooLargeError]
    assert [metadata for _, metadata, _ in notes.outcomes] == [None, None]


@pytest.mark.parametrize("interceptor", [Adds, AddsLater])
async def test_serializers_that_await_what_was_cancelled(
    cluster: FakeCluster, interceptor: type[Adds]
) -> None:
    async def serialize(_: bytes | None) -> bytes:
        await cancelled()
        return b""

    notes = interceptor(b"")
    async with new_producer(cluster, interceptors=[notes], value_serializer=serialize) as producer:
        with pytest.raises(asyncio.CancelledError):
            await producer.send(TOPIC, b"value", partition=0)
    ((record, metadata, error),) = notes.outcomes
    assert (record.value, metadata) == (b"value", None)
    assert isinstance(error, asyncio.CancelledError)


async def test_a_cancelled_send_has_sent_nothing(cluster: FakeCluster) -> None:
    class Waits(ProducerInterceptor):
        async def on_send(self, record: ProducerRecord) -> None:  # type: ignore[override]
            entered.set()
            await asyncio.Event().wait()

    entered = asyncio.Event()
    first, last = Adds(b"+"), Adds(b"")
    async with new_producer(cluster, interceptors=[first, Waits(), last]) as producer:
        task = asyncio.create_task(producer.send(TOPIC, b"value", partition=0))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert values(cluster) == []
    ((record, metadata, error),) = first.outcomes
    assert (record.value, metadata) == (b"value+", None)
    assert isinstance(error, asyncio.CancelledError)
    assert last.outcomes == []  # it has not seen the record


async def test_a_send_whose_transaction_ends_meanwhile(cluster: FakeCluster) -> None:
    """Its record must not become part of the next one."""

    class Waits(ProducerInterceptor):
        async def on_send(self, record: ProducerRecord) -> None:  # type: ignore[override]
            entered.set()
            await release.wait()

    entered, release = asyncio.Event(), asyncio.Event()
    notes = Adds(b"")
    async with transactional(cluster, interceptors=[notes, Waits()]) as producer:
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send(TOPIC, b"value", partition=0))
        await entered.wait()
        await producer.abort_transaction()
        async with producer.transaction():
            release.set()
            with pytest.raises(TransactionStateError, match="the transaction ended while"):
                await sending
    assert values(cluster) == []
    assert [type(error) for _, _, error in notes.outcomes] == [TransactionStateError]


async def test_a_send_that_is_cancelled_while_it_waits_for_memory(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    notes = Adds(b"")
    options = {"interceptors": [notes], "buffer_memory": 20_000}
    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        async with new_producer(cluster, **options) as producer:
            first = await producer.send(TOPIC, b"x" * 10_000, partition=0)
            await held.wait()
            waiting = asyncio.create_task(producer.send(TOPIC, b"y" * 10_000, partition=0))
            while not producer.metrics().value("waiting-threads"):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            release.set()
            await first
    assert [type(error) for _, _, error in notes.outcomes] == [asyncio.CancelledError, type(None)]
    assert len(values(cluster)) == 1


async def test_a_stop_that_is_cancelled_drops_what_waits(cluster: FakeCluster) -> None:
    class Waits(ProducerInterceptor):
        async def on_acknowledgement(self, *outcome: Any) -> None:  # type: ignore[override]
            await asyncio.Event().wait()

    async def work() -> None:
        async with producer:
            for number in range(3):
                await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)

    producer = new_producer(cluster, interceptors=[Waits()])
    task = asyncio.create_task(work())
    while producer.health().state != "closing":
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(values(cluster)) == 3


async def test_a_notification_behind_the_end_is_dropped(cluster: FakeCluster) -> None:
    """Python would warn of a coroutine that was never awaited."""

    class Late(ProducerInterceptor):
        def on_acknowledgement(self, *outcome: Any) -> Any:
            told.append(asyncio.sleep(0))
            return told[-1]

    async def work() -> None:
        async with producer:
            sent.append(await producer.send(TOPIC, b"value", partition=0))

    sent: list[asyncio.Future[RecordMetadata]] = []
    told: list[Coroutine[Any, Any, None]] = []
    producer = new_producer(cluster, interceptors=[Late()])
    with cluster.intercept(ProduceRequest, Hold(asyncio.Event())) as held:
        task = asyncio.create_task(work())
        await held.wait()
        assert producer.health().state == "closing"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with timeout(10):
            while not told:
                await asyncio.sleep(0)
        with pytest.raises(ProducerClosed):
            await sent[0]
    assert [inspect.getcoroutinestate(one) for one in told] == [inspect.CORO_CLOSED]


async def test_interceptors_that_are_plain_now_and_a_coroutine_then(cluster: FakeCluster) -> None:
    class Either(Adds):
        def on_send(self, record: ProducerRecord) -> Any:
            return self.later(record) if record.value in (b"1", b"3") else None

        async def later(self, record: ProducerRecord) -> ProducerRecord:
            await asyncio.sleep(0)
            return replace(record, value=record.value + b"-later")

    notes, last = Adds(b""), Adds(b"!")
    async with new_producer(cluster, interceptors=[notes, Either(b""), last]) as producer:
        for number in range(5):
            await producer.send(TOPIC, b"%d" % number, partition=0)
    assert values(cluster) == [b"0!", b"1-later!", b"2!", b"3-later!", b"4!"]
    offsets = [metadata.offset for _, metadata, _ in last.outcomes if metadata]
    assert offsets == [0, 1, 2, 3, 4]
    assert [record.value for record, _, _ in notes.outcomes] == values(cluster)


async def test_outcomes_are_told_in_the_context_of_their_send(cluster: FakeCluster) -> None:
    class Looks(ProducerInterceptor):
        def on_acknowledgement(self, record: ProducerRecord, *_: Any) -> None:
            seen.append((record.value, variable.get()))

    variable: ContextVar[int] = ContextVar("variable", default=-1)
    seen: list[tuple[bytes, int]] = []
    async with new_producer(cluster, interceptors=[Looks()], linger_ms=10) as producer:
        for number in range(4):
            variable.set(number // 2)
            await producer.send(TOPIC, b"%d" % number, partition=0)
        variable.set(9)
    assert seen == [(b"0", 0), (b"1", 0), (b"2", 1), (b"3", 1)]


async def test_context_variables_that_cannot_be_compared(cluster: FakeCluster) -> None:
    """Such as arrays of numpy. `send` raised the error of the comparison, but had sent the
    record."""

    class Incomparable:
        def __eq__(self, _: object) -> bool:
            raise ValueError("ambiguous")

    variable: ContextVar[Incomparable] = ContextVar("variable")
    notes = Adds(b"")
    async with new_producer(cluster, interceptors=[notes], linger_ms=10) as producer:
        for number in range(3):
            variable.set(Incomparable())
            await producer.send(TOPIC, b"%d" % number, partition=0)
    assert [record.value for record, _, _ in notes.outcomes] == values(cluster)
    assert values(cluster) == [b"0", b"1", b"2"]


async def test_an_outcome_is_told_before_send_and_wait_returns(cluster: FakeCluster) -> None:
    """A span of the record ends before the span of the request that has sent it."""
    seen: list[str] = []

    class Tells(ProducerInterceptor):
        def on_acknowledgement(self, record: Any, metadata: Any, error: Any) -> None:
            seen.append(f"acknowledged {record.value}")

    async with new_producer(cluster, interceptors=[Tells()]) as producer:
        await producer.send_and_wait(TOPIC, b"1")
        seen.append("returned")
        await (await producer.send(TOPIC, b"2"))
        seen.append("returned")
    assert seen == ["acknowledged b'1'", "returned", "acknowledged b'2'", "returned"]


async def test_outcomes_of_records_in_a_batch_of_the_program_and_of_parts(
    cluster: FakeCluster,
) -> None:
    """Each record of `send` has one outcome, with its own offset; the program's have none."""
    notes = Adds(b"")
    async with new_producer(cluster, interceptors=[notes], linger_ms=50) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"mine", timestamp=None)
        await producer.send_batch(batch, TOPIC, partition=0)
        for number in range(6):
            await producer.send(TOPIC, b"%d" % number, partition=0)
        with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1):
            await producer.flush()
    assert values(cluster) == [b"mine", *(b"%d" % number for number in range(6))]
    told = sorted((record.value, metadata.offset) for record, metadata, _ in notes.outcomes)  # type: ignore[union-attr]
    assert told == [(b"%d" % number, number + 1) for number in range(6)]


async def test_a_future_that_the_program_cancels_does_not_change_the_outcome(
    cluster: FakeCluster,
) -> None:
    notes = Adds(b"")
    async with new_producer(cluster, interceptors=[notes]) as producer:
        (await producer.send(TOPIC, b"value", partition=0)).cancel()
        await producer.flush()
    ((_, metadata, error),) = notes.outcomes
    assert metadata is not None and (metadata.offset, error) == (0, None)


class Notes(ConsumerInterceptor):
    """Notes what passes; leaves out records with odd offsets."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.commits: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: Records) -> Records:
        self.seen += [record.offset for some in records.values() for record in some]
        return {tp: [r for r in some if r.offset % 2 == 0] for tp, some in records.items()}

    async def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:  # type: ignore[override]
        await asyncio.sleep(0.001)
        self.commits.append(dict(offsets))


async def test_records_that_are_read(cluster: FakeCluster, start: Start) -> None:
    class Broken(ConsumerInterceptor):
        def on_consume(self, records: Records) -> Records:
            raise RuntimeError("a broken interceptor")

    notes = Notes()
    fill(cluster, 0, 6, topic=TOPIC)
    options = {"group_id": "group", "enable_auto_commit": False}
    consumer = await start(cluster, assign=[T0], interceptors=[Broken(), notes], **options)
    assert [(await consumer.getone()).offset for _ in range(2)] == [0, 2]
    taken = await consumer.getmany(timeout_ms=5000)
    assert [record.offset for record in taken[T0]] == [4]
    assert notes.seen == [0, 1, 2, 3, 4, 5]
    await consumer.commit()
    await consumer.stop()
    assert notes.commits == [{T0: 6}]


class Looks(ConsumerInterceptor):
    """Calls a function of the test with each record, one by one."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        self.look = look

    def on_consume(self, records: Records) -> Any:
        return self.look(*(record for some in records.values() for record in some))


async def one_by_one(consumer: Any, count: int, how: str) -> list[int]:
    """Return the offsets of so many records, by `async for` or `getone()`."""
    if how == "getone":
        return [(await consumer.getone()).offset for _ in range(count)]
    found: list[int] = []
    async for record in consumer:
        found.append(record.offset)
        if len(found) == count:
            break
    return found


BOTH = pytest.mark.parametrize("how", ["getone", "async for"])


@BOTH
async def test_plain_and_coroutine_interceptors_one_by_one(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    def look(record: Any) -> Any:
        seen.append((record.offset, consumer.lag(T0)))
        if record.offset % 5 == 3:
            return later({T0: []})  # left out
        return later(None) if record.offset % 5 == 1 else None

    async def later(result: Any) -> Any:
        await asyncio.sleep(0)
        return result

    seen: list[tuple[int, int | None]] = []
    fill(cluster, 0, 40, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Looks(look), Looks(lambda _: None)])
    assert await one_by_one(consumer, 30, how) == [n for n in range(37) if n % 5 != 3]
    # The position is before a record until the application has it.
    assert seen == [(offset, 40 - offset) for offset in range(37)]
    assert await consumer.position(T0) == 37


@BOTH
async def test_interceptors_that_leave_out_most_records(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    fill(cluster, 0, 1000, topic=TOPIC)
    odd = Looks(lambda record: None if record.offset % 100 == 99 else {})
    consumer = await start(cluster, assign=[T0], interceptors=[odd])
    assert await one_by_one(consumer, 10, how) == list(range(99, 1000, 100))


@BOTH
async def test_a_plain_interceptor_that_seeks_and_gives_partitions_up(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    def look(record: Any) -> None:
        if (record.partition, record.offset) == (0, 2) and not jumped:
            jumped.append(record)
            consumer.seek(T0, 7)
        elif (record.partition, record.offset) == (0, 8):
            consumer.assign([TopicPartition(TOPIC, 1)])

    jumped: list[Any] = []
    fill(cluster, 0, 10, topic=TOPIC)
    fill(cluster, 1, 2, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Looks(look)])
    assert await one_by_one(consumer, 4, how) == [0, 1, 2, 7]
    # Offset 8 is of a partition that is not assigned any more.
    assert await one_by_one(consumer, 2, how) == [0, 1]


async def test_a_plain_on_consume_cannot_read(cluster: FakeCluster, start: Start) -> None:
    def look(record: Any) -> None:
        call = consumer.getone()
        # As a task that begins at once does (`asyncio.eager_task_factory`).
        with pytest.raises(IllegalStateError, match="on_consume"):
            while True:
                call.send(None)
        tried.append(record.offset)

    tried: list[int] = []
    fill(cluster, 0, 3, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Looks(look)])
    assert await one_by_one(consumer, 3, "getone") == tried == [0, 1, 2]


@BOTH
async def test_a_cancelled_call_is_repeated_one_by_one(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    async def later() -> None:
        entered.set()
        await release.wait()

    entered, release = asyncio.Event(), asyncio.Event()
    fill(cluster, 0, 5, topic=TOPIC)
    waits = Looks(lambda record: later() if record.offset == 2 else None)
    consumer = await start(cluster, assign=[T0], interceptors=[waits])
    task = asyncio.create_task(one_by_one(consumer, 5, how))
    await entered.wait()
    assert await consumer.position(T0) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await consumer.position(T0) == 2
    release.set()
    assert await one_by_one(consumer, 3, how) == [2, 3, 4]


async def test_a_call_that_is_cancelled_in_an_interceptor(
    cluster: FakeCluster, start: Start
) -> None:
    class Waits(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> None:  # type: ignore[override]
            entered.set()
            await release.wait()

    entered, release = asyncio.Event(), asyncio.Event()
    fill(cluster, 0, 4, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Waits()])
    task = asyncio.create_task(consumer.getmany(timeout_ms=5000))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await consumer.position(T0) == 0
    release.set()
    assert [(await consumer.getone()).offset for _ in range(4)] == [0, 1, 2, 3]


async def test_no_record_comes_twice_when_one_of_two_readers_is_cancelled(
    cluster: FakeCluster, start: Start
) -> None:
    class WaitsOnce(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> None:  # type: ignore[override]
            if not entered.is_set():
                entered.set()
                await asyncio.Event().wait()

    async def read() -> None:
        got.extend([r.offset for r in (await consumer.getmany(timeout_ms=5000, max_records=2))[T0]])

    entered = asyncio.Event()
    got: list[int] = []
    fill(cluster, 0, 4, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[WaitsOnce()])
    cancelled = asyncio.create_task(read())
    await entered.wait()
    other = asyncio.create_task(read())
    assert await consumer.getmany(timeout_ms=20) == {}
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await other
    await read()
    assert got == [0, 1, 2, 3]
    assert consumer.metrics().value("records-consumed-total") == 4


async def test_partitions_that_are_taken_away_meanwhile(cluster: FakeCluster, start: Start) -> None:
    class GivesAway(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> None:  # type: ignore[override]
            consumer.assign([TopicPartition(TOPIC, 1)])

    fill(cluster, 0, 2, topic=TOPIC)
    fill(cluster, 1, 2, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[GivesAway()])
    record = await consumer.getone()
    assert (record.partition, record.offset) == (1, 0)


async def test_on_consume_cannot_read(cluster: FakeCluster, start: Start) -> None:
    class Reads(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> None:  # type: ignore[override]
            for read in (consumer.getone, consumer.getmany):
                with pytest.raises(IllegalStateError, match="on_consume"):
                    await read()
            tried.append(await consumer.position(T0))

    tried: list[int] = []
    fill(cluster, 0, 1, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Reads()])
    assert (await consumer.getone()).offset == 0
    assert tried == [0]  # it may be committed, and the application has no record yet
    assert await consumer.position(T0) == 1


@BOTH
async def test_a_task_of_a_plain_on_consume_cannot_read(
    cluster: FakeCluster, start: Start, how: str
) -> None:
    """The interceptor waits for the task, so the task would wait for itself."""

    class Returns(ConsumerInterceptor):
        def on_consume(self, records: Records) -> Any:
            return asyncio.gather(asyncio.create_task(self.read()))

        async def read(self) -> None:
            with pytest.raises(IllegalStateError, match="on_consume"):
                await consumer.getone()
            tried.append(await consumer.position(T0))

    tried: list[int] = []
    fill(cluster, 0, 3, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Returns()])
    async with timeout(10):
        assert await one_by_one(consumer, 3, how) == tried == [0, 1, 2]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python cannot tell what was cancelled")
async def test_interceptors_that_await_what_was_cancelled_here(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    class Awaits(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> None:  # type: ignore[override]
            await cancelled()

    fill(cluster, 0, 1, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], interceptors=[Awaits()])
    assert (await consumer.getone()).offset == 0
    assert "awaited a cancelled task or future" in caplog.text


async def cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_notifications_that_await_what_was_cancelled(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Awaits(ProducerInterceptor):
        async def on_acknowledgement(self, *outcome: Any) -> None:  # type: ignore[override]
            told.append(outcome)
            await cancelled()

    told: list[Any] = []
    async with new_producer(cluster, interceptors=[Awaits()]) as producer:
        for number in range(3):
            await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)
    assert len(told) == 3
    assert "awaited a cancelled task or future" in caplog.text


async def test_a_notification_may_send_and_stop(cluster: FakeCluster) -> None:
    class Audits(ProducerInterceptor):
        async def on_acknowledgement(self, record: Any, *rest: Any) -> None:  # type: ignore[override]
            if record.value == b"last":
                await producer.stop()
                stopped.set()
            elif record.value == b"audit":
                audits.append(record)
                if len(audits) == 1200:
                    audited.set()
            else:
                # With as many waiting as there may be, of which this is the first.
                await producer.send(TOPIC, b"audit", partition=1)

    audits: list[ProducerRecord] = []
    audited, stopped = asyncio.Event(), asyncio.Event()
    producer = new_producer(cluster, interceptors=[Audits()], max_block_ms=2000, linger_ms=20)
    await producer.start()
    sent = [await producer.send(TOPIC, b"value", partition=0) for _ in range(1200)]
    await asyncio.gather(*sent)
    async with timeout(30):
        await audited.wait()
    await producer.send(TOPIC, b"last", partition=2)
    async with timeout(8):  # stop() gives others ten seconds
        await stopped.wait()
    assert len(values(cluster, 1)) == 1200
    assert not [task for task in asyncio.all_tasks() if "interceptors" in task.get_name()]


async def test_stop_does_not_wait_for_what_cannot_be_cancelled(cluster: FakeCluster) -> None:
    class Stays(ProducerInterceptor):
        async def on_acknowledgement(self, *outcome: Any) -> None:  # type: ignore[override]
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass

    release = asyncio.Event()
    producer = new_producer(cluster, interceptors=[Stays()])
    await producer.start()
    await producer.send_and_wait(TOPIC, b"value", partition=0)
    async with timeout(5):
        await producer.stop(timeout=0.1)
    release.set()


async def test_failed_records_that_the_program_ignores_are_logged(
    cluster: FakeCluster,
) -> None:
    said: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))
    notes = Adds("")
    async with new_producer(cluster, interceptors=[notes], value_serializer=str.encode) as producer:
        with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
            await producer.send(TOPIC, "value", partition=0)
            await producer.flush()
    del producer
    while not notes.outcomes:
        await asyncio.sleep(0)
    notes.outcomes.clear()
    gc.collect()
    loop.set_exception_handler(None)
    assert said == ["Future exception was never retrieved"]


async def test_they_are_told_of_their_client(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Configured(ProducerInterceptor, ConsumerInterceptor):
        def configure(self, options: Mapping[str, Any]) -> None:
            told.append(dict(options))

    class Broken(ProducerInterceptor):
        def configure(self, options: Mapping[str, Any]) -> None:
            raise RuntimeError("a broken interceptor")

    told: list[dict[str, Any]] = []
    interceptors = [Broken(), Configured()]
    aiokafka.AIOKafkaProducer(
        bootstrap_servers="one:1,two", client_id="writer", interceptors=interceptors
    )
    aiokafka.AIOKafkaConsumer(client_id="reader", group_id="g", interceptors=[Configured()])
    assert told == [
        {
            "client_id": "writer",
            "bootstrap_servers": [("one", 1), ("two", 9092)],
            "transactional_id": None,
        },
        {"client_id": "reader", "bootstrap_servers": [("localhost", 9092)], "group_id": "g"},
    ]
    assert len([r for r in caplog.records if "a broken interceptor" in r.getMessage()]) == 1


@pytest.mark.parametrize("wrong", [Adds("a"), [object()], [Adds], "interceptor"])
async def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="interceptors"):
        aiokafka.AIOKafkaProducer(interceptors=wrong)
