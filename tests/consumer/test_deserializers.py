"""Deserializers that return an awaitable, and deserializers that ask for a context."""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, RecordDeserializationError
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.serialization import MessageField, SerializationContext
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.parallel.support import make_parallel
from tests.support.consumers import T0, T1, Start, fill

COUNT = 12


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two partitions with numbered records, in batches of five."""
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        for partition in (0, 1):
            fill(fake, partition, COUNT, batch=5)
        yield fake
        assert fake.failures == []


# -- forms of deserializers


async def at_once(data: bytes | None) -> int | None:
    return None if data is None else int(data)


async def later(data: bytes) -> int:
    await asyncio.sleep(0)
    return int(data)


def every_third(data: bytes) -> Any:
    return later(data) if int(data) % 3 == 0 else int(data)


class Awaitable:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def __await__(self) -> Generator[None, None, int]:
        yield
        return int(self.data)


@types.coroutine
def of_a_generator(data: bytes) -> Generator[None, None, int]:
    yield
    return int(data)


def future_of(data: bytes) -> asyncio.Future[int]:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, int(data))
    return future


FORMS = pytest.mark.parametrize(
    "deserializer", [at_once, later, every_third, Awaitable, of_a_generator, future_of]
)


class Gate:
    """A deserializer that waits at one number until the test opens it."""

    def __init__(self, *stops: int) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.seen: list[int] = []
        self.stops = stops
        self.failure: BaseException | None = None

    async def __call__(self, data: bytes) -> int:
        number = int(data)
        self.seen.append(number)
        if number in self.stops:
            self.entered.set()
            await self.opened.wait()
            if self.failure is not None:
                raise self.failure
        return number


class Passes(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_consume(self, records: Records) -> None:
        self.seen += [record.value for some in records.values() for record in some]


class PassesLater(Passes):
    async def on_consume(self, records: Records) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_consume(records)


INTERCEPTORS = pytest.mark.parametrize("kind", [None, Passes, PassesLater])

# -- ways of reading

Read = Callable[[AIOKafkaConsumer, int], Any]


async def by_getone(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


async def by_getone_of(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone(T0, T1) for _ in range(count)]


async def by_loop(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


async def by_getmany(consumer: AIOKafkaConsumer, count: int, most: int | None = None) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for some in (await consumer.getmany(timeout_ms=5000, max_records=most)).values():
            found += some
    return found


async def by_threes(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return await by_getmany(consumer, count, 3)


WAYS = pytest.mark.parametrize("read", [by_getone, by_getone_of, by_loop, by_getmany, by_threes])


def places(records: list[Any]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


ALL = [(partition, offset) for partition in (0, 1) for offset in range(COUNT)]


@WAYS
@FORMS
async def test_every_way_of_reading(
    two: FakeCluster, start: Start, deserializer: Any, read: Read
) -> None:
    consumer = await start(two, "t", value_deserializer=deserializer)
    records = await read(consumer, 2 * COUNT)
    assert places(records) == ALL
    for number in (0, 1):
        its = [record.offset for record in records if record.partition == number]
        assert its == sorted(its)
        assert await consumer.position(TopicPartition("t", number)) == COUNT
    assert all(record.value == record.offset for record in records)
    assert all(record.serialized_value_size == len(str(record.offset)) for record in records)


@WAYS
@INTERCEPTORS
async def test_each_record_is_deserialized_once(
    two: FakeCluster, start: Start, read: Read, kind: type[Passes] | None
) -> None:
    """A deserializer that has waited may not wait the next time, for example because a schema is
    cached by then."""
    seen: list[int] = []

    async def waits_the_first_time(data: bytes) -> int:
        seen.append(int(data))
        if int(data) % 3 == 0 and seen.count(int(data)) <= 2:  # there are two partitions
            await asyncio.sleep(0)
        return int(data)

    interceptors = [] if kind is None else [kind()]
    consumer = await start(
        two, "t", value_deserializer=waits_the_first_time, interceptors=interceptors
    )
    records = await read(consumer, 2 * COUNT)
    assert places(records) == ALL
    assert sorted(seen) == sorted(2 * [*range(COUNT)])


@pytest.mark.parametrize("kind", [Passes, PassesLater])
@pytest.mark.parametrize("read", [by_getone, by_getone_of, by_loop, by_getmany, by_threes])
async def test_interceptors_see_the_objects(
    two: FakeCluster, start: Start, kind: type[Passes], read: Read
) -> None:
    passes = kind()
    consumer = await start(two, "t", value_deserializer=every_third, interceptors=[passes])
    assert places(await read(consumer, 2 * COUNT)) == ALL
    assert sorted(passes.seen) == sorted(2 * [*range(COUNT)])


async def test_parallel(two: FakeCluster) -> None:
    processor = make_parallel(two, "t", consumer={"value_deserializer": every_third})
    found: list[Any] = []

    async def handle(record: Any) -> None:
        assert record.value == record.offset
        found.append(record)
        if len(found) == 2 * COUNT:
            done.set()

    done = asyncio.Event()
    async with processor:
        running = asyncio.create_task(processor.run(handle))
        await done.wait()
        await processor.stop()
        await running
    assert places(found) == ALL


@pytest.mark.parametrize("slow", ["key", "value", "both"])
async def test_keys_and_values(cluster: FakeCluster, start: Start, slow: str) -> None:
    await cluster.create_topic("t")
    for number in range(5):
        cluster.log("t").append(b"%d" % number, b"%d" % (number + 1))
    options = {
        "key_deserializer": int if slow == "value" else later,
        "value_deserializer": int if slow == "key" else later,
    }
    consumer = await start(cluster, "t", **options)
    found = [await consumer.getone(), *(await by_getmany(consumer, 4))]
    assert [(record.key, record.value) for record in found] == [(n + 1, n) for n in range(5)]


async def test_a_tombstone_and_a_null_result(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    cluster.log("t").append(None, b"1")
    cluster.log("t").append(b"1", None)
    consumer = await start(cluster, "t", key_deserializer=at_once, value_deserializer=at_once)
    records = await by_getone(consumer, 2)
    assert [(record.key, record.value) for record in records] == [(1, None), (None, 1)]


# -- positions


async def test_getmany_fills_the_batch_while_a_deserializer_waits(
    two: FakeCluster, start: Start
) -> None:
    consumer = await start(two, "t", value_deserializer=later)
    while len(places([r for s in (await consumer.getmany()).values() for r in s])) == 0:
        await asyncio.sleep(0)
    await consumer.seek_to_beginning()
    assert [len(some) for some in (await consumer.getmany(T0, timeout_ms=5000)).values()] == [COUNT]


async def test_getmany_returns_after_its_timeout_what_is_there(
    two: FakeCluster, start: Start
) -> None:
    """The record that waits is awaited, then the time is over."""
    gate = Gate(3)
    consumer = await start(two, "t", value_deserializer=gate)
    await consumer.getone(T0)
    call = asyncio.create_task(consumer.getmany(T0, timeout_ms=0))
    await gate.entered.wait()
    assert await consumer.position(T0) == 1
    gate.opened.set()
    assert [[r.offset for r in some] for some in (await call).values()] == [[1, 2, 3]]
    assert await consumer.position(T0) == 4


@pytest.mark.parametrize("way", ["getone", "getmany", "loop"])
@INTERCEPTORS
async def test_a_cancelled_call_consumes_nothing(
    two: FakeCluster, start: Start, way: str, kind: type[Passes] | None
) -> None:
    gate = Gate(0, 4)
    interceptors = () if kind is None else (kind(),)
    consumer = await start(two, "t", value_deserializer=gate, interceptors=interceptors)
    consumer.pause(T1)
    calls = {
        "getone": consumer.getone,
        "getmany": lambda: consumer.getmany(timeout_ms=5000),
        "loop": lambda: anext(aiter(consumer)),
    }
    for first in (0, 4):
        for _ in range(2):
            gate.entered.clear()
            call = asyncio.ensure_future(calls[way]())
            await gate.entered.wait()
            if way == "getmany" and first == 4:
                assert await consumer.position(T0) == 0
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await consumer.position(T0) == (first if way != "getmany" else 0)
        if way == "getmany":
            gate.stops = (4,)
        elif first == 0:
            gate.opened.set()
            await by_getone(consumer, 4)
            gate.opened.clear()
    gate.opened.set()
    begin = 0 if way == "getmany" else 4
    records = await by_getone(consumer, COUNT - begin)
    assert [record.offset for record in records] == [*range(begin, COUNT)]


@pytest.mark.parametrize("way", ["getone", "getmany"])
async def test_a_seek_meanwhile(two: FakeCluster, start: Start, way: str) -> None:
    gate = Gate(2)
    consumer = await start(two, "t", value_deserializer=gate)
    consumer.pause(T1)
    if way == "getone":
        await by_getone(consumer, 2)
        call = asyncio.ensure_future(consumer.getone())
    else:
        call = asyncio.ensure_future(consumer.getmany(timeout_ms=5000))
    await gate.entered.wait()
    consumer.seek(T0, 7)
    gate.opened.set()
    found = await call
    if way == "getone":
        assert found.offset == 7
    else:  # those before were read before the seek
        assert [r.offset for r in found[T0]] == [0, 1]
        assert (await consumer.getone()).offset == 7


@pytest.mark.parametrize("way", ["getone", "getmany"])
async def test_a_pause_meanwhile(two: FakeCluster, start: Start, way: str) -> None:
    gate = Gate(0)
    consumer = await start(two, "t", value_deserializer=gate)
    consumer.pause(T1)
    call: Any = asyncio.ensure_future(
        consumer.getone() if way == "getone" else consumer.getmany(timeout_ms=5000)
    )
    await gate.entered.wait()
    consumer.pause(T0)
    consumer.resume(T1)
    gate.opened.set()
    found = await call
    assert (found.partition if way == "getone" else [*found]) == (1 if way == "getone" else [T1])
    assert await consumer.position(T0) == 0
    consumer.resume(T0)
    assert [r.offset for r in await by_getone_of_0(consumer, COUNT)] == [*range(COUNT)]


async def by_getone_of_0(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone(T0) for _ in range(count)]


@pytest.mark.parametrize("way", ["getone", "getmany", "loop"])
@pytest.mark.parametrize("stop_at", [0, 3])
async def test_a_stop_meanwhile(two: FakeCluster, start: Start, way: str, stop_at: int) -> None:
    gate = Gate(stop_at)
    options: dict[str, Any] = {"group_id": "g", "value_deserializer": gate}
    consumer = await start(two, "t", **options)
    consumer.pause(T1)
    if way != "getmany":
        await by_getone(consumer, stop_at)

    async def loop() -> list[Any]:
        return [record async for record in consumer]

    calls = {
        "getone": consumer.getone,
        "getmany": lambda: consumer.getmany(timeout_ms=60_000),
        "loop": loop,
    }
    call = asyncio.ensure_future(calls[way]())
    await gate.entered.wait()
    await consumer.stop()
    gate.opened.set()
    if way == "getone":
        with pytest.raises(ConsumerStoppedError):
            await call
        begin = stop_at
    else:
        await call
        begin = 0 if way == "getmany" else stop_at
    # What a call has returned after the stop may be read again; nothing is skipped.
    again = await start(two, "t", group_id="g", value_deserializer=int)
    assert [r.offset for r in await by_getone_of_0(again, COUNT - begin)] == [*range(begin, COUNT)]


@pytest.mark.parametrize("way", ["getone", "getmany"])
@pytest.mark.parametrize("stop_at", [0, 3])
async def test_a_rebalance_meanwhile(
    two: FakeCluster, start: Start, way: str, stop_at: int
) -> None:
    """Another member joins and takes a partition; each record is read at least once, and none
    twice by the member that keeps its partition."""
    gate = Gate(stop_at)
    options: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 10}
    revoked = asyncio.Event()

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            revoked.set()

        async def on_partitions_assigned(self, partitions: Any) -> None:
            pass

    consumer = await start(two, value_deserializer=gate, **options)
    consumer.subscribe(["t"], listener=Listener())
    while len(consumer.assignment()) < 2:
        await asyncio.sleep(0.001)
    revoked.clear()
    found: list[Any] = []

    async def work() -> None:
        while True:
            if way == "getone":
                found.append(await consumer.getone())
            else:
                for some in (await consumer.getmany(timeout_ms=100)).values():
                    found.extend(some)

    working = asyncio.create_task(work())
    await gate.entered.wait()
    joining = asyncio.create_task(start(two, "t", value_deserializer=int, **options))
    await revoked.wait()
    gate.stops = ()
    gate.opened.set()
    other = await joining
    while len(consumer.assignment()) != 1 or len(other.assignment()) != 1:
        await asyncio.sleep(0.001)
    (its,), (kept,) = other.assignment(), consumer.assignment()
    wanted = set(range(COUNT))
    while {r.offset for r in found if r.partition == kept.partition} != wanted:
        await asyncio.sleep(0.001)
    committed = await other.committed(its)
    assert committed in (None, 0, *(r.offset + 1 for r in found if r.partition == its.partition))
    working.cancel()
    kept_offsets = [r.offset for r in found if r.partition == kept.partition]
    assert kept_offsets == [*range(COUNT)]


async def test_two_tasks_read_at_once(two: FakeCluster, start: Start) -> None:
    """No record overtakes another of its partition."""
    consumer = await start(two, "t", value_deserializer=every_third)
    found: list[Any] = []

    async def work() -> None:
        while len(found) < 2 * COUNT:
            found.append(await consumer.getone())

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    while len(found) < 2 * COUNT:
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    for partition in (0, 1):
        its = [record.offset for record in found if record.partition == partition]
        assert its == [*range(COUNT)]


async def test_auto_commit_leaves_out_what_is_deserialized(two: FakeCluster, start: Start) -> None:
    gate = Gate(3)
    consumer = await start(two, "t", group_id="g", value_deserializer=gate)
    consumer.pause(T1)
    call = asyncio.ensure_future(consumer.getmany(timeout_ms=5000))
    await gate.entered.wait()
    await consumer.commit()
    assert await consumer.committed(T0) == 0
    gate.opened.set()
    assert len((await call)[T0]) == COUNT
    await consumer.commit()
    assert await consumer.committed(T0) == COUNT


async def test_auto_commit_leaves_out_what_another_task_has_not_got(
    two: FakeCluster, start: Start
) -> None:
    """A second task begins a call while a deserializer waits: the records of the first call do not
    count as finished by that, neither before nor after the first call has returned them."""
    gate = Gate(3, 7)
    consumer = await start(two, "t", group_id="g", value_deserializer=gate)
    consumer.pause(T1)
    first = asyncio.ensure_future(consumer.getmany(timeout_ms=5000))
    await gate.entered.wait()
    second = asyncio.ensure_future(consumer.getone())
    await asyncio.sleep(0)
    gate.entered.clear()
    gate.opened.set()
    gate.opened.clear()
    await gate.entered.wait()
    assert gate.seen[-1] == 7
    gate.opened.set()
    assert len((await first)[T0]) == COUNT
    second.cancel()
    await asyncio.wait([second])
    await consumer.stop()
    again = await start(two, "t", group_id="g", value_deserializer=int)
    assert await again.committed(T0) in (None, 0)


async def test_getmany_reads_on_at_once_after_a_seek(two: FakeCluster, start: Start) -> None:
    """The record whose deserializer waits is dropped. The records after the seek are buffered
    already, so nothing wakes the call, which must not wait for its timeout."""
    gate = Gate(0)
    consumer = await start(two, "t", value_deserializer=gate)
    consumer.pause(T1)
    call = asyncio.ensure_future(consumer.getmany(timeout_ms=3_600_000))
    await gate.entered.wait()
    consumer.seek(T0, 4)
    gate.opened.set()
    async with timeout(10):
        found = await call
    assert [record.offset for record in found[T0]] == [*range(4, COUNT)]


# -- failures


async def bad_is_late(data: bytes) -> int:
    if data == b"5":
        await asyncio.sleep(0)
        raise ValueError("no schema")
    return int(data)


async def bad(data: bytes) -> int:
    if data == b"5":
        raise ValueError("no schema")
    return int(data)


@pytest.mark.parametrize("deserializer", [bad, bad_is_late])
@pytest.mark.parametrize("way", ["getone", "getmany", "loop"])
@INTERCEPTORS
async def test_a_record_that_cannot_be_deserialized(
    two: FakeCluster, start: Start, deserializer: Any, way: str, kind: type[Passes] | None
) -> None:
    interceptors = () if kind is None else (kind(),)
    consumer = await start(two, "t", value_deserializer=deserializer, interceptors=interceptors)
    consumer.pause(T1)
    if way == "getmany":
        assert len((await consumer.getmany(timeout_ms=5000))[T0]) == 5
    else:
        await by_getone(consumer, 5)
    calls = {
        "getone": consumer.getone,
        "getmany": lambda: consumer.getmany(timeout_ms=5000),
        "loop": lambda: anext(aiter(consumer)),
    }
    for _ in range(3):
        with pytest.raises(RecordDeserializationError) as caught:
            await calls[way]()
        error = caught.value
        assert (error.topic_partition, error.offset, error.part) == (T0, 5, "value")
        assert isinstance(error.cause, ValueError) and error.__cause__ is error.cause
        assert error.record.value == b"5"
        assert await consumer.position(T0) == 5
    consumer.seek(T0, 6)
    assert [record.offset for record in await by_getone(consumer, COUNT - 6)] == [*range(6, COUNT)]


async def test_unreadable_records_are_passed_without_a_fetch_for_each(
    two: FakeCluster, start: Start
) -> None:
    async def refuse(data: bytes) -> int:
        await asyncio.sleep(0)
        if int(data) < COUNT - 1:
            raise ValueError(data)
        return int(data)

    consumer = await start(two, "t", value_deserializer=refuse)
    consumer.pause(T1)
    passed = 0
    while True:
        try:
            assert (await consumer.getone()).offset == COUNT - 1
            break
        except RecordDeserializationError as error:
            passed += 1
            consumer.seek(T0, error.offset + 1)
    assert passed == COUNT - 1


@pytest.mark.parametrize("part", ["key", "value"])
async def test_the_error_names_the_part(cluster: FakeCluster, start: Start, part: str) -> None:
    await cluster.create_topic("t")
    cluster.log("t").append(b"v" if part == "value" else b"1", b"k" if part == "key" else b"1")
    consumer = await start(cluster, "t", key_deserializer=later, value_deserializer=later)
    for read in (consumer.getone, lambda: consumer.getmany(timeout_ms=5000)):
        with pytest.raises(RecordDeserializationError) as caught:
            await read()
        assert caught.value.part == part
        expected = (b"k", b"1") if part == "key" else (b"1", b"v")
        assert (caught.value.record.key, caught.value.record.value) == expected


async def test_one_partition_fails_and_the_other_is_read(two: FakeCluster, start: Start) -> None:
    async def of_partition_1(data: bytes, ctx: SerializationContext) -> int:
        await asyncio.sleep(0)
        return int(data)

    async def fails_once(data: bytes) -> int:
        await asyncio.sleep(0)
        if data == b"11":
            raise ValueError
        return int(data)

    consumer = await start(two, "t", value_deserializer=fails_once)
    found: list[Any] = []
    errors = 0
    while len(found) < 2 * (COUNT - 1):
        try:
            for some in (await consumer.getmany(timeout_ms=5000)).values():
                found += some
        except RecordDeserializationError:
            errors += 1
    assert places(found) == [place for place in ALL if place[1] < COUNT - 1]
    for tp in (T0, T1):
        assert await consumer.position(tp) == COUNT - 1


async def test_a_deserializer_awaits_what_was_cancelled(two: FakeCluster, start: Start) -> None:
    """The CancelledError is not one of the task that reads (Python 3.10 cannot know it)."""
    if not hasattr(asyncio.Task, "cancelling"):
        pytest.skip("Python 3.11")

    async def deserialize(data: bytes) -> Any:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        return await future

    consumer = await start(two, "t", value_deserializer=deserialize)
    for read in (consumer.getone, lambda: consumer.getmany(timeout_ms=5000)):
        with pytest.raises(RecordDeserializationError) as caught:
            await read()
        assert isinstance(caught.value.cause, asyncio.CancelledError)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_deserializer_must_not_read(two: FakeCluster, start: Start, is_late: bool) -> None:
    async def deserialize(data: bytes) -> Any:
        if is_late:
            await asyncio.sleep(0)
        return await consumer.getone()

    consumer = await start(two, "t", value_deserializer=deserialize)
    consumer.pause(T1)
    with pytest.raises(RecordDeserializationError) as caught:
        await consumer.getone()
    assert isinstance(caught.value.cause, IllegalStateError)


async def test_a_timeout_within_a_deserializer(two: FakeCluster, start: Start) -> None:
    async def deserialize(data: bytes) -> str:
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(0.001):
                await asyncio.Event().wait()
        return "in time"

    consumer = await start(two, "t", value_deserializer=deserialize)
    records = [*(await by_getone(consumer, 2)), *(await by_getmany(consumer, 4, 2))]
    assert {record.value for record in records} == {"in time"}


def test_health_shows_a_deserializer_that_waits_long() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 3)
            gate = Gate(1)
            async with AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                value_deserializer=gate,
            ) as consumer:
                call = asyncio.create_task(consumer.getmany(timeout_ms=1000))
                await gate.entered.wait()
                await asyncio.sleep(6)
                stalled = {wait.what: wait.reason for wait in consumer.health().stalled}
                assert stalled == {"a deserializer (t-0)": "the deserializer has not returned"}
                gate.opened.set()
                assert len((await call)[T0]) == 2  # the time is over
                assert consumer.health().stalled == ()

    simulate(main)


# -- contexts


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_deserializer_gets_a_context(
    cluster: FakeCluster, start: Start, is_late: bool
) -> None:
    seen: list[Any] = []

    class Schema:
        def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> Any:
            return self._deserialize(data, ctx)

        async def _deserialize(
            self, data: bytes | None, ctx: SerializationContext | None
        ) -> bytes | None:
            assert ctx is not None and isinstance(ctx.headers, list)
            if is_late:
                await asyncio.sleep(0)
            seen.append((ctx.topic, ctx.field, [*ctx.headers]))
            ctx.headers.append(("h", b""))
            return data

    await cluster.create_topic("t")
    for _ in range(3):
        cluster.log("t").append(b"v", b"k", headers=[("id", b"1")])
    schema = Schema()
    consumer = await start(cluster, "t", key_deserializer=schema, value_deserializer=schema)
    records = [await consumer.getone(), *(await by_getmany(consumer, 2))]
    assert [record.headers for record in records] == 3 * [(("id", b"1"),)]
    fields = [MessageField.KEY, MessageField.VALUE]
    assert seen == [("t", field, [("id", b"1")]) for field in itertools.islice(fields * 3, 6)]


class OfKafkaPython:
    def deserialize(self, topic: str, headers: list[Any], data: bytes) -> Any:
        return topic, headers, data


class OfKafkaPython2:
    def deserialize(self, topic: str, data: bytes) -> Any:
        return topic, data


async def test_deserializers_of_kafka_python(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    cluster.log("t").append(b"v", b"k", headers=[("id", b"1")])
    consumer = await start(
        cluster, "t", key_deserializer=OfKafkaPython2(), value_deserializer=OfKafkaPython()
    )
    record = await consumer.getone()
    assert (record.key, record.value) == (("t", b"k"), ("t", [("id", b"1")], b"v"))


async def test_interceptors_drop_any_number_of_records_in_one_call(
    cluster: FakeCluster, start: Start
) -> None:
    class Drops(ConsumerInterceptor):
        def on_consume(self, records: Records) -> Records:
            return {
                tp: [record for record in some if record.value in (0, count)]
                for tp, some in records.items()
            }

    def every_second(data: bytes) -> Any:
        return later(data) if int(data) % 2 else int(data)

    count = 3000
    await cluster.create_topic("t")
    fill(cluster, 0, count + 1, batch=500)
    consumer = await start(cluster, "t", value_deserializer=every_second, interceptors=[Drops()])
    assert [(await consumer.getone()).value for _ in range(2)] == [0, count]
