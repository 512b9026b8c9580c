"""Fetched bytes are bounded, over all brokers, and a bound never stops reading."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from aiokafka import TopicPartition
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, T1, Start, client_of, fill, queued, read
from tests.support.groups import until

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
