"""Calls of a reader of ranges beside each other: two at once, and closing while one waits."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.ranges import PartitionRange
from aiokafka.testing import FakeCluster
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
