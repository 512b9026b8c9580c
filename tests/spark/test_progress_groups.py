"""The group that shows the progress of a query that has nothing to read."""

from __future__ import annotations

import asyncio

from aiokafka._compat import timeout
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Fail, FakeCluster
from tests.spark.support import MIRRORED, committed, end, fill, initial, stream


async def test_the_last_commit_of_an_idle_query_is_tried_again(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    plan = stream(cluster, **MIRRORED)
    at = await end(plan, await initial(plan), 100)
    with cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError)) as refused:
        assert await end(plan, at, 100) == at
        await cluster.wait_for(lambda: refused.hits == 1)
    async with timeout(20):
        while await committed(cluster) != 30:
            assert await end(plan, at, 100) == at
            await asyncio.sleep(0.02)
