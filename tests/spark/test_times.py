"""Where a time that was pushed down has a query begin."""

from __future__ import annotations

from aiokafka.spark._driver import open_cluster
from aiokafka.testing import FakeCluster
from tests.spark.support import options


async def test_a_time_never_leads_back(cluster: FakeCluster) -> None:
    """Of what the options leave out nothing is read, however young it is."""
    log = cluster.log("t", 0)
    for stamp in (1000, 2000, 3000, 4000):
        log.append(b"1", timestamp_ms=stamp)
    driver = await open_cluster(options(cluster, streaming=False))
    try:
        end = {"t": {0: 4}}
        for start, millis, first in ((0, 2500, 2), (3, 2500, 3), (3, 0, 3), (1, 9000, 4)):
            found = await driver.not_before({"t": {0: start}}, end, millis)
            assert found == {"t": {0: first}}, (start, millis)
    finally:
        await driver.close()
