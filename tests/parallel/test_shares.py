"""Keys that hang: what they hold up, and what not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.testing import FakeCluster
from tests.parallel.support import Record, Runs, committed, ends, make_parallel, until


@pytest.mark.parametrize(
    "limits",
    [
        {"max_records": 80},
        {"max_bytes": 80 * 1000},
        {"max_records": 80, "max_bytes": 80 * 1000},
    ],
    ids=lambda limits: " and ".join(limits),
)
@pytest.mark.parametrize("hanging", [(0,), (0, 1, 2)], ids=["one", "all but one"])
async def test_a_key_that_hangs_holds_up_its_partition_only(
    cluster: FakeCluster, limits: dict[str, Any], hanging: tuple[int, ...]
) -> None:
    """Its records are there first, many of them, and nothing else is in memory."""
    gate = asyncio.Event()
    begun: set[int] = set()

    async def handle(record: Record) -> None:
        if record.key == b"hangs":
            begun.add(record.partition)
            await gate.wait()

    for number in hanging:
        cluster.log("t", number).extend([(b"hangs", b"x" * 1000, ())] * 400)
    free = [number for number in range(4) if number not in hanging]
    async with make_parallel(cluster, concurrency=4, **limits) as parallel:
        runs = Runs(parallel, handle)
        # All that is taken of them is taken.
        await until(lambda: begun == set(hanging))
        await until(lambda: len(parallel.consumer.paused()) >= len(hanging))
        for number in free:
            cluster.log("t", number).extend(
                [(b"%d" % (n % 9), b"x" * 1000, ()) for n in range(400)]
            )
        await until(lambda: [committed(cluster)[number] for number in free] == [400] * len(free))
        assert parallel.unfinished <= 80
        gate.set()
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
