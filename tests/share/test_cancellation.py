"""Calls of a share consumer that are cancelled at each turn of the event loop: no record is lost,
held, or accepted twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaShareConsumer, ShareRecord
from aiokafka.errors import ConsumerStoppedError
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import SimulatedLoop
from tests.support.share import T0, Start, fill, is_empty, offsets, take

Consumer = AIOKafkaShareConsumer[Any, Any]
Records = list[ShareRecord[Any, Any]]
Read = Callable[[Consumer], Coroutine[Any, Any, Records]]

IMPLICIT: Any = {"share_acknowledgement_mode": "implicit"}

# Less than the duration of locks: records that are held come later.
SOON = 5


@pytest.fixture(autouse=True)
async def quick(cluster: FakeCluster) -> None:
    """No latency: in each turn, something happens that a cancellation could disturb."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulatedLoop):
        for server in cluster.bootstrap_servers.split(","):
            host, port = server.split(":")
            loop.network.line(host, int(port)).latency = (0.0, 0.0)


class Cancellations:
    """Cancels calls, each one turn later than the call before, until a call ends by itself."""

    def __init__(self) -> None:
        self.count = 0
        self._is_last = False

    def __iter__(self) -> Iterator[int]:
        """Yield the number of the calls before."""
        while not self._is_last:
            yield self.count
            self.count += 1
            assert self.count < 500, "the call does not end"

    async def cancel(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of `call`; None if it was cancelled."""
        task = asyncio.ensure_future(call)
        for _ in range(self.count + 1):
            if task.done():
                break
            await asyncio.sleep(0)
        self._is_last = task.done()
        task.cancel()
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()


async def getone(consumer: Consumer) -> Records:
    return [await consumer.getone()]


async def getmany(consumer: Consumer) -> Records:
    found = await consumer.getmany(timeout_ms=1000, max_records=2)
    return [record for records in found.values() for record in records]


async def anext_(consumer: Consumer) -> Records:
    return [await consumer.__anext__()]


READS = pytest.mark.parametrize("read", [getone, getmany, anext_])


def fill_batch(cluster: FakeCluster, count: int) -> None:
    """Append records in one batch, which a broker acquires as a whole."""
    cluster.log("t").extend([(None, b"value", ())] * count)


def accepted(cluster: FakeCluster) -> list[int]:
    """Return the offsets that were accepted, each as often as it was."""
    return sorted(
        offset
        for event in cluster.groups.share_events("g")
        if event.kind == "accepted"
        for offset in range(event.first, event.last + 1)
    )


@READS
async def test_a_cancelled_read_consumes_nothing(
    cluster: FakeCluster, start: Start, read: Read
) -> None:
    consumer = await start()
    cancellations = Cancellations()
    seen: Records = []
    for number in cancellations:
        fill(cluster, 2, first=2 * number)
        seen += await cancellations.cancel(read(consumer)) or ()
        seen += await take(consumer, 2 * number + 2 - len(seen), SOON)
    assert sorted(offsets(seen)) == list(range(2 * cancellations.count))
    assert {record.delivery_count for record in seen} == {1}


@READS
async def test_a_cancelled_read_accepts_the_records_before_once(
    cluster: FakeCluster, start: Start, read: Read
) -> None:
    consumer = await start(**IMPLICIT)
    cancellations = Cancellations()
    count = 0
    for number in cancellations:
        fill(cluster, 2, first=2 * number)
        count += len(await cancellations.cancel(read(consumer)) or ())
        count += len(await take(consumer, 2 * number + 2 - count, SOON))
        await consumer.commit()
        assert accepted(cluster) == list(range(count))


async def test_a_cancelled_commit_keeps_its_acknowledgements(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start()
    cancellations = Cancellations()
    for number in cancellations:
        fill(cluster, 1, first=number)
        (record,) = await take(consumer, 1, SOON)
        consumer.acknowledge(record)
        outcomes = await cancellations.cancel(consumer.commit())
        assert {**(outcomes or {}), **await consumer.commit()} == {T0: None}
        assert accepted(cluster) == list(range(number + 1))


async def test_a_cancelled_block_releases_its_record(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    cancellations = Cancellations()

    async def work() -> bool:
        async for record in consumer:
            async with consumer.processing(record):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await consumer.commit()
            return True
        return False

    for number in cancellations:
        fill(cluster, 1, first=number)
        await cancellations.cancel(work())
        await consumer.commit()
        if len(accepted(cluster)) == number:
            (record,) = await take(consumer, 1, SOON)
            consumer.acknowledge(record)
            await consumer.commit()
        assert accepted(cluster) == list(range(number + 1))


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_cancelled_process_releases_its_records(
    cluster: FakeCluster, start: Start, concurrency: int
) -> None:
    consumer = await start()
    cancellations = Cancellations()
    handled: list[int] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        await asyncio.sleep(0)
        handled.append(record.offset)

    async def process(count: int) -> bool:
        """Process records until `count` have been handled."""
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=concurrency))
        try:
            while len(handled) < count:
                await asyncio.sleep(0)
        finally:
            processing.cancel()
            await asyncio.wait([processing])
        return True

    for number in cancellations:
        count = 3 * number + 3
        fill_batch(cluster, 3)
        await cancellations.cancel(process(count))
        await consumer.commit()
        assert accepted(cluster) == sorted(handled)
        for record in await take(consumer, count - len(handled), SOON):
            handled.append(record.offset)
            consumer.acknowledge(record)
        await consumer.commit()
        assert accepted(cluster) == list(range(count))


async def test_a_stop_at_each_turn_of_process_releases_its_records(
    cluster: FakeCluster, start: Start
) -> None:
    other = await start()

    async def handle(_: ShareRecord[Any, Any]) -> None:
        await asyncio.sleep(0)

    for number in range(40):
        consumer = await start()
        fill_batch(cluster, 3)
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=2))
        for _ in range(number):
            await asyncio.sleep(0)
        await consumer.stop(timeout=0)
        with contextlib.suppress(ConsumerStoppedError):  # it had not begun
            await processing
        count = 3 * number + 3
        for record in await take(other, count - len(accepted(cluster)), SOON):
            other.acknowledge(record)
        await other.commit()
        assert accepted(cluster) == list(range(count))


async def test_a_cancelled_start_leaves_nothing(cluster: FakeCluster, start: Start) -> None:
    cancellations = Cancellations()
    for number in cancellations:
        fill(cluster, 1, first=number)
        consumer: Consumer = AIOKafkaShareConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
        )
        await cancellations.cancel(consumer.start())
        await consumer.stop()
        await cluster.wait_for(lambda: cluster.connections == 0)
    consumer = await start()
    records = await take(consumer, cancellations.count, SOON)
    assert {record.delivery_count for record in records} == {1}


@pytest.mark.parametrize("is_stopped_again", [True, False])
async def test_a_cancelled_stop_holds_no_records(
    cluster: FakeCluster, start: Start, is_stopped_again: bool
) -> None:
    """Of three records, one is acknowledged, one is not, and one was not read."""
    other = await start()
    cancellations = Cancellations()

    async def leave(consumer: Consumer) -> bool:
        await (consumer.stop() if is_stopped_again else consumer.__aexit__(None, None, None))
        return True

    for number in cancellations:
        count = 3 * number + 3
        consumer = await start(max_poll_records=1)
        fill(cluster, 3, first=3 * number)
        first, _ = [*await getone(consumer), *await getone(consumer)]
        consumer.acknowledge(first)
        await cancellations.cancel(leave(consumer))
        if is_stopped_again:
            await consumer.stop()
        seen = await take(other, count - len(accepted(cluster)), SOON)
        for record in seen:
            other.acknowledge(record)
        await other.commit()
        # The acknowledgement may have been cancelled; then the record is delivered again.
        assert accepted(cluster) == list(range(count))


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
async def test_stop_during_a_deserializer_returns_no_records(
    cluster: FakeCluster, start: Start, mode: str
) -> None:
    may_end, is_waiting = asyncio.Event(), asyncio.Event()

    async def slow(data: bytes) -> bytes:
        is_waiting.set()
        await may_end.wait()
        return data

    fill(cluster, 2)
    consumer = await start(value_deserializer=slow, share_acknowledgement_mode=mode)
    reading = asyncio.ensure_future(consumer.getmany(timeout_ms=5000))
    await is_waiting.wait()
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.sleep(0)
    may_end.set()
    # The broker releases them.
    assert await reading == {}
    await stopping
    again = await take(await start(), 2)
    assert [record.delivery_count for record in again] == [2, 2]


async def test_a_record_whose_lock_expires_during_a_deserializer_is_not_returned(
    cluster: FakeCluster, start: Start
) -> None:
    calls = 0

    async def slow(data: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(15)  # the lock lasts ten seconds
        return data

    fill(cluster, 1)
    consumer = await start(value_deserializer=slow)
    record = await consumer.getone()
    assert (record.offset, record.delivery_count) == (0, 2)
    assert consumer.health().expired == 1
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)
