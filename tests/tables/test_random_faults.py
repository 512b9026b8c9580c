"""Tables under random faults: in the end each is what its log says, and so are copies of it."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest

from aiokafka.tables import CompactedTable
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import simulate
from tests.tables.support import Copy, make_table, replay, write

PARTITIONS = 3
STEPS = 120


class Trouble:
    """Writes records, and does to the cluster and the table what a seed decides."""

    def __init__(self, random: Random, cluster: FakeCluster) -> None:
        self._random = random
        self._cluster = cluster
        self._stopped: int | None = None

    def write(self) -> None:
        key, value = self._random.randrange(12), self._random.choice([None, b"0", b"1", b"2"])
        write(self._cluster, b"k%d" % key, value, key % PARTITIONS)

    async def step(self, table: CompactedTable[bytes, bytes]) -> None:
        calls: list[Any] = [self.write] * 10
        calls += [self._pause, self._pause, self._stop, self._start, self._start, self._move]
        calls += [self._recreate, self._truncate, self._cluster.drop_connections]
        calls += [partial(self._compact, table)]
        result = self._random.choice(calls)()
        if asyncio.iscoroutine(result):
            await result
        if not self._random.randrange(20):
            await self._cancel(asyncio.ensure_future(table.read_to_end()))

    async def end(self) -> None:
        await self._start()
        await asyncio.sleep(10)  # metadata is refreshed

    def _live(self) -> int:
        return self._random.choice([n for n in range(3) if n != self._stopped])

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.choice([0, 0.01, 0.2, 1]))

    async def _stop(self) -> None:
        if self._stopped is None:
            self._stopped = self._live()
            await self._cluster.stop_broker(self._stopped)

    async def _start(self) -> None:
        if self._stopped is not None:
            await self._cluster.start_broker(self._stopped)
            self._stopped = None

    def _move(self) -> None:
        self._cluster.move_leader(("t", self._random.randrange(PARTITIONS)), self._live())

    async def _recreate(self) -> None:
        if self._stopped is None:
            await self._cluster.delete_topic("t")
            await self._pause()
            await self._cluster.create_topic("t", PARTITIONS, replication_factor=3)

    def _truncate(self) -> None:
        """Lose records in an unclean election: the new leader has a new epoch."""
        number = self._random.randrange(PARTITIONS)
        log = self._cluster.log("t", number)
        log.truncate(max(0, log.end_offset - self._random.randrange(4)))
        self._cluster.move_leader(("t", number), self._live())

    async def _compact(self, table: CompactedTable[bytes, bytes]) -> None:
        """Remove old values, and lose records. The table has read the tombstones before: later,
        nobody could know of those that are lost."""
        await table.read_to_end()
        for number in range(PARTITIONS):
            self._cluster.log("t", number).compact()
        self._truncate()

    async def _cancel(self, task: asyncio.Future[None]) -> None:
        await self._pause()
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_what_its_log_says(seed: int) -> None:
    async def run(_: Any) -> None:
        random = Random(seed)
        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic("t", PARTITIONS, replication_factor=3)
            trouble = Trouble(random, cluster)
            for _number in range(random.randrange(60)):
                trouble.write()
            async with make_table(cluster, metadata_max_age_ms=300) as table:
                copies = []
                for number in range(STEPS):
                    if number % 20 == 0:
                        copies.append(Copy(table))
                    await trouble.step(table)
                await trouble.end()
                await table.read_to_end()
                assert table == replay(cluster, partitions=PARTITIONS)
                for copy in copies:
                    await copy.catch_up()
                    assert copy.entries == table
            assert cluster.failures == []

    simulate(run, seed=seed)
