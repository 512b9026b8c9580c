"""The memory of fetched records: its limit, and how partitions share it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.testing import Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, client_of, fill, queued, read
from tests.support.groups import until

# == The limit of fetched bytes (`fetch_buffer_memory`) ============================================


BATCH = 10_000 + 70


class Meter:
    """Counts the whole batches that a cluster sent in answers to Fetch."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.sent = 0
        cluster.intercept(FetchRequest, Edit(self._count))

    def _count(self, response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                # A response may end within a batch, which is then sent again.
                self.sent += len(data.records or b"") // BATCH


def fill_large(cluster: FakeCluster, partition: int, count: int) -> None:
    for _ in range(count):
        cluster.log("t", partition).append(b"x" * 10_000)


async def test_no_more_is_fetched_than_the_bound(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=8)
        for number in range(8):
            fill_large(cluster, number, 30)
        meter = Meter(cluster)
        bound = 400_000
        consumer = await start(
            cluster,
            "t",
            fetch_buffer_memory=bound,
            max_partition_fetch_bytes=40_000,
            fetch_max_wait_ms=10,
        )
        for read in range(1, 241):
            await asyncio.sleep(0.002)
            record = await consumer.getone()
            assert (meter.sent - read) * BATCH <= bound
        assert record.offset == 29


async def test_a_bound_below_one_batch_still_reads(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill_large(cluster, 0, 5)
    fill_large(cluster, 1, 5)
    consumer = await start(cluster, "t", fetch_buffer_memory=1000)
    for _ in range(10):
        await consumer.getone()
    assert [await consumer.position(tp) for tp in (T0, T1)] == [5, 5]


async def test_partitions_nobody_asks_for_do_not_starve_the_others(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=9)
    for number in range(9):
        fill_large(cluster, number, 20)
    consumer = await start(
        cluster, "t", fetch_buffer_memory=200_000, max_partition_fetch_bytes=40_000
    )
    wanted = TopicPartition("t", 8)
    records = [await consumer.getone(wanted) for _ in range(20)]
    assert [record.offset for record in records] == list(range(20))
    consumer.pause(*(tp for tp in consumer.assignment() if tp.partition < 8))
    consumer.seek(wanted, 0)
    records = [await consumer.getone() for _ in range(20)]
    assert {record.partition for record in records} == {8}
    consumer.resume(*consumer.paused())
    seen: dict[int, list[int]] = {}
    while sum(map(len, seen.values())) < 160:
        record = await consumer.getone()
        seen.setdefault(record.partition, []).append(record.offset)
    assert seen == {number: list(range(20)) for number in range(8)}


async def test_a_full_partition_does_not_hold_up_the_others(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 100)
    consumer = await start(cluster, "t", max_partition_fetch_bytes=1000, fetch_max_wait_ms=50)
    await consumer.getone(T0)
    fill(cluster, 1, 1)
    # Partition 0 has data waiting all the time; partition 1 is fetched none the less.
    assert (await consumer.getone(T1)).partition == 1


async def test_the_half_of_a_response_is_not_kept_with_the_error(start: Start) -> None:
    async with FakeCluster(proxied=True) as cluster:
        await cluster.create_topic("t")
        cluster.log("t").append(bytes(10_000_000))
        consumer = await start(cluster, assign=[T0], max_partition_fetch_bytes=20_000_000)
        await consumer.getone()
        cluster.proxies[0].cut_after(5_000_000)
        consumer.seek(T0, 0)
        tracemalloc.start()
        try:
            await consumer.getone()
            consumer.seek(T0, 1)
            assert consumer.health().last_error

            def is_small() -> bool:
                gc.collect()
                return tracemalloc.get_traced_memory()[0] < 5_000_000

            await until(cluster, is_small)
        finally:
            tracemalloc.stop()


async def test_what_a_moved_partition_has_left_in_memory_makes_room(start: Start) -> None:
    """Its new leader has no reason to drop it, and its former one must not wait for that."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", 3, assignment={0: [0, 1], 1: [0, 1], 2: [1, 0]})
        for _ in range(3):
            cluster.log("t", 0).append(b"x" * 30_000)
        partitions = [T0, T1, TopicPartition("t", 2)]
        options = {"fetch_buffer_memory": 65_536, "metadata_max_age_ms": 100}
        consumer = await start(cluster, assign=partitions, **options)
        await until(cluster, lambda: queued(consumer)[0] > 0)
        consumer.pause(T0)
        cluster.move_leader(T0, 1)
        await until(cluster, lambda: client_of(consumer).cluster.leader_for_partition(T0) == 1)
        record = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        cluster.log("t", 1).append(b"wanted")
        assert (await asyncio.wait_for(record, 30)).value == b"wanted"
        consumer.resume(T0)
        assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]


async def test_what_a_retired_broker_has_left_for_no_reader_is_dropped(start: Start) -> None:
    """It would stay in memory that counts for no broker, with each move once more."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", 1, assignment={0: [0, 1]})
        fill(cluster, 0, 10)
        consumer = await start(cluster, assign=[T0], metadata_max_age_ms=100)
        await until(cluster, lambda: queued(consumer)[0] > 0)
        consumer.pause(T0)
        # As a reader finds out that there is nothing else.
        assert await consumer.getmany(timeout_ms=10) == {}
        cluster.move_leader(T0, 1)
        await until(cluster, lambda: not queued(consumer)[0])
        consumer.resume(T0)
        assert await read(consumer, 10) == [(0, n) for n in range(10)]


# == Sharing the limit among paused, idle, denied and buffered partitions ==========================


MEMORY = {"fetch_buffer_memory": 400_000, "max_partition_fetch_bytes": 100_000}


def write(cluster: FakeCluster, topic: str, number: int, count: int, size: int = 1000) -> None:
    """Append so many records, ten to a batch."""
    for first in range(0, count, 10):
        records = [(None, b"x" * size, ())] * min(10, count - first)
        cluster.log(topic, number).extend(records)


def consumer_of(cluster: FakeCluster, **options: Any) -> AIOKafkaConsumer[bytes, bytes]:
    return AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options
    )


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def test_paused_partitions_do_not_keep_their_broker_from_others() -> None:
    """However much another broker has: no reader ever goes without."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("low", assignment={i: [0] for i in range(4)})
            await cluster.create_topic("high", assignment={0: [0], 1: [1]})
            for number in range(4):
                write(cluster, "low", number, 500)
            write(cluster, "high", 1, 5000)
            async with consumer_of(cluster, **MEMORY) as consumer:
                low, high = partitions("low", 4), partitions("high", 2)
                consumer.assign(low + high)
                await asyncio.sleep(1)
                consumer.pause(*low)
                await asyncio.sleep(1)
                write(cluster, "high", 0, 1)
                began, found = loop.time(), set[TopicPartition]()
                while high[0] not in found:
                    assert loop.time() - began < 3
                    found |= set(await consumer.getmany(timeout_ms=1000, max_records=10))
                    await asyncio.sleep(0.01)
                # What was dropped is there again, once it may be read.
                consumer.resume(*low)
                async with timeout(3):
                    while not found.issuperset(low):
                        found |= set(await consumer.getmany(timeout_ms=1000, max_records=100))

    simulate(main)


@pytest.mark.parametrize("looks_for_urgent", [False, True])
def test_who_looks_for_urgent_records_does_not_drop_the_others(looks_for_urgent: bool) -> None:
    """The same reader takes them next."""
    count = 12

    async def main(_: Simulation) -> int:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic("bulk", partitions=count)
            await cluster.create_topic("urgent")
            for number in range(count):
                write(cluster, "bulk", number, 1000)
            async with consumer_of(cluster, **MEMORY) as consumer:
                bulk, urgent = partitions("bulk", count), partitions("urgent", 1)
                consumer.assign(bulk + urgent)
                taken = 0
                while loop.time() < 8:
                    if looks_for_urgent:
                        await consumer.getmany(*urgent, timeout_ms=0)
                    found = await consumer.getmany(*bulk, timeout_ms=1000, max_records=50)
                    for records in found.values():
                        taken += len(records)
                        await asyncio.sleep(0.001 * len(records))
                return taken

    assert simulate(main) > 7000


@pytest.mark.parametrize("wait_ms", [500, 5000])
def test_a_reader_of_an_idle_partition_does_not_hold_up_the_others(wait_ms: int) -> None:
    """The broker is asked for the idle one alone while the busy one is in store."""
    busy, idle = TopicPartition("busy", 0), TopicPartition("idle", 0)

    async def main(_: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic("busy")
            await cluster.create_topic("idle")
            write(cluster, "busy", 0, 30_000)
            async with consumer_of(
                cluster, fetch_max_wait_ms=wait_ms, max_partition_fetch_bytes=100_000
            ) as consumer:
                consumer.assign([busy, idle])
                waiting = asyncio.create_task(consumer.getone(idle))
                taken = 0
                async with timeout(8):
                    while taken < 20_000:
                        found = await consumer.getmany(busy, timeout_ms=1000, max_records=100)
                        taken += sum(map(len, found.values()))
                        await asyncio.sleep(0.01)
                write(cluster, "idle", 0, 1)
                async with timeout(1):
                    await waiting
                return taken

    simulate(main)


def test_a_reader_of_an_idle_partition_does_not_ask_all_the_time() -> None:
    """All others are in store, and no reader takes them: long polls are good enough."""
    count = 20

    async def main(_: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic("full", partitions=count)
            await cluster.create_topic("idle")
            for number in range(count):
                write(cluster, "full", number, 1000)
            async with consumer_of(cluster, max_partition_fetch_bytes=100_000) as consumer:
                consumer.assign([*partitions("full", count), *partitions("idle", 1)])
                waiting = asyncio.create_task(consumer.getone(*partitions("idle", 1)))
                await asyncio.sleep(3)
                before = cluster.count(FetchRequest)
                await asyncio.sleep(10)
                fetches = cluster.count(FetchRequest) - before
                write(cluster, "idle", 0, 1)
                async with timeout(1):
                    await waiting
                return fetches

    # One takes half a second.
    assert 15 < simulate(main) < 25


@pytest.mark.parametrize("call", ["getone", "getmany"])
def test_a_denied_topic_does_not_keep_a_program_from_others_that_pauses_after_errors(
    call: str,
) -> None:
    """The next error is there before it has paused for long enough."""

    async def main(_: Simulation) -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic("good", partitions=3)
            await cluster.create_topic("bad", partitions=2)
            for number in range(3):
                write(cluster, "good", number, 100)
            cluster.acls.withdraw("topic", "bad", "read")
            async with consumer_of(cluster) as consumer:
                consumer.assign(partitions("good", 3) + partitions("bad", 2))
                taken = errors = 0
                while taken < 300 and loop.time() < 120:
                    try:
                        if call == "getone":
                            await consumer.getone()
                            taken += 1
                        else:
                            found = await consumer.getmany(timeout_ms=5000, max_records=10)
                            taken += sum(map(len, found.values()))
                    except KafkaError:
                        errors += 1
                        await asyncio.sleep(1)
                return taken, errors

    taken, errors = simulate(main)
    assert taken == 300
    assert errors > 1


def test_what_cannot_be_read_is_asked_for_ever_less_often() -> None:
    """A record larger than a fetch may be, before Kafka 0.10.1."""

    async def main(_: Simulation) -> int:
        loop = asyncio.get_running_loop()
        async with FakeCluster(as_version="0.9") as cluster:
            await cluster.create_topic("t")
            cluster.log("t").append(b"x" * 20_000)
            async with consumer_of(cluster, max_partition_fetch_bytes=10_000) as consumer:
                consumer.assign(partitions("t", 1))
                while loop.time() < 60:
                    with pytest.raises(KafkaError, match="max_partition_fetch_bytes"):
                        await consumer.getone()
                return cluster.count(FetchRequest)

    assert 30 < simulate(main) < 90


async def test_calls_that_have_returned_leave_no_timers(cluster: FakeCluster, start: Start) -> None:
    """Each call waits with a deadline an hour away, and a record ends it."""
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    calls = 50
    for _ in range(calls):
        reading = asyncio.ensure_future(consumer.getmany(timeout_ms=3_600_000))
        await asyncio.sleep(0)  # the call begins to wait
        fill(cluster, 0, 1)
        assert await reading
    far = asyncio.get_running_loop().time() + 1800
    timers = [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, asyncio.TimerHandle) and not thing.cancelled() and thing.when() > far
    ]
    assert len(timers) < calls
