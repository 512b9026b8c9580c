"""When there is enough for a batch."""

from __future__ import annotations

import asyncio

from aiokafka.testing import FakeCluster
from tests.spark.support import end, initial, stream

PATIENT = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h", "startingOffsets": "earliest"}


async def test_too_little_is_waited_for_but_not_at_the_end(cluster: FakeCluster) -> None:
    """With AvailableNow nothing more will come."""
    plan, log = stream(cluster, **PATIENT), cluster.log("t", 0)
    log.append(b"1")
    start = await initial(plan)
    # Nothing was read before: whatever there is will do.
    at = await end(plan, start, 1000)
    assert at["t"]["0"] == 1
    for _ in range(5):
        log.append(b"1")
    assert await end(plan, at, 1000) == at
    for _ in range(50):
        log.append(b"1")
    at = await end(plan, at, 1000)
    assert at["t"]["0"] == 56
    log.append(b"1")
    assert await end(plan, at, 1000) == at
    await asyncio.to_thread(plan.pin)
    assert (await end(plan, at, 1000))["t"]["0"] == 57
