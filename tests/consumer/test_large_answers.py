"""`receive_message_max_bytes` and what a fetch brings."""

from __future__ import annotations

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import RecordTooLargeError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start

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
