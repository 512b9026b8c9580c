"""Races of a table: positions, partitions, calls and stops that overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, LeaderNotAvailableError
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.structs import RecordMetadata
from aiokafka.tables import CompactedTable
from aiokafka.testing import Edit, Fail, FakeCluster, Hold, Interception, RequestContext
from tests.tables.support import brief, make_table, read, replay, write

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
EARLIEST, LATEST = -2, -1
IMPATIENT: Any = {
    "default_api_timeout_ms": 1000,
    "request_timeout_ms": 900,
    "metadata_max_age_ms": 200,
}


async def recreate(cluster: FakeCluster, partitions: int) -> None:
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions)


def look_ups(tp: TopicPartition, timestamp: int) -> Callable[[Any], bool]:
    """Return whether a ListOffsets request asks only for this partition and timestamp."""

    def matches(request: Any) -> bool:
        asked = [(p.partition_index, p.timestamp) for t in request.topics for p in t.partitions]
        return asked == [(tp.partition, timestamp)]

    return matches


def hold(
    cluster: FakeCluster, release: asyncio.Event, matches: Callable[[Any], bool]
) -> asyncio.Event:
    """Hold the first request that matches until `release`. Return the event of its arrival."""
    arrived = asyncio.Event()

    def handle(request: Any, _: object) -> Hold | None:
        if arrived.is_set() or not matches(request):
            return None
        arrived.set()
        return Hold(release)

    cluster.intercept(ListOffsetsRequest, handle)
    return arrived


def refuse(
    cluster: FakeCluster, matches: Callable[[Any], bool]
) -> tuple[Interception, asyncio.Event]:
    """Refuse requests that match, which are sent again. Return the event of the first one."""
    arrived = asyncio.Event()

    def handle(request: Any, _: object) -> Fail | None:
        if not matches(request):
            return None
        arrived.set()
        return Fail(LeaderNotAvailableError)

    return cluster.intercept(ListOffsetsRequest, handle), arrived


def metadata(tp: TopicPartition, offset: int) -> RecordMetadata:
    return RecordMetadata(tp.topic, tp.partition, tp, offset, 0, 0, 0)


def loaders(partition: int) -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == f"table:load-{partition}"]


async def test_a_position_is_lost_again_while_the_end_is_looked_up(cluster: FakeCluster) -> None:
    write(cluster, b"a", b"0")
    write(cluster, b"b", b"0")
    # Each load of six bytes fits into the table; two of them do not.
    async with timeout(60), make_table(cluster, metadata_max_age_ms=200, max_bytes=8) as table:
        stream = table.changes()
        refused, arrived = refuse(cluster, look_ups(T0, LATEST))
        await recreate(cluster, 2)
        for key in (b"a", b"c", b"d"):
            write(cluster, key, b"1")
        await arrived.wait()
        await cluster.wait_for(lambda: table.health().lag == 0)
        calls = [
            asyncio.ensure_future(table.read_to_end()),
            asyncio.ensure_future(table.read_past(metadata(T0, 2))),
        ]
        await asyncio.sleep(1)
        assert not any(call.done() for call in calls)
        assert table == {b"a": b"0", b"b": b"0"}
        assert table.health().loading == (0,)

        await recreate(cluster, 2)
        await cluster.wait_for(lambda: table.health().rereads == 4)
        for number in range(9):
            write(cluster, b"a", b"%d" % number)
        for key in (b"e", b"f"):
            write(cluster, key, b"2")
        write(cluster, b"c", b"2")
        write(cluster, b"c", None)
        refused.remove()
        for call in calls:
            await call
        await table.read_to_end()
        assert table == replay(cluster) == {b"a": b"8", b"e": b"2", b"f": b"2"}
        assert sorted(brief(await read(stream, stream.pending))) == [
            (b"a", b"0", b"8"),
            (b"b", b"0", None),
            (b"e", None, b"2"),
            (b"f", None, b"2"),
        ]
        health = table.health()
        assert (health.rereads, health.loading, table.nbytes) == (4, (), 6)


async def test_a_partition_is_removed_while_it_is_read_again() -> None:
    async with timeout(30), FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", 2, replication_factor=2)
        cluster.move_leader(T1, 1)
        write(cluster, b"q", b"0", 1)
        async with make_table(cluster, **IMPATIENT) as table:
            stream = table.changes()
            with cluster.intercept(FetchRequest, Hold(asyncio.Event()), broker=1) as held:
                await held.wait()
                await cluster.delete_topic("t")
                await cluster.create_topic("t", 2, replication_factor=2)
                cluster.move_leader(T1, 1)
                write(cluster, b"q", b"2", 1)
                await cluster.wait_for(lambda: table.health().rereads == 2)
                await cluster.wait_for(lambda: table.health().loading == (1,))
                await recreate(cluster, 1)
                assert brief(await read(stream, 1)) == [(b"q", b"0", None)]
            while loaders(1):
                await asyncio.wait(loaders(1))
            await table.read_to_end()
            assert table == {}
            assert table.health().lag == 0
            assert table.snapshot().offsets == {T0: 0}


async def test_a_removed_partition_is_added_again_while_its_beginning_is_looked_up() -> None:
    async with timeout(60), FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", 2, replication_factor=2)
        cluster.move_leader(T1, 1)
        write(cluster, b"q", b"0", 1)
        async with make_table(cluster, metadata_max_age_ms=200) as table:
            stream = table.changes()
            release = asyncio.Event()
            arrived = hold(cluster, release, look_ups(T1, EARLIEST))
            await cluster.delete_topic("t")
            await cluster.create_topic("t", 2, replication_factor=2)
            cluster.move_leader(T1, 1)
            await arrived.wait()
            await recreate(cluster, 1)
            assert brief(await read(stream, 1)) == [(b"q", b"0", None)]
            cluster.add_partitions("t", 2)
            cluster.move_leader(T1, 0)
            for number in range(3):
                write(cluster, b"q", b"%d" % number, 1)
            await read(stream, 3)
            release.set()
            while loaders(1):
                await asyncio.wait(loaders(1))
            write(cluster, b"q", None, 1)
            assert brief(await read(stream, 1)) == [(b"q", b"2", None)]
            await table.read_to_end()
            assert table == {}


async def test_a_partition_is_missing_for_short_times(cluster: FakeCluster) -> None:
    write(cluster, b"q", b"1", 1)
    async with timeout(60), make_table(cluster, metadata_max_age_ms=200) as table:
        stream = table.changes()
        for _ in range(3):
            await recreate(cluster, 1)
            await asyncio.sleep(3)
            cluster.add_partitions("t", 2)
            write(cluster, b"q", b"1", 1)
            await asyncio.sleep(3)  # the metadata is refreshed
        await table.read_to_end()
        assert table == {b"q": b"1"}
        assert stream.pending == 0


async def test_calls_wait_for_an_added_partition(cluster: FakeCluster) -> None:
    async with timeout(60), make_table(cluster, metadata_max_age_ms=200) as table:
        refused, arrived = refuse(cluster, look_ups(T2, EARLIEST))
        cluster.add_partitions("t", 3)
        write(cluster, b"k", b"1", 2)
        calls = [asyncio.ensure_future(table.read_past(metadata(T2, 0)))]
        await arrived.wait()
        assert table.health().loading == (2,)
        assert table.snapshot().offsets == {T0: 0, T1: 0}
        calls.append(asyncio.ensure_future(table.read_to_end()))
        await asyncio.sleep(1)
        assert not any(call.done() for call in calls)
        refused.remove()
        for call in calls:
            await call
            assert table == {b"k": b"1"}


async def test_an_added_partition_is_read_once(cluster: FakeCluster) -> None:
    async with make_table(cluster, **IMPATIENT) as table:
        stream = table.changes()
        refused, _ = refuse(cluster, look_ups(T2, LATEST))
        cluster.add_partitions("t", 3)
        for number in range(2):
            write(cluster, b"k", b"%d" % number, 2)
        await cluster.wait_for(lambda: "KafkaTimeoutError" in str(table.health().last_error))
        refused.remove()
        await table.read_to_end()
        found = await read(stream, stream.pending)
        assert brief(found) == [(b"k", None, b"0"), (b"k", b"0", b"1")]


async def test_records_after_the_call_are_not_awaited(cluster: FakeCluster) -> None:
    release, never = asyncio.Event(), asyncio.Event()

    def handle(request: Any, _: object) -> Hold:
        offsets = [p.fetch_offset for t in request.topics for p in t.partitions]
        return Hold(never if 2 in offsets else release)

    async with timeout(60), make_table(cluster, max_partition_fetch_bytes=1) as table:
        with cluster.intercept(FetchRequest, handle) as held:
            write(cluster, b"k", b"0")  # the response to the request that waits at the broker
            await held.wait()
            write(cluster, b"k", b"1")
            waiting = asyncio.ensure_future(table.read_to_end())
            await asyncio.sleep(4)
            write(cluster, b"k", b"2")
            await asyncio.sleep(2)
            release.set()
            await waiting
            assert table == {b"k": b"1"}
        never.set()


async def test_records_that_the_table_does_not_get_yet_are_awaited(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with timeout(60), make_table(cluster, request_timeout_ms=60_000) as table:
        held: set[int] = set()

        def handle(_: object, context: RequestContext) -> Hold | None:
            held.add(min(held, default=context.connection_id))
            return Hold(release) if context.connection_id in held else None

        with cluster.intercept(FetchRequest, handle) as intercepted:
            await intercepted.wait()
            write(cluster, b"k", b"1")
            waiting = asyncio.ensure_future(table.read_to_end())
            # Other fetches find records, so the table has not reached the end.
            await intercepted.wait(3, timeout_s=20)
            await asyncio.sleep(6)
            assert not waiting.done()
            release.set()
            await waiting
            assert table == {b"k": b"1"}


async def test_an_end_of_a_former_topic_is_looked_up_again(cluster: FakeCluster) -> None:
    def change(response: Any) -> None:
        response.topics[0].partitions[0].offset += 100

    write(cluster, b"k", b"1")
    async with timeout(60), make_table(cluster) as table:
        with cluster.intercept(ListOffsetsRequest, Edit(change), times=1):
            await table.read_to_end()
        cluster.forget_requests()
        write(cluster, b"k", b"2")
        await table.read_to_end()
        assert table == {b"k": b"2"}
        # A call that is woken by its record needs no second look-up.
        assert cluster.count(ListOffsetsRequest) == 1


async def start_twice(table: CompactedTable[Any, Any]) -> None:
    with pytest.raises(IllegalStateError, match="started before"):
        await table.start()


async def test_two_tasks_start_a_table(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    table = make_table(cluster)
    starting = asyncio.ensure_future(table.start())
    await asyncio.sleep(0)
    assert table.health().state == "starting"
    await start_twice(table)
    await starting
    await start_twice(table)
    assert table == {b"k": b"1"}
    await table.stop()
    await start_twice(table)


@pytest.mark.parametrize("rounds", range(1, 100, 3))
async def test_stop_at_any_time_of_start(cluster: FakeCluster, rounds: int) -> None:
    write(cluster, b"k", b"1")
    table = make_table(cluster)
    starting = asyncio.ensure_future(table.start())
    for _ in range(rounds):
        await asyncio.sleep(0)
    is_started = starting.done()
    await table.stop()
    if not is_started:
        with pytest.raises(ConsumerStoppedError):
            await starting
    await cluster.wait_for(lambda: not cluster.connections)


@pytest.mark.parametrize("rounds", range(6))
async def test_a_cancelled_block_closes_everything(cluster: FakeCluster, rounds: int) -> None:
    leave = asyncio.Event()
    entered = asyncio.Event()

    async def use() -> None:
        async with make_table(cluster):
            entered.set()
            await leave.wait()

    using = asyncio.ensure_future(use())
    await entered.wait()
    leave.set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait([using])
    await cluster.wait_for(lambda: not cluster.connections)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("table")] == []


async def test_stop_wakes_calls_that_wait(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        stream = table.changes()
        with cluster.intercept(FetchRequest, Hold(asyncio.Event())):
            write(cluster, b"k", b"1")
            calls = [
                asyncio.ensure_future(table.read_to_end()),
                asyncio.ensure_future(table.read_past(metadata(T0, 5))),
            ]
            await asyncio.sleep(0.5)
            await asyncio.gather(table.stop(), table.stop())
            assert all(call.done() for call in calls)
            for call in calls:
                with pytest.raises(ConsumerStoppedError, match="the table of topic 't' was"):
                    await call
    assert table.health().subscribers == 0
    for later in (table.read_to_end(), table.read_past()):
        with pytest.raises(ConsumerStoppedError, match="the table of topic 't' was stopped"):
            await later
    assert [change async for change in stream] == []
