"""`getmany(min_records=, timeout_ms=)`: batches of N records, or after T milliseconds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka._compat import timeout
from aiokafka.consumer.fetch import buffer
from aiokafka.errors import RecordDeserializationError
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, fill

LONG = 60_000


def offsets(batches: dict[Any, list[Any]]) -> dict[int, list[int]]:
    return {tp.partition: [record.offset for record in some] for tp, some in batches.items()}


async def waiting(consumer: AIOKafkaConsumer, cluster: FakeCluster, count: int) -> None:
    """Wait until `getmany` has taken `count` records, and waits for more."""

    def has_taken_all_and_waits() -> bool:
        metrics = consumer.metrics()
        taken = metrics.value("records-consumed-total")
        return taken == count and metrics.value("last-poll-seconds-ago") == 0

    await cluster.wait_for(has_taken_all_and_waits)


async def later(data: bytes) -> int:
    await asyncio.sleep(0)
    return int(data)


@pytest.fixture
async def topic(cluster: FakeCluster) -> FakeCluster:
    await cluster.create_topic("t", partitions=2)
    return cluster


@pytest.mark.parametrize("deserializer", [int, later])
async def test_the_call_returns_with_the_last_record_wanted(
    topic: FakeCluster, start: Start, deserializer: Any
) -> None:
    consumer = await start(topic, "t", value_deserializer=deserializer)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    for count, partition in enumerate((0, 1, 0, 1)):
        fill(topic, partition, 1)
        await waiting(consumer, topic, count + 1)
        assert not task.done()
    fill(topic, 0, 1)
    assert offsets(await task) == {0: [0, 1, 2], 1: [0, 1]}
    assert [await consumer.position(tp) for tp in (T0, T1)] == [3, 2]


async def test_the_call_returns_what_there_is_after_the_timeout(
    topic: FakeCluster, start: Start
) -> None:
    consumer = await start(topic, "t")
    fill(topic, 0, 3)
    assert offsets(await consumer.getmany(min_records=5, timeout_ms=500)) == {0: [0, 1, 2]}
    assert await consumer.getmany(min_records=5, timeout_ms=50) == {}
    fill(topic, 0, 1)
    found: dict[int, list[int]] = {}
    while not found:  # without a timeout, only buffered records
        found = offsets(await consumer.getmany(min_records=5))
        await asyncio.sleep(0)
    assert found == {0: [3]}


async def test_the_limit_applies_to_the_whole_batch(topic: FakeCluster, start: Start) -> None:
    consumer = await start(topic, "t", max_poll_records=6)
    for partition in (0, 1):
        fill(topic, partition, 10, batch=4)
    for _ in range(3):
        found = await consumer.getmany(min_records=6, timeout_ms=LONG)
        assert sum(map(len, found.values())) == 6
    found = await consumer.getmany(min_records=2, max_records=2, timeout_ms=LONG)
    assert sum(map(len, found.values())) == 2


async def test_more_records_than_the_buffer_holds(topic: FakeCluster, start: Start) -> None:
    fill(topic, 0, 400, batch=10)
    consumer = await start(topic, "t", fetch_buffer_memory=1000, max_partition_fetch_bytes=500)
    found = await consumer.getmany(min_records=400, timeout_ms=LONG)
    assert offsets(found) == {0: [*range(400)]}


async def test_a_cancelled_call_consumes_nothing(topic: FakeCluster, start: Start) -> None:
    consumer = await start(topic, "t")
    fill(topic, 0, 3)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    await waiting(consumer, topic, 3)
    assert await consumer.position(T0) == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fill(topic, 0, 2)
    assert offsets(await consumer.getmany(min_records=5, timeout_ms=LONG)) == {0: [0, 1, 2, 3, 4]}
    assert consumer.metrics().value("records-consumed-total") == 5


@pytest.mark.parametrize("at", range(8))
async def test_a_call_cancelled_at_any_turn_consumes_nothing(
    topic: FakeCluster, start: Start, at: int
) -> None:
    consumer = await start(topic, "t", value_deserializer=later)
    fill(topic, 0, 4)
    fill(topic, 1, 4)
    task = asyncio.create_task(consumer.getmany(min_records=8, timeout_ms=LONG))
    for _ in range(at):
        await asyncio.sleep(0)
    task.cancel()
    found: dict[Any, list[Any]] = {}
    try:
        found = await task
    except asyncio.CancelledError:
        found = await consumer.getmany(min_records=8, timeout_ms=LONG)
    assert offsets(found) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


async def test_stop_ends_the_call_and_commits_nothing_of_it(
    topic: FakeCluster, start: Start
) -> None:
    consumer = await start(topic, "t", group_id="g")
    fill(topic, 0, 3)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    await waiting(consumer, topic, 3)
    await consumer.stop()
    assert await task == {}
    other = await start(topic, assign=[T0], group_id="g")
    assert not await other.committed(T0)
    assert offsets(await other.getmany(timeout_ms=LONG)) == {0: [0, 1, 2]}


async def test_a_seek_ends_the_call(topic: FakeCluster, start: Start) -> None:
    consumer = await start(topic, assign=[T0])
    fill(topic, 0, 3)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    await waiting(consumer, topic, 3)
    consumer.seek(T0, 1)
    fill(topic, 0, 1)
    assert offsets(await task) == {0: [0, 1, 2]}
    found = await consumer.getmany(min_records=3, timeout_ms=LONG)
    assert offsets(found) == {0: [1, 2, 3]}


async def test_a_commit_leaves_the_records_out(topic: FakeCluster, start: Start) -> None:
    consumer = await start(topic, "t", group_id="g", enable_auto_commit=False)
    fill(topic, 0, 3)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    await waiting(consumer, topic, 3)
    await consumer.commit()
    assert await consumer.committed(T0) == 0
    fill(topic, 0, 2)
    await task
    await consumer.commit()
    assert await consumer.committed(T0) == 5


async def test_a_revoked_partition_is_read_by_its_new_owner(
    topic: FakeCluster, start: Start
) -> None:
    class Commits(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                await one.commit()

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    one = await start(topic, **options, heartbeat_interval_ms=50)
    one.subscribe(["t"], listener=Commits())
    for partition in (0, 1):
        fill(topic, partition, 3)
    seen: list[tuple[int, int]] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        while True:
            found = await consumer.getmany(min_records=100, timeout_ms=300)
            seen.extend((tp.partition, r.offset) for tp, some in found.items() for r in some)

    first = asyncio.create_task(one.getmany(min_records=100, timeout_ms=LONG))
    await waiting(one, topic, 6)
    two = await start(topic, "t", **options)
    found = await asyncio.wait_for(first, 30)
    seen.extend((tp.partition, r.offset) for tp, some in found.items() for r in some)
    tasks = [asyncio.create_task(read(each)) for each in (one, two)]
    try:
        await topic.wait_for(lambda: len(seen) >= 6)
    finally:
        for task in tasks:
            task.cancel()
    assert sorted(seen) == [(p, n) for p in (0, 1) for n in range(3)]


@pytest.mark.parametrize("deserializer", [int, later])
async def test_records_before_an_unreadable_one_are_returned_at_once(
    topic: FakeCluster, start: Start, deserializer: Any
) -> None:
    consumer = await start(topic, assign=[T0], value_deserializer=deserializer)
    fill(topic, 0, 2)
    task = asyncio.create_task(consumer.getmany(min_records=5, timeout_ms=LONG))
    await waiting(consumer, topic, 2)
    topic.log("t", 0).extend([(None, b"x", ())])
    assert offsets(await task) == {0: [0, 1]}
    with pytest.raises(RecordDeserializationError):
        await consumer.getmany(min_records=5, timeout_ms=LONG)
    consumer.seek(T0, 3)
    fill(topic, 0, 5)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("deserializer", [int, later])
async def test_an_unreadable_record_that_is_buffered_already_ends_the_wait(
    topic: FakeCluster, start: Start, deserializer: Any, batch: int
) -> None:
    consumer = await start(topic, "t", value_deserializer=deserializer)
    log = topic.log("t", 0)
    values = [b"0", b"1", b"x", b"3", b"4"]
    for at in range(0, 5, batch):
        log.extend([(None, value, ()) for value in values[at : at + batch]])
    fill(topic, 1, 2)
    await topic.wait_for(lambda: consumer.lag(T0) == 5 and consumer.lag(T1) == 2)
    async with timeout(10):
        assert offsets(await consumer.getmany(min_records=10, timeout_ms=LONG)) == {
            0: [0, 1],
            1: [0, 1],
        }
        with pytest.raises(RecordDeserializationError):
            await consumer.getmany(min_records=10, timeout_ms=LONG)


async def test_records_that_one_take_left_in_the_buffer_are_not_waited_for(
    topic: FakeCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One take stops after it has decompressed 64 MiB; with two record sets buffered, no fetch
    would wake the call."""
    size = 4 * 1024 * 1024
    if buffer.__file__.endswith(".py"):
        size = 10_000
        monkeypatch.setattr(buffer, "_MOST_UNPACKED", 16 * size)
    for _ in range(40):
        topic.log("t", 0).extend([(None, bytes(size), ())], codec=1)
    consumer = await start(topic, "t")
    await topic.wait_for(lambda: consumer.lag(T0) == 40)
    async with timeout(20):
        found = await consumer.getmany(min_records=40, timeout_ms=LONG)
    assert offsets(found) == {0: [*range(40)]}


async def test_interceptors_get_the_whole_batch(topic: FakeCluster, start: Start) -> None:
    sizes: list[int] = []

    class Counts(ConsumerInterceptor):
        def on_consume(self, records: Records) -> None:
            sizes.append(sum(map(len, records.values())))

    consumer = await start(topic, "t", interceptors=[Counts()])
    task = asyncio.create_task(consumer.getmany(min_records=4, timeout_ms=LONG))
    for partition in (0, 1, 0, 1):
        fill(topic, partition, 1)
        await asyncio.sleep(0)
    assert offsets(await task) == {0: [0, 1], 1: [0, 1]}
    assert sizes == [4]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
async def test_wrong_numbers_are_refused(topic: FakeCluster, start: Start, wrong: Any) -> None:
    consumer = await start(topic, "t")
    error = ValueError if type(wrong) is int else TypeError
    with pytest.raises(error, match="min_records"):
        await consumer.getmany(min_records=wrong, timeout_ms=10)


async def test_more_than_the_limit_is_refused(topic: FakeCluster, start: Start) -> None:
    consumer = await start(topic, "t", max_poll_records=10)
    with pytest.raises(ValueError, match="min_records=11: must not be more than max_records"):
        await consumer.getmany(min_records=11, timeout_ms=10)
    with pytest.raises(ValueError, match="which is 3"):
        await consumer.getmany(min_records=4, max_records=3, timeout_ms=10)
