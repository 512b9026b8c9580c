"""Topics that are deleted while a query runs, soon after it has looked for topics."""

from __future__ import annotations

import time

import pytest

from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.testing import FakeCluster
from tests.spark.support import BOTH, TOLERANT, end, fill, initial, read, stream


@pytest.fixture(autouse=True)
async def other(cluster: FakeCluster) -> None:
    await cluster.create_topic("u")
    fill(cluster, 5)
    fill(cluster, 5, topic="u")


async def test_a_query_that_tolerates_loss_goes_on_without_it(cluster: FakeCluster) -> None:
    """The client knows the partitions for a while, but no leader of them."""
    plan = stream(cluster, **BOTH, **TOLERANT, startingOffsets="earliest")
    at = await end(plan, await initial(plan))
    await cluster.delete_topic("u")
    fill(cluster, 1)
    begun = time.monotonic()
    following = await end(plan, at)
    assert following == {"t": {"0": 6, "1": 0, "2": 0}}
    assert await read(plan, at, following) == [("t", 0, 5, 6)]
    assert time.monotonic() - begun < 20


async def test_a_strict_query_says_which_topic_is_missing(cluster: FakeCluster) -> None:
    plan = stream(cluster, **BOTH, startingOffsets="earliest")
    at = await end(plan, await initial(plan))
    await cluster.delete_topic("u")
    begun = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic u"):
        await end(plan, at)
    assert time.monotonic() - begun < 20
