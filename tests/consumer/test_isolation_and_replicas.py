"""Transactions in the log, and reading from the closest replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.errors import (
    CorruptRecordException,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, partition_error, queued, read


def transactional(cluster: FakeCluster, producer_id: int, sequence: int, *values: bytes) -> None:
    builder = RecordBatchBuilder(size_limit=100_000)
    for value in values:
        builder.append(1000, None, value, ())
    data = builder.build(producer_id, 0, sequence, True)
    cluster.log("t").append_bytes(data)


async def test_isolation_levels(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    log = cluster.log("t")
    transactional(cluster, 1, 0, b"a0", b"a1")
    transactional(cluster, 2, 0, b"b0")
    log.add_marker(1, 0, commit=False)
    fill(cluster, 0, 1)
    transactional(cluster, 1, 2, b"c0")
    log.add_marker(2, 0, commit=True)
    log.add_marker(1, 0, commit=True)
    transactional(cluster, 1, 3, b"open")
    fill(cluster, 0, 1)
    committed = await start(cluster, "t", isolation_level="read_committed")
    values = [(await committed.getone()).value for _ in range(3)]
    assert values == [b"b0", b"4", b"c0"]
    assert await committed.getmany(timeout_ms=50) == {}
    # Past the markers, up to the open transaction.
    assert await committed.position(T0) == 8
    assert (committed.last_stable_offset(T0), committed.highwater(T0)) == (8, 10)
    assert await committed.end_offsets([T0]) == {T0: 8}
    everything = await start(cluster, "t")
    values = [(await everything.getone()).value for _ in range(7)]
    assert values == [b"a0", b"a1", b"b0", b"4", b"c0", b"open", b"9"]
    assert everything.last_stable_offset(T0) == -1
    log.add_marker(1, 0, commit=True)
    values = [(await committed.getone()).value for _ in range(2)]
    assert values == [b"open", b"9"]


async def test_an_application_goes_past_a_damaged_marker(
    cluster: FakeCluster, start: Start
) -> None:
    """By the offset in the error, as past any other batch."""
    await cluster.create_topic("t")
    log = cluster.log("t")
    transactional(cluster, 1, 0, b"a0")
    log.add_marker(1, 0, commit=False)
    log.corrupt(1)
    transactional(cluster, 1, 1, b"a1")
    log.add_marker(1, 0, commit=True)
    for level, values in (("read_committed", [b"a1"]), ("read_uncommitted", [b"a0", b"a1"])):
        consumer = await start(cluster, "t", isolation_level=level)
        found: list[Any] = []
        async with timeout(10):
            while len(found) < len(values):
                try:
                    found.append((await consumer.getone()).value)
                except CorruptRecordException as error:
                    assert error.next_offset is not None
                    consumer.seek(T0, error.next_offset)
        assert found == values


async def test_a_closer_replica_is_read_until_it_fails(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t", client_rack="b")
        assert await read(consumer, 5) == [(0, n) for n in range(5)]

        def last_reader() -> Any:
            return cluster.requests(FetchRequest)[-1].broker_id

        await cluster.wait_for(lambda: last_reader() == 1)
        cluster.intercept(FetchRequest, Fail(NotLeaderForPartitionError), times=2, broker=1)
        fill(cluster, 0, 5)
        assert await read(consumer, 5) == [(0, n) for n in range(5, 10)]


def test_a_replica_that_failed_is_used_again_after_half_a_minute() -> None:
    """Not before: the leader would name it again at once."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
            await cluster.create_topic("t", assignment={0: [0, 1]})
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers, client_rack="b"
            )
            consumer.assign([T0])
            async with consumer:

                async def readers(seconds: float) -> set[int]:
                    """Return which brokers are asked for records in so many seconds."""
                    cluster.forget_requests()
                    await asyncio.sleep(seconds)
                    return {seen.broker_id for seen in cluster.requests(FetchRequest)}

                await asyncio.sleep(5)
                assert await readers(5) == {1}
                cluster.intercept(FetchRequest, Cut(), times=1, broker=1)
                await asyncio.sleep(2)
                assert await readers(25) == {0}
                await asyncio.sleep(5)
                assert await readers(5) == {1}

    simulate(main)


async def test_all_partitions_leave_a_replica_that_fails(start: Start) -> None:
    """One of which enough had been fetched stayed there, and failed once more when it was read."""
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1], 1: [0, 1]})
        fill(cluster, 0, 20)
        fill(cluster, 1, 20)
        # A record to a response, of which two wait.
        options: dict[str, Any] = {"client_rack": "b", "max_partition_fetch_bytes": 1}
        consumer = await start(cluster, assign=[T0, T1], **options)
        await cluster.wait_for(lambda: queued(consumer) == [2, 2])
        asked = len(cluster.requests(FetchRequest))
        cluster.intercept(FetchRequest, Cut(), broker=1)
        for tp in (T0, T1):
            for offset in range(20):
                assert (await consumer.getone(tp)).offset == offset
        later = cluster.requests(FetchRequest)[asked:]
        assert [seen.broker_id for seen in later].count(1) == 1


async def test_a_replica_that_lags_does_not_reset_the_position(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t", client_rack="b", auto_offset_reset="none")
        consumer.seek(T0, 3)
        out_of_range = cluster.intercept(
            FetchRequest, partition_error(OffsetOutOfRangeError), broker=1
        )
        assert await read(consumer, 2) == [(0, 3), (0, 4)]
        await cluster.wait_for(lambda: out_of_range.hits)
        out_of_range.remove()
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 5)]


@pytest.mark.parametrize(
    "answer",
    [
        partition_error(CorruptRecordException),
        partition_error(TopicAuthorizationFailedError),
        Fail(UnknownError),
    ],
)
async def test_a_replica_that_cannot_serve_is_left_for_the_leader(
    start: Start, answer: Edit | Fail
) -> None:
    """What is damaged there, or not known yet, need not be so at the leader."""
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        cluster.intercept(FetchRequest, answer, broker=1)
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            assert await read(consumer, 5) == [(0, n) for n in range(5)]
        asked = {seen.broker_id for seen in cluster.requests(FetchRequest)}
        assert asked == {0, 1}


def damage(response: FetchResponse) -> None:
    """Change a byte of each last record, as a disk may."""
    for topic in response.responses:
        for data in topic.partitions:
            if data.records:
                records = bytearray(data.records)
                records[-3] ^= 0xFF
                data.records = bytes(records)


async def by_getone(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.getone()).offset for _ in range(5)]


async def by_getmany(consumer: AIOKafkaConsumer) -> list[int]:
    found: list[int] = []
    while len(found) < 5:
        batches = await consumer.getmany(timeout_ms=10_000)
        found += [record.offset for records in batches.values() for record in records]
    return found


async def by_iteration(consumer: AIOKafkaConsumer) -> list[int]:
    found = []
    async for record in consumer:
        found.append(record.offset)
        if len(found) == 5:
            break
    return found


@pytest.mark.parametrize("way", [by_getone, by_getmany, by_iteration])
@pytest.mark.parametrize("batch", [1, 5])
async def test_what_a_replica_sends_damaged_comes_from_the_leader(
    start: Start, way: Callable[[AIOKafkaConsumer], Awaitable[list[int]]], batch: int
) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=batch)
        cluster.intercept(FetchRequest, Edit(damage), broker=1)
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            assert await way(consumer) == [0, 1, 2, 3, 4]


async def test_what_a_former_leader_has_sent_damaged_comes_from_the_present_one(
    start: Start,
) -> None:
    """It waited to be read when the partition was moved to another broker, as an operator does
    whose disk is broken."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=5)
        cluster.intercept(FetchRequest, Edit(damage), broker=0)
        consumer = await start(cluster, assign=[T0], metadata_max_age_ms=50)
        await cluster.wait_for(lambda: queued(consumer) == [1])
        cluster.move_leader(T0, 1)
        await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 1)
        async with timeout(10):
            assert await read(consumer, 5) == [(0, n) for n in range(5)]


async def test_what_the_leader_sends_damaged_as_well_is_reported(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=5)
        cluster.intercept(FetchRequest, Edit(damage))
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            with pytest.raises(CorruptRecordException) as caught:
                await consumer.getone()
        assert caught.value.next_offset == 5
        assert {seen.broker_id for seen in cluster.requests(FetchRequest)} == {0, 1}
