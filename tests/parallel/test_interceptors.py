"""Interceptors of the consumer: they may leave records out, and take their time."""

from __future__ import annotations

from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.testing import FakeCluster
from tests.parallel.support import Runs, Seen, committed, ends, fill, make_parallel, until


class OddOnly(ConsumerInterceptor):
    """Leaves out records with even numbers, and keeps the partition where nothing is left."""

    def on_consume(self, records: Records) -> Records:
        return {tp: [one for one in some if int(one.value) % 2] for tp, some in records.items()}


async def test_records_that_are_left_out_count_as_read(cluster: FakeCluster) -> None:
    """Of partitions 0 and 2 nothing is left; nothing is committed of them before a record is."""
    fill(cluster, 40, keys=4)
    seen = Seen()
    async with make_parallel(cluster, consumer={"interceptors": [OddOnly()]}) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 20)
        cluster.log("t", 0).append(b"41", key=b"k0")
        cluster.log("t", 2).append(b"43", key=b"k2")
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    numbers = sorted(number for some in seen.by_key.values() for number in some)
    assert numbers == [*range(1, 40, 2), 41, 43]
