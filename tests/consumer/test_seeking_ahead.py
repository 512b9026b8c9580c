"""Seeking forward within what was fetched: it is passed, and what follows it stays in store."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CorruptRecordError, RecordDeserializationError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, Start, fill, queued

OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest"}


@pytest.mark.parametrize("batch", [1, 7])
def test_records_that_cannot_be_read_are_passed_without_a_fetch_for_each(batch: int) -> None:
    """At the end of a log each fetch comes behind a long poll, while the application does something
    with the bad record before it seeks."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            log = cluster.log("t")
            values = [*(b"no" for _ in range(20)), b"1"]
            for first in range(0, len(values), batch):
                log.extend([(None, value, ()) for value in values[first : first + batch]])
            servers = cluster.bootstrap_servers
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=servers, value_deserializer=json.loads, **OPTIONS
            ) as consumer:
                began = simulation.loop.time()
                passed = 0
                while True:
                    try:
                        record = await consumer.getone()
                        break
                    except RecordDeserializationError as error:
                        passed += 1
                        await asyncio.sleep(0.01)
                        consumer.seek(error.topic_partition, error.offset + 1)
                assert (passed, record.offset, record.value) == (20, 20, 1)
                # One long poll takes half a second.
                assert simulation.loop.time() - began < 0.4
                log.extend([(None, b"2", ())])
                assert (await consumer.getone()).value == 2
                assert await consumer.position(T0) == 22

    simulate(main)


async def test_records_passed_are_committed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10, batch=5)
    consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
    assert (await consumer.getone()).offset == 0
    consumer.seek(T0, 7)
    assert await consumer.position(T0) == 7
    await consumer.commit()
    assert await consumer.committed(T0) == 7
    assert (await consumer.getone()).offset == 7
    consumer.seek(T0, 2)
    assert [(await consumer.getone()).offset for _ in range(3)] == [2, 3, 4]


async def test_a_damaged_batch_is_passed(cluster: FakeCluster, start: Start) -> None:
    """It is not looked at, whether the position is in the batch before it or at its begin."""
    await cluster.create_topic("t")
    fill(cluster, 0, 12, batch=3)
    cluster.log("t").corrupt(4)
    for count in (1, 3):
        consumer = await start(cluster, "t")
        for _ in range(count):
            await consumer.getone()
        consumer.seek(T0, 7)
        assert [(await consumer.getone()).offset for _ in range(3)] == [7, 8, 9]


async def test_what_was_damaged_on_its_way_is_fetched_again(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 6, batch=3)
    log = cluster.log("t")
    log.corrupt(4)
    consumer = await start(cluster, "t")
    for _ in range(3):
        await consumer.getone()
    with pytest.raises(CorruptRecordError):
        await consumer.getone()
    log.truncate(3)
    fill(cluster, 0, 3, batch=3)
    consumer.seek(T0, 4)
    assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]


async def test_the_end_of_an_aborted_transaction_is_passed(
    cluster: FakeCluster, start: Start
) -> None:
    """The next one of the same producer is not taken for aborted as well."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    for commit in (False, True):
        transaction(cluster, 1, 1)
        fill(cluster, 0, 1)
        cluster.log("t").add_marker(1, 0, commit=commit)
    consumer = await start(cluster, "t", isolation_level="read_committed")
    assert (await consumer.getone()).offset == 0
    consumer.seek(T0, 4)
    assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]


async def test_paused_partitions_stay_in_store(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 9, batch=3)
    consumer = await start(cluster, "t")
    await consumer.getone()
    consumer.pause(T0)
    consumer.seek(T0, 5)
    assert await consumer.getmany(timeout_ms=0) == {}
    assert queued(consumer) == [1]
    consumer.resume(T0)
    assert (await consumer.getone()).offset == 5


def transaction(cluster: FakeCluster, producer_id: int, count: int) -> None:
    builder = RecordBatchBuilder(size_limit=100_000)
    for _ in range(count):
        builder.append(1000, None, b"in", ())
    cluster.log("t").append_bytes(builder.build(producer_id, 0, 0, True))


def write(cluster: FakeCluster, rng: random.Random) -> None:
    """Write some batches: plain and of transactions, which end at some time."""
    open_ones: set[int] = set()
    for _ in range(rng.randrange(60)):
        producer_id = rng.randrange(1, 4)
        if rng.random() < 0.4:
            fill(cluster, 0, rng.randrange(1, 8), batch=rng.randrange(1, 4))
        elif producer_id in open_ones and rng.random() < 0.6:
            cluster.log("t").add_marker(producer_id, 0, commit=rng.random() < 0.5)
            open_ones.discard(producer_id)
        else:
            transaction(cluster, producer_id, rng.randrange(1, 5))
            open_ones.add(producer_id)
    for producer_id in sorted(open_ones):
        cluster.log("t").add_marker(producer_id, 0, commit=rng.random() < 0.5)
    fill(cluster, 0, 1)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("seed", range(30))
def test_what_follows_is_what_a_new_fetch_brings(seed: int, level: str) -> None:
    """With transactions, whose end may have been passed, and several record sets in store."""
    rng = random.Random(seed)

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            write(cluster, rng)
            options = {"isolation_level": level, "bootstrap_servers": cluster.bootstrap_servers}
            async with AIOKafkaConsumer("t", **options, **OPTIONS) as consumer:
                visible: list[int] = []
                end = (await consumer.end_offsets([T0]))[T0]
                while await consumer.position(T0) < end:
                    found = await consumer.getmany(timeout_ms=1000)
                    visible += [record.offset for record in found.get(T0, ())]
            size = rng.choice([100, 300, 1000, 1_000_000])
            async with AIOKafkaConsumer(
                "t", max_partition_fetch_bytes=size, **options, **OPTIONS
            ) as consumer:
                at = 0
                while any(offset >= at for offset in visible):
                    wanted = [offset for offset in visible if offset >= at]
                    if rng.random() < 0.5:
                        read = [(await consumer.getone()).offset]
                    else:
                        limit = rng.randrange(1, 6)
                        found = await consumer.getmany(timeout_ms=5000, max_records=limit)
                        read = [record.offset for record in found[T0]]
                    assert read == wanted[: len(read)]
                    at = read[-1] + 1
                    if rng.random() < 0.7:
                        at = max(at, await consumer.position(T0)) + rng.randrange(6)
                        consumer.seek(T0, min(at, end))
                    await asyncio.sleep(rng.choice([0, 0.01]))
                assert cluster.count(FetchRequest)

    simulate(main, seed=seed)
