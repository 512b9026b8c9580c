"""Topics that are deleted and made again while a query runs."""

from __future__ import annotations

import pytest

from aiokafka.ranges import DataLossError
from aiokafka.testing import FakeCluster
from tests.spark.support import end, initial, read, stream


async def test_it_is_noticed_when_the_topic_is_read_next(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only by the batch that comes first after that, which may read another topic."""
    monkeypatch.setattr("aiokafka.spark._driver._DISCOVERY_INTERVAL", 0.0)
    await cluster.create_topic("u")
    plan = stream(cluster, subscribe="t,u", startingOffsets="earliest")
    log = cluster.log("t", 0)
    start = await initial(plan)
    log.append(b"1")
    at = await end(plan, start)
    assert await read(plan, start, at) == [("t", 0, 0, 1)]

    await cluster.delete_topic("u")
    await cluster.create_topic("u")
    log.append(b"2")
    following = await end(plan, at)
    assert await read(plan, at, following) == [("t", 0, 1, 2)]

    cluster.log("u", 0).append(b"of another topic")
    last = await end(plan, following)
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"u-0.*created again"):
            await read(plan, following, last)
