"""Calls of a reader of ranges beside each other: two at once, and closing while one waits."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError, KafkaTimeoutError
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.ranges import PartitionRange
from aiokafka.testing import Edit, FakeCluster
from tests.ranges.support import fill, reading


async def test_a_call_that_waits_hears_that_the_reader_is_closed(cluster: FakeCluster) -> None:
    async with reading(cluster, [PartitionRange("t", 0, 0, 10)]) as reader, timeout(10):
        waiting = asyncio.get_running_loop().create_task(reader.next())
        await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 1)
        await reader.close()
        with pytest.raises(IllegalStateError, match="the RangeReader is closed"):
            await waiting


@pytest.mark.parametrize("reads", [0, 1])
async def test_records_that_were_dropped_do_not_pass_for_read(
    cluster: FakeCluster, reads: int
) -> None:
    """All was fetched, and not all was returned: that is not the end of the ranges."""
    for partition in range(2):
        fill(cluster, partition, 10)
    ranges = [PartitionRange("t", partition, 0, 10) for partition in range(2)]
    async with reading(cluster, ranges) as reader, timeout(10):
        for _ in range(reads):
            assert await reader.next() is not None
        await reader.close()
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="the RangeReader is closed"):
                await reader.next()
        await reader.close()


async def test_two_calls_at_once_release_what_both_have_read() -> None:
    """Of one response both get a record set; its memory is free again when the two call again."""
    rounds, size = 5, 1000
    async with FakeCluster(brokers=1) as fake, timeout(20):
        await fake.create_topic("t", partitions=2)
        ranges = [PartitionRange("t", partition, 0, rounds) for partition in range(2)]
        async with reading(fake, ranges, buffer_memory=4 * size, max_bytes=2 * size) as reader:
            for _ in range(rounds):
                for partition in range(2):
                    fake.log("t", partition).extend([(None, bytes(size - 100), ())])
                both = await asyncio.gather(reader.next(), reader.next())
                assert {records.partition for records in both if records is not None} == {0, 1}
            assert await reader.next() is None


async def test_all_brokers_share_the_memory() -> None:
    """As each responded it had all of the memory for itself."""
    count, size, memory = 4, 10_000, 400_000
    sent: list[int] = []

    def note(response: FetchResponse) -> None:
        sent.extend(len(d.records or b"") for t in response.responses for d in t.partitions)

    async with FakeCluster(brokers=count) as fake, timeout(60):
        await fake.create_topic("t", assignment={number: [number] for number in range(count)})
        for number in range(count):
            for _ in range(100):
                fake.log("t", number).append(bytes(size))
        fake.intercept(FetchRequest, Edit(note))
        ranges = [PartitionRange("t", number, 0, 100) for number in range(count)]
        async with reading(fake, ranges, buffer_memory=memory) as reader:
            records = await reader.next()
            await asyncio.sleep(20)  # of virtual time: the caller is at work
            assert memory / 2 < sum(sent) < memory + count * size
            while records is not None:
                records = await reader.next()


async def test_no_row_is_not_the_end_of_the_records(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with reading(cluster, [PartitionRange("t", 0, 0, 3)]) as reader:
        records = await reader.next()
        assert records is not None
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="max_rows"):
                records.read(wrong)
        rows = records.read(1)
        assert rows is not None
        assert rows.size == 1


async def test_brokers_may_be_away_while_the_caller_is(cluster: FakeCluster) -> None:
    """The time without progress is that of a caller who waits."""
    fill(cluster, 0, 50)
    ranges = [PartitionRange("t", 0, 0, 50)]
    async with reading(cluster, ranges, timeout_ms=5000, max_partition_bytes=300) as reader:
        records = await reader.next()
        await cluster.stop_broker(0)
        await asyncio.sleep(20)  # of virtual time: the caller is at work
        await cluster.start_broker(0)
        count = 0
        while records is not None:
            while (rows := records.read(10)) is not None:
                count += rows.size
            records = await reader.next()
    assert count == 50


async def test_a_caller_who_waits_does_so_for_no_longer_than_it_said(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)
    loop = asyncio.get_running_loop()
    ranges = [PartitionRange("t", 0, 0, 50)]
    async with reading(cluster, ranges, timeout_ms=5000, max_partition_bytes=300) as reader:
        assert await reader.next() is not None
        await cluster.stop_broker(0)
        await asyncio.sleep(20)  # of virtual time: the caller is at work
        began_at = loop.time()
        with pytest.raises(KafkaTimeoutError, match="no progress"):
            while await reader.next() is not None:
                pass
        assert 4 < loop.time() - began_at < 8
