"""Topics that a query names and that are not there, or not any more, or again."""

from __future__ import annotations

import pytest

from aiokafka._compat import timeout
from aiokafka.spark._driver import open_cluster
from aiokafka.testing import FakeCluster
from tests.spark.support import TOLERANT, options

KNOWN = {"t": [0, 1, 2]}


async def test_each_time_that_a_topic_is_gone_is_told_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    driver = await open_cluster(options(cluster, streaming=True, **TOLERANT, subscribe="t,u"))
    try:
        async with timeout(30):
            for times in (1, 2):
                while await driver.partitions() != KNOWN:
                    pass  # a topic that was known is missed for good after some answers
                assert await driver.partitions() == KNOWN
                told = [r for r in caplog.records if r.getMessage() == "there is no topic u"]
                assert len(told) == times
                await cluster.create_topic("u")
                assert await driver.partitions() == {**KNOWN, "u": [0]}
                await cluster.delete_topic("u")
    finally:
        await driver.close()
