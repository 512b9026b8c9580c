"""`async for` over a consumer, and other uses of its iterator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRecord, ConsumerStoppedError
from aiokafka.errors import RecordDeserializationError
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, Start, fill

Record = ConsumerRecord[Any, Any]


@pytest.fixture
async def consumer(cluster: FakeCluster, start: Start) -> AIOKafkaConsumer:
    """Return a consumer of 1,000 records in batches of 100, the first of which it has read."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1000, batch=100)
    consumer = await start(cluster, "t")
    assert (await consumer.getone()).offset == 0
    return consumer


async def offsets(records: AsyncIterator[Record], end: int) -> list[int]:
    """Return the offsets of all records until that before `end`."""
    seen = []
    async for record in records:
        seen.append(record.offset)
        if record.offset == end - 1:
            break
    return seen


async def test_every_record_comes_once_in_order(consumer: AIOKafkaConsumer) -> None:
    assert await offsets(aiter(consumer), 1000) == list(range(1, 1000))
    assert await consumer.position(T0) == 1000


async def test_loops_and_calls_read_on_from_each_other(consumer: AIOKafkaConsumer) -> None:
    first, second = aiter(consumer), aiter(consumer)
    found = [await anext(first), await anext(second), await consumer.getone(), await anext(first)]
    found += [
        record for batch in (await consumer.getmany(max_records=3)).values() for record in batch
    ]
    found.append(await anext(second))
    assert [record.offset for record in found] == list(range(1, 9))


async def test_a_call_that_never_began_has_taken_nothing(consumer: AIOKafkaConsumer) -> None:
    records = aiter(consumer)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(anext(records), 0)
    task = asyncio.create_task(anext(records))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    anext(records).close()
    with pytest.raises(KeyError):
        anext(records).throw(KeyError("k"))
    assert (await anext(records)).offset == 1


async def test_a_call_that_waits_can_be_cancelled_and_takes_nothing(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    records = aiter(consumer)
    await offsets(records, 1000)
    task = asyncio.create_task(anext(records))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fill(cluster, 0, 1)
    assert (await anext(records)).offset == 1000


async def test_a_call_passes_for_a_coroutine(consumer: AIOKafkaConsumer) -> None:
    records = aiter(consumer)
    step = anext(records)
    assert asyncio.iscoroutine(step) and inspect.isawaitable(step)
    assert (await asyncio.create_task(step)).offset == 1
    both = await asyncio.gather(anext(records), anext(records))
    assert [record.offset for record in both] == [2, 3]
    assert (await asyncio.wait_for(anext(records), 5)).offset == 4
    assert (await asyncio.ensure_future(anext(records))).offset == 5


async def test_a_call_is_awaited_once(consumer: AIOKafkaConsumer) -> None:
    step = anext(aiter(consumer))
    assert (await step).offset == 1
    with pytest.raises(RuntimeError, match="already awaited"):
        await step
    assert (await consumer.getone()).offset == 2


async def test_a_call_that_is_awaited_twice_at_a_time(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    """The second task is refused at once; the first one waits on."""
    records = aiter(consumer)
    await offsets(records, 1000)
    step = anext(records)

    async def read() -> Record:
        return await step

    first = asyncio.create_task(read())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="being awaited already"):
        await asyncio.wait_for(read(), 5)
    fill(cluster, 0, 1)
    assert (await first).offset == 1000


async def test_what_replaces_getone_gets_every_record(cluster: FakeCluster, start: Start) -> None:
    class Counting(AIOKafkaConsumer[Any, Any]):
        seen = 0

        async def getone(self, *partitions: Any) -> Record:
            self.seen += 1
            return await super().getone(*partitions)

    await cluster.create_topic("t")
    fill(cluster, 0, 300)
    consumer = await start(cluster, "t", kind=Counting)
    await offsets(aiter(consumer), 300)
    assert consumer.seen == 300


async def test_what_replaces_getone_meanwhile_gets_records_soon(
    consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = AIOKafkaConsumer.getone, []

    async def traced(self: AIOKafkaConsumer, *partitions: Any) -> Record:
        record = await plain(self, *partitions)
        seen.append(record.offset)
        return record

    records = aiter(consumer)
    await offsets(records, 50)
    monkeypatch.setattr(AIOKafkaConsumer, "getone", traced)
    await offsets(records, 500)
    assert seen == list(range(seen[0], 500)) and seen[0] <= 50 + 128
    monkeypatch.undo()
    await offsets(records, 1000)
    assert seen[-1] < 500 + 128


async def test_what_replaces_getone_of_one_consumer_gets_every_record(
    consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = consumer.getone, []

    async def traced(*partitions: Any) -> Record:
        record = await plain(*partitions)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(consumer, "getone", traced)
    assert await offsets(aiter(consumer), 300) == seen == list(range(1, 300))


@pytest.mark.parametrize("way", ["loop", "getone", "getmany"])
async def test_a_slow_body_does_not_keep_other_tasks_waiting_for_the_next_records(
    consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    loop = asyncio.get_running_loop()
    began_at, worked = loop.time(), 0.0
    monkeypatch.setattr(loop, "time", lambda: began_at + worked)
    seen, seen_at_turns = 0, [0]

    async def other() -> None:
        while True:
            seen_at_turns.append(seen)
            await asyncio.sleep(0)

    async def one_by_one() -> AsyncIterator[Record]:
        while True:
            if way == "getone":
                yield await consumer.getone()
            else:
                for batch in (await consumer.getmany(timeout_ms=1000, max_records=1)).values():
                    yield batch[0]

    task = asyncio.create_task(other())
    async for record in consumer if way == "loop" else one_by_one():
        seen += 1
        # Without an await: the first ones take no time.
        worked += 0.05 if seen > 500 else 0
        if record.offset == 900:
            break
    task.cancel()
    slow = [seen for seen in seen_at_turns if seen > 500]
    assert slow[0] <= 500 + 128
    assert max(b - a for a, b in pairwise(slow)) == 1


async def test_what_another_task_has_in_hand_is_not_finished_by_stopping(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1000, batch=1000)
    consumer = await start(cluster, "t", group_id="g")
    records = aiter(consumer)
    await offsets(records, 500)
    has_one, is_allowed = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async for record in records:
            assert record.offset == 500
            has_one.set()
            await is_allowed.wait()

    task = asyncio.create_task(work())
    await has_one.wait()
    await consumer.stop()
    assert cluster.groups.committed("g", "t") == 500
    is_allowed.set()
    await task


async def test_an_error_is_raised_in_its_place_and_again(
    cluster: FakeCluster, start: Start
) -> None:
    def refuse(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError("bad")
        return value

    await cluster.create_topic("t")
    for value in (b"a", b"bad", b"c"):
        cluster.log("t").append(value)
    consumer = await start(cluster, "t", value_deserializer=refuse)
    seen = []
    for _ in range(2):
        with pytest.raises(RecordDeserializationError):
            async for record in consumer:
                seen.append(record.offset)
    consumer.seek(T0, 2)
    seen.append((await anext(aiter(consumer))).offset)
    assert seen == [0, 2]


async def test_the_end_is_that_of_the_consumer(consumer: AIOKafkaConsumer) -> None:
    records = aiter(consumer)
    await consumer.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(records)
    with pytest.raises(ConsumerStoppedError):
        aiter(consumer)


async def test_a_call_with_a_default_takes_nothing_before_it_begins(
    consumer: AIOKafkaConsumer,
) -> None:
    records = aiter(consumer)
    task = asyncio.create_task(anext(records, None))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    record = await anext(records, None)
    assert record is not None and record.offset == 1


async def test_a_call_with_a_default_waits(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    records = aiter(consumer)
    await offsets(records, 1000)
    task = asyncio.create_task(anext(records, None))
    await asyncio.sleep(0)
    fill(cluster, 0, 1)
    record = await task
    assert record is not None and record.offset == 1000
    await consumer.stop()
    assert await anext(records, None) is None


async def test_a_task_of_a_call_that_has_ended_is_refused(consumer: AIOKafkaConsumer) -> None:
    step = anext(aiter(consumer))
    assert (await asyncio.create_task(step)).offset == 1
    with pytest.raises(RuntimeError, match="already awaited"):
        await asyncio.create_task(step)
    with pytest.raises(RuntimeError, match="already awaited"):
        step.throw(KeyError("k"))
    step.close()
