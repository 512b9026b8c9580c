"""`on_deserialization_error`: records that a deserializer cannot read are skipped, or returned as
bytes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import RecordDeserializationError
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, fill, queued

COUNT = 12
BAD = {0, 4, 5, 9, 10, 11}  # first and last of a batch, of the log, and of neither
GOOD = sorted(set(range(COUNT)) - BAD)


def plain(data: bytes) -> int:
    if int(data) in BAD:
        raise ValueError(data)
    return int(data)


async def at_once(data: bytes) -> int:
    return plain(data)


async def later(data: bytes) -> int:
    await asyncio.sleep(0)
    return plain(data)


def by_turns(data: bytes) -> Any:
    return later(data) if int(data) % 3 == 0 else plain(data)


FORMS = pytest.mark.parametrize("deserializer", [plain, at_once, later, by_turns])


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two partitions with numbered records, in batches of five."""
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        for partition in (0, 1):
            fill(fake, partition, COUNT, batch=5)
        yield fake
        assert fake.failures == []


async def by_getone(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


async def by_loop(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


async def by_getmany(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for some in (await consumer.getmany(timeout_ms=5000, max_records=4)).values():
            found += some
    return found


READS = pytest.mark.parametrize("read", [by_getone, by_loop, by_getmany])
Read = Callable[[AIOKafkaConsumer, int], Any]


class Keeps(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_consume(self, records: Records) -> None:
        self.seen += [record.value for some in records.values() for record in some]


class KeepsLater(Keeps):
    async def on_consume(self, records: Records) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_consume(records)


INTERCEPTORS = pytest.mark.parametrize("kind", [None, Keeps, KeepsLater])


@INTERCEPTORS
@READS
@FORMS
async def test_skip_leaves_unreadable_records_out(
    two: FakeCluster, start: Start, deserializer: Any, read: Read, kind: Any
) -> None:
    interceptors = [kind()] if kind else []
    consumer = await start(
        two,
        "t",
        value_deserializer=deserializer,
        on_deserialization_error="skip",
        interceptors=interceptors,
    )
    records = await read(consumer, 2 * len(GOOD))
    for partition in (0, 1):
        found = [record for record in records if record.partition == partition]
        assert [record.value for record in found] == [record.offset for record in found] == GOOD
    assert all(record.deserialization_error is None for record in records)
    for each in interceptors:
        assert sorted(each.seen) == sorted(2 * GOOD)
    # The last records of the log are unreadable: the position still reaches the end.
    assert await consumer.getmany(timeout_ms=50) == {}
    assert [await consumer.position(tp) for tp in (T0, T1)] == [COUNT, COUNT]
    assert consumer.health().unreadable == 2 * len(BAD)
    metrics = consumer.metrics()
    assert metrics.value("records-unreadable-total") == 2 * len(BAD)
    assert metrics.value("records-unreadable-total", topic="t") == 2 * len(BAD)
    assert metrics.value("records-consumed-total") == 2 * len(GOOD)


@INTERCEPTORS
@READS
@FORMS
async def test_raw_returns_unreadable_records_as_bytes(
    two: FakeCluster, start: Start, deserializer: Any, read: Read, kind: Any
) -> None:
    interceptors = [kind()] if kind else []
    consumer = await start(
        two,
        "t",
        value_deserializer=deserializer,
        on_deserialization_error="raw",
        interceptors=interceptors,
    )
    records = await read(consumer, 2 * COUNT)
    expected = [b"%d" % n if n in BAD else n for n in range(COUNT)]
    for partition in (0, 1):
        found = [record for record in records if record.partition == partition]
        assert [record.value for record in found] == expected
    for record in records:
        error = record.deserialization_error
        assert (error is not None) == (record.offset in BAD)
        if error is not None:
            assert isinstance(error, RecordDeserializationError)
            assert isinstance(error.cause, ValueError)
            assert error.record is record and error.offset == record.offset
    for each in interceptors:
        assert each.seen == [record.value for record in records]
    assert consumer.health().unreadable == 2 * len(BAD)


async def test_raw_keeps_the_bytes_of_key_and_value(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    cluster.log("t", 0).extend([(b"7", b"x", [("h", b"1")]), (b"y", b"8", ()), (b"9", b"10", ())])
    consumer = await start(
        cluster,
        "t",
        key_deserializer=int,
        value_deserializer=int,
        on_deserialization_error="raw",
    )
    first, second, third = await by_getone(consumer, 3)
    assert (first.key, first.value, first.headers) == (b"7", b"x", (("h", b"1"),))
    assert (second.key, second.value) == (b"y", b"8")
    assert (third.key, third.value) == (9, 10)
    assert first.deserialization_error.part == "value"
    assert second.deserialization_error.part == "key"
    copy = pickle.loads(pickle.dumps(third))
    assert copy == third and copy.deserialization_error is None


@pytest.mark.parametrize("deserializer", [plain, later])
async def test_a_commit_includes_skipped_records(
    two: FakeCluster, start: Start, deserializer: Any
) -> None:
    consumer = await start(
        two,
        "t",
        group_id="g",
        value_deserializer=deserializer,
        on_deserialization_error="skip",
    )
    await by_getmany(consumer, 2 * len(GOOD))
    assert await consumer.getmany(timeout_ms=50) == {}
    await consumer.stop()
    other = await start(two, assign=[T0, T1], group_id="g")
    assert [await other.committed(tp) for tp in (T0, T1)] == [COUNT, COUNT]


async def nothing(data: bytes) -> int:
    await asyncio.sleep(0)
    raise ValueError(data)


@pytest.mark.parametrize("deserializer", [nothing, int], ids=["async", "plain"])
async def test_getmany_ends_at_its_timeout_if_all_records_are_skipped(
    cluster: FakeCluster, start: Start, deserializer: Any
) -> None:
    await cluster.create_topic("t")
    log = cluster.log("t", 0)
    consumer = await start(
        cluster, "t", value_deserializer=deserializer, on_deserialization_error="skip"
    )

    async def write() -> None:
        while True:
            log.extend([(None, b"x", ())])
            await asyncio.sleep(0.001)

    writer = asyncio.create_task(write())
    try:
        assert await asyncio.wait_for(consumer.getmany(timeout_ms=100), 30) == {}
        assert consumer.health().unreadable > 0
    finally:
        writer.cancel()


async def test_a_cancelled_call_returns_neither_records_nor_skips(
    two: FakeCluster, start: Start
) -> None:
    entered, opened = asyncio.Event(), asyncio.Event()

    async def gate(data: bytes) -> int:
        if int(data) == 4:
            entered.set()
            await opened.wait()
        return plain(data)

    consumer = await start(
        two, assign=[T0], value_deserializer=gate, on_deserialization_error="skip"
    )
    task = asyncio.create_task(consumer.getmany(timeout_ms=5000))
    await entered.wait()
    assert await consumer.position(T0) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    opened.set()
    assert [record.value for record in await by_getone(consumer, len(GOOD))] == GOOD


async def test_at_most_one_log_line_a_minute(
    two: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka")
    consumer = await start(
        two, assign=[T0], value_deserializer=plain, on_deserialization_error="skip"
    )
    await by_getone(consumer, len(GOOD))
    lines = [each for each in caplog.records if "deserializer" in each.getMessage()]
    assert len(lines) == 1
    text = lines[0].getMessage()
    assert "the value deserializer raised ValueError(b'0') for offset 0 of" in text
    assert text.endswith("the record is skipped")
    assert lines[0].topic == "t"  # type: ignore[attr-defined]


async def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="on_deserialization_error"):
        AIOKafkaConsumer("t", on_deserialization_error="ignore")


# -- a deserializer that asks a cancelled task for its result


def its_result(data: bytes) -> int:
    """Raise CancelledError when it is called, although nobody cancels the reader."""
    future = asyncio.get_running_loop().create_future()
    if int(data) in BAD:
        future.cancel()
    else:
        future.set_result(int(data))
    return future.result()  # type: ignore[no-any-return]


async def awaited_result(data: bytes) -> int:
    """The same in the first step of an awaitable."""
    return its_result(data)


@READS
@pytest.mark.parametrize("deserializer", [its_result, awaited_result])
async def test_a_cancelled_task_of_a_deserializer_cancels_no_reader(
    two: FakeCluster, start: Start, deserializer: Any, read: Read
) -> None:
    consumer = await start(
        two, assign=[T0], value_deserializer=deserializer, on_deserialization_error="skip"
    )
    assert [record.value for record in await read(consumer, len(GOOD))] == GOOD


@pytest.mark.parametrize("deserializer", [its_result, awaited_result])
async def test_the_cancelled_task_is_the_cause(
    two: FakeCluster, start: Start, deserializer: Any
) -> None:
    consumer = await start(two, assign=[T0], value_deserializer=deserializer)
    with pytest.raises(RecordDeserializationError) as caught:
        await consumer.getone()
    assert isinstance(caught.value.cause, asyncio.CancelledError)
    assert caught.value.offset == 0


@READS
async def test_other_tasks_run_while_many_records_are_skipped(
    cluster: FakeCluster, start: Start, read: Read
) -> None:
    """All of them were deserialized in one iteration of the event loop."""
    await cluster.create_topic("t")
    cluster.log("t").extend([(None, b"bad", ())] * 3000)
    cluster.log("t").extend([(None, b"1", ())])
    turns, calls = 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def deserializer(data: bytes) -> int:
        calls[turns] += 1
        return int(data)

    counting = asyncio.create_task(count_turns())
    consumer = await start(
        cluster, "t", value_deserializer=deserializer, on_deserialization_error="skip"
    )
    (record,) = await read(consumer, 1)
    counting.cancel()
    assert (record.offset, record.value) == (3000, 1)
    assert max(calls.values()) <= 200
    assert consumer.health().unreadable == 3000


async def test_a_cancelled_skip_goes_on_with_the_next_call(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    cluster.log("t").extend([(None, b"bad", ())] * 1000)
    cluster.log("t").extend([(None, b"1", ())])
    consumer = await start(cluster, "t", value_deserializer=int, on_deserialization_error="skip")
    await cluster.wait_for(lambda: queued(consumer) == [1])
    found = None
    for _ in range(100):
        reading = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if reading.done():
            found = reading.result()
            break
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert found is not None
    assert found.offset == 1000
    assert consumer.health().unreadable == 1000
