"""Cancel a call at each place where it waits: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.testing import Delay, FakeCluster, Hold
from tests.support.consumers import T0, Start, fill

Call = Callable[[AIOKafkaConsumer], Coroutine[Any, Any, Any]]


async def cancelled_after(steps: int, call: Coroutine[Any, Any, Any]) -> Any:
    """Run `call` for so many turns of the loop, then cancel it; what it returned, else None."""
    task = asyncio.create_task(call)
    for _ in range(steps):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def getone(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.getone()).offset]


async def getmany(consumer: AIOKafkaConsumer) -> list[int]:
    found = await consumer.getmany(timeout_ms=1000, max_records=3)
    return [record.offset for records in found.values() for record in records]


async def anext_(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.__anext__()).offset]


@pytest.mark.parametrize("call", [getone, getmany, anext_])
async def test_a_cancelled_reader_has_taken_nothing(
    cluster: FakeCluster, start: Start, call: Call
) -> None:
    await cluster.create_topic("t")
    cluster.intercept(FetchRequest, Delay(0.001))
    consumer = await start(cluster, "t", max_partition_fetch_bytes=300)
    seen: list[int] = []
    for steps in range(60):
        fill(cluster, 0, 2)
        seen.extend(await cancelled_after(steps % 30, call(consumer)) or ())
        assert await consumer.position(T0) == len(seen)
    while len(seen) < 120:
        seen.extend(await call(consumer))
    assert seen == list(range(120))


OTHER_CALLS: dict[str, Call] = {
    "position": lambda consumer: consumer.position(T0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(T0),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([T0]),
    "end_offsets": lambda consumer: consumer.end_offsets([T0]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({T0: 0}),
    "topics": lambda consumer: consumer.topics(),
}


@pytest.mark.parametrize("name", OTHER_CALLS)
async def test_other_calls_leave_a_working_consumer(
    cluster: FakeCluster, start: Start, name: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t")
    call = OTHER_CALLS[name]
    for steps in range(25):
        await cancelled_after(steps, call(consumer))
    assert await consumer.seek_to_beginning()
    assert [(await consumer.getone()).offset for _ in range(5)] == list(range(5))


async def test_a_cancelled_start_leaves_nothing_open(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    for steps in range(0, 60, 3):
        consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
        await cancelled_after(steps, consumer.start())
        await consumer.stop()
    await cluster.wait_for(lambda: cluster.connections == 0)


@asynccontextmanager
async def closing(
    cluster: FakeCluster,
) -> AsyncIterator[tuple[AIOKafkaConsumer, asyncio.Task[None]]]:
    """A consumer that joins its group when its `start()` is cancelled, which begins to close it."""
    await cluster.create_topic("t")
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **options)
    answer = asyncio.Event()
    with cluster.intercept(JoinGroupRequest, Hold(answer), times=1) as script:
        starting = asyncio.create_task(consumer.start())
        await script.wait()
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done()
        yield consumer, starting
        answer.set()
    await cluster.wait_for(lambda: cluster.connections == 0)


@pytest.mark.parametrize("turns", range(8))
async def test_a_start_that_was_cancelled_twice_can_be_called_again(
    cluster: FakeCluster, turns: int
) -> None:
    """As by a timeout within another one: the second finds it closing what it has begun."""
    async with closing(cluster) as (consumer, starting):
        fill(cluster, 0, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        await consumer.start()
        assert (await consumer.getone()).offset == 0
        await consumer.stop()


@pytest.mark.parametrize("is_cancelled_again", [False, True])
async def test_a_stop_while_a_cancelled_start_closes_is_the_end(
    cluster: FakeCluster, is_cancelled_again: bool
) -> None:
    """A loop that starts the consumer until it succeeds must not outlive `stop()`."""
    async with closing(cluster) as (consumer, starting):
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        if is_cancelled_again:
            starting.cancel()
        await asyncio.wait([starting])
        with pytest.raises(ConsumerStoppedError, match="make a new one"):
            await consumer.start()
        await stopping


async def test_no_start_begins_while_a_cancelled_one_closes(cluster: FakeCluster) -> None:
    async with closing(cluster) as (consumer, starting):
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()
        await asyncio.wait([starting])
        await consumer.start()
        await consumer.stop()


async def test_a_cancelled_stop_can_be_called_again(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    for steps in range(12):
        consumer = await start(cluster, "t")
        await cancelled_after(steps, consumer.stop())
        await consumer.stop()
    await cluster.wait_for(lambda: cluster.connections == 0)


async def test_a_reader_that_times_out_goes_on_later(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(consumer.getone(), 0.05)
    fill(cluster, 0, 1)
    assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 0
