"""Whatever is written, a snapshot and its changes are what a replay of the log gives."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka.tables import CompactedTable
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import simulate
from tests.tables.support import Copy, make_table, replay, write

KEYS = st.integers(0, 5)
VALUES = st.none() | st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, VALUES),
        st.tuples(st.just("snapshot")),
        st.tuples(st.just("read to the end")),
        st.tuples(st.just("compact"), st.integers(0, 1)),
        st.tuples(st.just("pause"), st.sampled_from([0.0, 0.01, 0.3])),
        st.tuples(st.just("recreate")),
    ),
    max_size=40,
)


async def check(before: list[Any], steps: list[Any]) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        for step in before:
            await take(step, cluster, None, [])
        async with make_table(cluster, metadata_max_age_ms=200) as table:
            assert table == replay(cluster)
            copies = [Copy(table)]
            for step in steps:
                await take(step, cluster, table, copies)
            await asyncio.sleep(2)  # a recreated topic is known
            await table.read_to_end()
            assert table == replay(cluster)
            for copy in copies:
                await copy.catch_up()
                assert copy.entries == table
            assert table.nbytes == sum(len(key) + len(value) for key, value in table.items())


async def take(
    step: Any, cluster: FakeCluster, table: CompactedTable[Any, Any] | None, copies: list[Copy]
) -> None:
    kind, *rest = step
    if kind == "write":
        key, value = rest
        write(cluster, b"k%d" % key, None if value is None else b"%d" % value, key % 2)
    elif kind == "compact":
        cluster.log("t", rest[0]).compact()
    elif table is not None and kind == "snapshot":
        copies.append(Copy(table))
    elif table is not None and kind == "read to the end":
        await table.read_to_end()
    elif kind == "pause":
        await asyncio.sleep(rest[0])
    elif kind == "recreate":
        await cluster.delete_topic("t")
        await cluster.create_topic("t", 2)


@given(before=STEPS, steps=STEPS)
@settings(max_examples=50)
def test_a_snapshot_and_its_changes_are_a_replay(before: list[Any], steps: list[Any]) -> None:
    async def run(_: Any) -> None:
        await check(before, steps)

    simulate(run, seed=1)
