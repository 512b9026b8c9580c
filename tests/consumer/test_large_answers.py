"""`receive_message_max_bytes` and what a fetch brings."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import RecordTooLargeError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, fill, read

LIMIT = 20_000


async def test_fetches_ask_for_what_can_pass(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        for _ in range(20):
            cluster.log("t", number).extend([(None, bytes(5000), ())])
    consumer = await start(cluster, "t", receive_message_max_bytes=LIMIT)
    async with timeout(10):
        for _ in range(40):
            await consumer.getone()
    assert all(seen.request.max_bytes < LIMIT for seen in cluster.requests(FetchRequest))


async def test_a_batch_that_cannot_pass(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    log = cluster.log("t", 0)
    for size in (10, 30_000, 11):
        log.extend([(None, bytes(size), ())])
    consumer = await start(cluster, assign=[T0, T1], receive_message_max_bytes=LIMIT)
    async with timeout(10):
        assert (await consumer.getone()).offset == 0
        for _ in range(2):
            with pytest.raises(RecordTooLargeError, match="receive_message_max_bytes=20000"):
                await consumer.getone()
        consumer.seek(T0, 2)
        assert (await consumer.getone()).offset == 2


async def test_a_batch_that_cannot_pass_does_not_keep_back_other_partitions(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    cluster.log("t", 0).extend([(None, bytes(30_000), ())])
    fill(cluster, 1, 5)
    consumer = await start(cluster, assign=[T0, T1], receive_message_max_bytes=LIMIT)
    found: list[int] = []
    async with timeout(10):
        while len(found) < 5:
            with suppress(RecordTooLargeError):
                found.append((await consumer.getone(T1)).offset)
    assert found == [0, 1, 2, 3, 4]


async def test_partitions_take_turns_without_a_session(start: Start) -> None:
    """A broker with too many clients opens none, and does not know who was served last."""
    async with FakeCluster(config={"max.incremental.fetch.session.cache.slots": 0}) as cluster:
        await cluster.create_topic("t", partitions=3)
        for number in range(3):
            fill(cluster, number, 300, batch=10)
        room = {"max_partition_fetch_bytes": 200, "fetch_max_bytes": 200}
        consumer = await start(cluster, "t", **room)
        async with timeout(10):
            found = Counter(number for number, _ in await read(consumer, 300))
        assert min(found[number] for number in range(3)) > 50
