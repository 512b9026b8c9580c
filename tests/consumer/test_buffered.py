"""From buffered bytes to records: what an interrupt leaves, how much one call decompresses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from aiokafka.consumer.fetch import buffer
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, queued


class Interrupt(BaseException):
    """As KeyboardInterrupt, which asyncio treats in a way of its own."""


@pytest.mark.parametrize("where", [(1, 0), (0, 3), (1, 3)])
async def test_an_interrupt_loses_nothing_of_other_partitions(
    cluster: FakeCluster, start: Start, where: tuple[int, int]
) -> None:
    """Records of the partitions, and record sets, that the call had taken before come again."""
    await cluster.create_topic("t", partitions=2)
    interrupts: list[Any] = [Interrupt]

    def deserialize(value: bytes) -> bytes:
        if value == b"%d-%d" % where and interrupts:
            raise interrupts.pop()
        return value

    consumer = await start(
        cluster, assign=[T0, T1], value_deserializer=deserialize, max_partition_fetch_bytes=150
    )
    for turn in range(2):
        # Two record sets of each.
        for number in range(2):
            first = 3 * turn
            values = [b"%d-%d" % (number, n) for n in range(first, first + 3)]
            cluster.log("t", number).extend([(None, value, ()) for value in values])
        await cluster.wait_for(partial(is_buffered, consumer, turn + 1))
    seen: dict[int, list[int]] = {0: [], 1: []}
    while sum(map(len, seen.values())) < 12:
        try:
            found = await consumer.getmany(timeout_ms=5000)
        except Interrupt:
            continue
        for tp, records in found.items():
            seen[tp.partition] += [record.offset for record in records]
    assert not interrupts
    assert seen == {0: list(range(6)), 1: list(range(6))}


def is_buffered(consumer: Any, count: int) -> bool:
    return set(queued(consumer)) == {count}


async def test_one_call_decompresses_so_much(
    cluster: FakeCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not buffer.__file__.endswith(".py"):
        size, count = 4 * 1024 * 1024, 40
    else:
        monkeypatch.setattr(buffer, "_MOST_UNPACKED", 100_000)
        size, count = 10_000, 40
    bound = 64 * 1024 * 1024 if size > 10_000 else 100_000
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        for _ in range(count // 2):
            cluster.log("t", number).extend([(None, bytes(size), ())], codec=1)
    consumer = await start(cluster, "t")
    sizes: list[int] = []
    while sum(sizes) < count:
        found = await consumer.getmany(timeout_ms=5000)
        assert found
        sizes.append(sum(map(len, found.values())))
    assert sum(sizes) == count
    assert max(sizes) * size <= bound + size
    # And not one by one.
    assert len(sizes) < count / 2
