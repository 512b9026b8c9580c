"""Serializers that return an awaitable, and serializers that ask for a context."""

from __future__ import annotations

import asyncio
import gc
import json
import types
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import (
    MessageSizeTooLargeError,
    ProducerClosed,
    TransactionStateError,
    WrongArgument,
)
from aiokafka.interceptors import ProducerInterceptor, ProducerRecord
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.serialization import MessageField, SerializationContext
from aiokafka.session import TransactionalSession
from aiokafka.structs import RecordMetadata
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, new_producer, transactional, values

SIDES = pytest.mark.parametrize("side", ["key", "value"])


class Gate:
    """An async serializer that waits, from the second call on, until the test opens it."""

    def __init__(self, passes: int = 0) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = 0
        self._passes = passes

    async def __call__(self, data: Any) -> bytes | None:
        self._passes -= 1
        if self._passes < 0:
            self.entered.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return None if data is None else str(data).encode()


async def at_once(data: Any) -> bytes:
    return str(data).encode()


async def later(data: Any) -> bytes:
    await asyncio.sleep(0)
    return str(data).encode()


class Awaitable:
    """An awaitable that is no coroutine, and waits for one iteration."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __await__(self) -> Generator[None, None, bytes]:
        yield
        return str(self.data).encode()


class OnlyNext:
    """An awaitable whose iterator has neither `send` nor `throw`."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __await__(self) -> Iterator[Any]:
        outer = self

        class Steps:
            step = 0

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> None:
                self.step += 1
                if self.step > 1:
                    raise StopIteration(str(outer.data).encode())

        return Steps()


@types.coroutine
def of_a_generator(data: Any) -> Generator[None, None, bytes]:
    yield
    return str(data).encode()


def future_of(data: Any) -> asyncio.Future[bytes]:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, str(data).encode())
    return future


def finished(data: Any) -> asyncio.Future[bytes]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(str(data).encode())
    return future


def task_of(data: Any) -> asyncio.Task[bytes]:
    return asyncio.get_running_loop().create_task(later(data))


def sometimes(data: Any) -> Any:
    return later(data) if int(data) % 2 else str(data).encode()


FORMS = pytest.mark.parametrize(
    "serializer",
    [at_once, later, Awaitable, OnlyNext, of_a_generator, future_of, finished, task_of, sometimes],
)


class Notes(ProducerInterceptor):
    """Notes what it is shown before the serializers, and the outcomes."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.outcomes: list[str] = []

    def on_send(self, record: ProducerRecord) -> None:
        self.sent.append((record.key, record.value))

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> None:
        self.outcomes.append(type(metadata if error is None else error).__name__)


class SlowNotes(Notes):
    async def on_send(self, record: ProducerRecord) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_send(record)


INTERCEPTORS = pytest.mark.parametrize("kind", [None, Notes, SlowNotes])


def stored(cluster: FakeCluster, partition: int = 0) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in cluster.log(TOPIC, partition).records()]


# -- every path


@FORMS
@INTERCEPTORS
async def test_send_awaits_what_serializers_return(
    cluster: FakeCluster, serializer: Callable[[Any], Any], kind: type[Notes] | None
) -> None:
    notes = () if kind is None else (kind(),)
    options = {"key_serializer": serializer, "value_serializer": serializer}
    async with new_producer(cluster, interceptors=notes, **options) as producer:
        for number in range(3):
            await producer.send(TOPIC, number, number, 0)
        await producer.send_and_wait(TOPIC, 3, 3, 0)
    assert stored(cluster) == [(b"%d" % number, b"%d" % number) for number in range(4)]
    for one in notes:
        assert one.sent == [(number, number) for number in range(4)]
        assert one.outcomes == ["RecordMetadata"] * 4


@SIDES
async def test_one_serializer_waits_and_the_other_is_plain(cluster: FakeCluster, side: str) -> None:
    options = {"key_serializer": str.encode, "value_serializer": str.encode}
    options[f"{side}_serializer"] = later  # type: ignore[assignment]
    async with new_producer(cluster, **options) as producer:
        await producer.send_and_wait(TOPIC, "v", "k", 0)
    assert stored(cluster) == [(b"k", b"v")]


@FORMS
async def test_batches(cluster: FakeCluster, serializer: Callable[[Any], Any]) -> None:
    async with new_producer(cluster, value_serializer=serializer) as producer:
        batch = producer.create_batch()
        for number in range(3):
            added = await batch.append_async(timestamp=None, key=b"k", value=number)
            assert added is not None and added.offset == number
        await (await producer.send_batch(batch, TOPIC, partition=0))
        assert await batch.append_async(timestamp=None, key=b"k", value=3) is None
    assert values(cluster) == [b"0", b"1", b"2"]


@SIDES
async def test_append_refuses_what_it_cannot_await(cluster: FakeCluster, side: str) -> None:
    async with new_producer(cluster, **{f"{side}_serializer": later}) as producer:
        batch = producer.create_batch()
        with pytest.raises(TypeError, match=f"^{side}_serializer returned an awaitable"):
            batch.append(timestamp=None, key=b"key", value=b"value")
        assert batch.record_count() == 0


async def test_a_batch_that_is_closed_while_a_serializer_waits(cluster: FakeCluster) -> None:
    gate = Gate(passes=1)
    async with new_producer(cluster, value_serializer=gate) as producer:
        batch = producer.create_batch()
        await batch.append_async(timestamp=None, key=None, value=0)
        late = asyncio.create_task(batch.append_async(timestamp=None, key=None, value=1))
        await gate.entered.wait()
        await (await producer.send_batch(batch, TOPIC, partition=0))
        gate.opened.set()
        assert await late is None
    assert values(cluster) == [b"0"]


async def test_transactions(cluster: FakeCluster) -> None:
    async with transactional(cluster, value_serializer=later) as producer:
        async with producer.transaction():
            await producer.send(TOPIC, 1, partition=0)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, 2, partition=0)
                raise ZeroDivisionError
    assert committed(cluster) == [b"1"]


async def test_sessions(cluster: FakeCluster) -> None:
    await cluster.create_topic("in")
    cluster.log("in").append(b"7")

    async def number(data: bytes) -> int:
        await asyncio.sleep(0)
        return int(data)

    consumer = AIOKafkaConsumer(
        "in",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        value_deserializer=number,
    )
    producer = transactional(cluster, value_serializer=later)
    async with TransactionalSession(consumer, producer) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    await transaction.send(TOPIC, record.value * 6, partition=0)
            break
    assert committed(cluster) == [b"42"]


async def test_the_partition_is_that_of_the_serialized_key(cluster: FakeCluster) -> None:
    seen: list[Any] = []

    def choose(key: bytes, every: list[int], available: list[int]) -> int:
        seen.append(key)
        return 2

    async with new_producer(cluster, key_serializer=later, partitioner=choose) as producer:
        assert (await producer.send_and_wait(TOPIC, b"v", 17)).partition == 2
    assert seen == [b"17"]
    async with new_producer(cluster, key_serializer=later) as producer:
        for key in range(20):
            chosen = DefaultPartitioner()(b"%d" % key, [0, 1, 2], [0, 1, 2])
            assert (await producer.send_and_wait(TOPIC, b"v", key)).partition == chosen


async def test_records_of_a_task_keep_their_order(cluster: FakeCluster) -> None:
    """Each call waits for its serializers; calls of several tasks do not wait for each other."""
    gate = Gate()
    async with new_producer(cluster, value_serializer=gate) as producer:
        first = asyncio.create_task(producer.send(TOPIC, "first", partition=0))
        await gate.entered.wait()
        gate.opened.set()
        await (await first)
        for number in range(20):
            await producer.send(TOPIC, number, partition=0)
    assert values(cluster) == [b"first", *(b"%d" % number for number in range(20))]


# -- failures, cancellation, and the end of the producer


@INTERCEPTORS
@pytest.mark.parametrize("is_slow", [False, True])
@SIDES
async def test_an_exception_names_the_part_and_the_topic(
    cluster: FakeCluster, side: str, is_slow: bool, kind: type[Notes] | None
) -> None:
    async def serialize(data: Any) -> bytes:
        if is_slow:
            await asyncio.sleep(0)
        raise ValueError("no schema")

    notes = () if kind is None else (kind(),)
    options: dict[str, Any] = {f"{side}_serializer": serialize, "interceptors": notes}
    async with new_producer(cluster, **options) as producer:
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(ValueError, match="no schema") as caught:
                await send(TOPIC, b"v", b"k", 0)
            note = f"raised by the {side}_serializer for topic 'topic'"
            assert caught.value.__notes__ == [note]  # type: ignore[attr-defined]
            assert caught.value.__context__ is None
    assert stored(cluster) == []
    for one in notes:
        assert one.outcomes == ["ValueError"] * 2


async def test_an_exception_of_a_plain_serializer_and_of_a_batch(cluster: FakeCluster) -> None:
    error = ValueError("the same object")

    def serialize(_: Any) -> bytes:
        raise error

    async with new_producer(cluster, value_serializer=serialize) as producer:
        for _ in range(2):
            with pytest.raises(ValueError) as caught:
                await producer.send(TOPIC, 1)
            assert caught.value is error
        batch = producer.create_batch()
        with pytest.raises(ValueError):
            batch.append(timestamp=None, key=None, value=1)
        with pytest.raises(ValueError):
            await batch.append_async(timestamp=None, key=None, value=1)
    notes = ["raised by the value_serializer for topic 'topic'", "raised by the value_serializer"]
    assert error.__notes__ == notes  # type: ignore[attr-defined]


@INTERCEPTORS
async def test_a_cancelled_call_sends_nothing(
    cluster: FakeCluster, kind: type[Notes] | None
) -> None:
    gate = Gate()
    notes = () if kind is None else (kind(),)
    async with new_producer(cluster, value_serializer=gate, interceptors=notes) as producer:
        for send in (producer.send, producer.send_and_wait):
            gate.entered.clear()
            call = asyncio.create_task(send(TOPIC, "v", partition=0))  # type: ignore[arg-type]
            await gate.entered.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(0.001):
                await producer.send(TOPIC, "v", partition=0)
        assert gate.cancelled == 3
    assert values(cluster) == []
    for one in notes:
        assert one.outcomes == ["CancelledError"] * 3


async def test_a_timeout_within_a_serializer(cluster: FakeCluster) -> None:
    """Its first step and the others are those of one task, which `asyncio.timeout` needs."""

    async def serialize(data: Any) -> bytes:
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(0.001):
                await asyncio.Event().wait()
        return b"in time"

    async with new_producer(cluster, value_serializer=serialize) as producer:
        await producer.send_and_wait(TOPIC, 1, partition=0)
    assert values(cluster) == [b"in time"]


@INTERCEPTORS
@pytest.mark.parametrize("is_slow", [False, True])
@SIDES
async def test_a_result_of_a_wrong_type(
    cluster: FakeCluster, side: str, is_slow: bool, kind: type[Notes] | None
) -> None:
    async def serialize(data: Any) -> Any:
        if is_slow:
            await asyncio.sleep(0)
        return 17

    notes = () if kind is None else (kind(),)
    options: dict[str, Any] = {f"{side}_serializer": serialize, "interceptors": notes}
    async with new_producer(cluster, **options) as producer:
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(TypeError, match=f"^{side}_serializer returned int, but must"):
                await send(TOPIC, b"v", b"k", 0)
    assert stored(cluster) == []
    for one in notes:
        assert one.outcomes == ["TypeError"] * 2


@SIDES
async def test_a_future_of_another_loop(cluster: FakeCluster, side: str) -> None:
    other = asyncio.new_event_loop()
    futures = [other.create_future() for _ in range(2)]
    try:
        options: dict[str, Any] = {f"{side}_serializer": lambda data: futures.pop()}
        async with new_producer(cluster, **options) as producer:
            for send in (producer.send, producer.send_and_wait):
                with pytest.raises(RuntimeError, match="different loop") as caught:
                    await send(TOPIC, b"v", b"k", 0)
                note = f"raised by the {side}_serializer for topic 'topic'"
                assert caught.value.__notes__ == [note]  # type: ignore[attr-defined]
    finally:
        other.close()
    assert stored(cluster) == []


async def test_cancelled_between_the_key_and_the_value(cluster: FakeCluster) -> None:
    """The key has waited; the value is cancelled while it waits, after its own first step."""
    gate = Gate()
    async with new_producer(
        cluster, key_serializer=later, value_serializer=gate, interceptors=(notes := Notes(),)
    ) as producer:
        call = asyncio.create_task(producer.send(TOPIC, "v", "k", 0))
        await gate.entered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gate.cancelled == 1
        gate.opened.set()
        await producer.send_and_wait(TOPIC, "v", "k", 0)
    assert stored(cluster) == [(b"k", b"v")]
    assert notes.outcomes == ["CancelledError", "RecordMetadata"]


@INTERCEPTORS
async def test_the_producer_is_stopped_meanwhile(
    cluster: FakeCluster, kind: type[Notes] | None
) -> None:
    gate = Gate()
    notes = () if kind is None else (kind(),)
    producer = new_producer(cluster, value_serializer=gate, interceptors=notes)
    await producer.start()
    call = asyncio.create_task(producer.send(TOPIC, "v", partition=0))
    await gate.entered.wait()
    await producer.stop()
    gate.opened.set()
    with pytest.raises(ProducerClosed):
        await call
    assert values(cluster) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
@INTERCEPTORS
async def test_the_transaction_ends_meanwhile(
    cluster: FakeCluster, kind: type[Notes] | None, end: str
) -> None:
    """The record belongs to no other transaction than the one in which `send` was called."""
    gate = Gate(passes=1)
    notes = () if kind is None else (kind(),)
    async with transactional(cluster, value_serializer=gate, interceptors=notes) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, "first", partition=0)
        call = asyncio.create_task(producer.send(TOPIC, "late", partition=0))
        await gate.entered.wait()
        await (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
        async with producer.transaction():
            gate.opened.set()
            with pytest.raises(TransactionStateError):
                await call
    assert committed(cluster) == ([b"first"] if end == "commit" else [])


def _waiting(producer: AIOKafkaProducer) -> float:
    (value,) = (m.value for m in producer.metrics() if m.name == "waiting-threads")
    return value


async def test_a_full_buffer(cluster: FakeCluster) -> None:
    """Memory is waited for after the serializers, and the order stays."""
    event = asyncio.Event()

    async def pad(data: int) -> bytes:
        await asyncio.sleep(0)
        return b"%d" % data + b" " * 1000

    options: dict[str, Any] = {"buffer_memory": 20_000, "max_request_size": 20_000}
    with cluster.intercept(ProduceRequest, Hold(event), times=None) as requests:
        async with new_producer(cluster, value_serializer=pad, **options) as producer:

            async def send() -> None:
                for number in range(100):
                    await producer.send(TOPIC, number, partition=0)

            sending = asyncio.create_task(send())
            await requests.wait()
            while _waiting(producer) == 0:
                await asyncio.sleep(0)
            event.set()
            await sending
    assert [int(value or b"") for value in values(cluster)] == list(range(100))


async def test_a_record_that_is_too_large(cluster: FakeCluster) -> None:
    async def grow(data: Any) -> bytes:
        await asyncio.sleep(0)
        return b" " * 3_000_000

    async with new_producer(cluster, value_serializer=grow) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send(TOPIC, 1)


def test_health_shows_a_serializer_that_waits_long() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            gate = Gate()
            async with new_producer(cluster, value_serializer=gate) as producer:
                call = asyncio.create_task(producer.send(TOPIC, 1, partition=0))
                await gate.entered.wait()
                await asyncio.sleep(6)
                (wait,) = producer.health().stalled
                assert (wait.what, wait.reason) == (
                    "a serializer",
                    "the serializer has not returned",
                )
                gate.opened.set()
                await (await call)
                assert producer.health().stalled == ()

    simulate(main)


# -- contexts


class Schema:
    """A serializer of confluent-kafka's form: it puts the id of a schema into the headers."""

    def __init__(self, is_slow: bool = False) -> None:
        self.seen: list[tuple[Any, str, str]] = []
        self.is_slow = is_slow

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> Any:
        return self._serialize(obj, ctx)

    async def _serialize(self, obj: Any, ctx: SerializationContext | None) -> bytes | None:
        assert ctx is not None
        if self.is_slow:
            await asyncio.sleep(0)
        self.seen.append((obj, ctx.topic, ctx.field))
        ctx.headers.append((f"__{ctx.field}_schema_id", b"7"))
        return None if obj is None else json.dumps(obj).encode()


@INTERCEPTORS
@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("headers", [None, [], [("h", b"1")], iter([("h", b"1")])])
async def test_a_serializer_gets_a_context_and_adds_headers(
    cluster: FakeCluster, is_slow: bool, headers: Any, kind: type[Notes] | None
) -> None:
    schema = Schema(is_slow)
    given = None if headers is None else list(headers)
    notes = () if kind is None else (kind(),)
    async with new_producer(
        cluster, key_serializer=schema, value_serializer=schema, interceptors=notes
    ) as producer:
        sent = None if given is None else iter(given)
        await producer.send_and_wait(TOPIC, [1], "k", 0, headers=sent)
        await producer.send(TOPIC, [2], partition=0, headers=given)
    assert schema.seen == [
        ("k", TOPIC, MessageField.KEY),
        ([1], TOPIC, "value"),
        (None, TOPIC, "key"),
        ([2], TOPIC, MessageField.VALUE),
    ]
    added = [("__key_schema_id", b"7"), ("__value_schema_id", b"7")]
    for record in cluster.log(TOPIC).records():
        assert list(record.headers) == [*(given or []), *added]
    assert stored(cluster) == [(b'"k"', b"[1]"), (None, b"[2]")]
    assert given in (None, [], [("h", b"1")])  # the list of the application stays as it is


@INTERCEPTORS
@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("change", ["append", "replace"])
async def test_headers_of_a_serializer_are_checked(
    cluster: FakeCluster, change: str, is_slow: bool, kind: type[Notes] | None
) -> None:
    async def serialize(data: Any, ctx: SerializationContext) -> bytes:
        if is_slow:
            await asyncio.sleep(0)
        if change == "append":
            ctx.headers.append(("bad", 1))  # type: ignore[arg-type]
        else:
            ctx.headers[0] = ("h", "1")  # type: ignore[assignment]
        return b"v"

    notes = () if kind is None else (kind(),)
    async with new_producer(cluster, value_serializer=serialize, interceptors=notes) as producer:
        with pytest.raises(TypeError, match=r"^headers: the value of '(bad|h)' must be bytes"):
            await producer.send(TOPIC, 1, partition=0, headers=[("h", b"1")])
    assert stored(cluster) == []
    for one in notes:
        assert one.outcomes == ["TypeError"]


async def test_a_batch_needs_the_topic_for_a_context(cluster: FakeCluster) -> None:
    schema = Schema()
    async with new_producer(cluster, value_serializer=schema) as producer:
        with pytest.raises(WrongArgument, match="topic"):
            producer.create_batch()
        batch = producer.create_batch(topic=TOPIC)
        await batch.append_async(timestamp=None, key=b"k", value=1, headers=[("h", b"")])
        with pytest.raises(WrongArgument, match="created for 'topic'"):
            await producer.send_batch(batch, "other", partition=0)
        await (await producer.send_batch(batch, TOPIC, partition=0))
    (record,) = cluster.log(TOPIC).records()
    assert list(record.headers) == [("h", b""), ("__value_schema_id", b"7")]

    def plain(obj: Any, ctx: SerializationContext) -> bytes:
        ctx.headers.append(("topic", ctx.topic.encode()))
        return str(obj).encode()

    async with new_producer(cluster, value_serializer=plain) as producer:
        batch = producer.create_batch(topic=TOPIC)
        batch.append(timestamp=None, key=b"k", value=1)
        await (await producer.send_batch(batch, TOPIC, partition=1))
    (record,) = cluster.log(TOPIC, 1).records()
    assert list(record.headers) == [("topic", TOPIC.encode())]


class OfKafkaPython:
    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append(("topic", topic.encode()))
        return str(data).encode()


class OfKafkaPython2:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic} {value}".encode()


async def test_serializers_of_kafka_python(cluster: FakeCluster) -> None:
    async with new_producer(
        cluster, key_serializer=OfKafkaPython(), value_serializer=OfKafkaPython2()
    ) as producer:
        await producer.send_and_wait(TOPIC, 1, 2, 0)
    (record,) = cluster.log(TOPIC).records()
    assert (record.key, record.value) == (b"2", b"topic 1")
    assert list(record.headers) == [("topic", b"topic")]


async def test_what_is_no_serializer_is_refused() -> None:
    with pytest.raises(TypeError, match="value_serializer"):
        AIOKafkaProducer(value_serializer=object())  # type: ignore[arg-type]


async def test_a_second_argument_of_another_name_is_left_alone(cluster: FakeCluster) -> None:
    """`json.dumps`, `str.encode` and the like have options of their own."""

    def serialize(data: Any, encoding: str = "utf-8", *, ctx: Any = None) -> bytes:
        assert ctx is None
        return str(data).encode(encoding)

    async with new_producer(
        cluster, key_serializer=str.encode, value_serializer=serialize
    ) as producer:
        await producer.send_and_wait(TOPIC, "v", "k", 0)
    assert stored(cluster) == [(b"k", b"v")]


# -- a serializer that is called while another one runs


@pytest.mark.parametrize("waits", [False, True])
async def test_a_serializer_that_sends_itself(cluster: FakeCluster, waits: bool) -> None:
    """By the same producer, whose serializer runs in the serializer, also after one that failed."""
    depths: list[int] = []

    async def serialize(value: Any) -> bytes:
        depths.append(value)
        if waits:
            await asyncio.sleep(0)
        if value < 3:
            await producer.send(TOPIC, value + 1, partition=0)
        if value == 2:
            raise ZeroDivisionError
        return b"%d" % value

    async with new_producer(cluster, value_serializer=serialize) as producer:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await producer.send(TOPIC, 0, partition=0)
            await producer.send_and_wait(TOPIC, 9, partition=0)
    assert depths == [0, 1, 2, 3, 9] * 2
    assert values(cluster, 0) == [b"3", b"9"] * 2


async def test_a_serializer_that_waits_is_closed_once(cluster: FakeCluster) -> None:
    """By its end or by the cancellation, and not again when it is garbage-collected."""
    closed: list[str] = []
    gate = asyncio.Event()

    async def serialize(value: Any) -> bytes:
        try:
            await gate.wait()
        except BaseException as error:
            closed.append(type(error).__name__)
            raise
        closed.append("end")
        return b"v"

    async with new_producer(cluster, value_serializer=serialize) as producer:
        cancelled, kept = (asyncio.create_task(producer.send(TOPIC, "x")) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gc.collect()
        assert closed == ["CancelledError"]
        gate.set()
        await (await kept)
        del cancelled, kept
        gc.collect()
        assert closed == ["CancelledError", "end"]


def test_serializers_in_the_loops_of_threads() -> None:
    def run(number: int) -> list[Any]:
        async def main() -> list[Any]:
            async with FakeCluster() as fake:
                await fake.create_topic(TOPIC)
                async with new_producer(fake, value_serializer=at_once) as producer:
                    for count in range(500):
                        await producer.send(TOPIC, f"{number}-{count}", partition=0)
                return values(fake, 0)

        return asyncio.run(main())

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(run, range(4))):
            assert found == [b"%d-%d" % (number, count) for count in range(500)]
