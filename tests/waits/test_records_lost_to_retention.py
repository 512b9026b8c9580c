"""Records that retention deletes before they are read: counted, and said once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, Start, fill, partition_error, read

BY_HAND: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize(("policy", "goes_on_at"), [("earliest", 40), ("latest", 100)])
async def test_what_the_reset_policy_skips_is_a_warning(
    start: Start, caplog: pytest.LogCaptureFixture, policy: str, goes_on_at: int
) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 100)
        before = await start(cluster, assign=[T0], **BY_HAND)
        await before.commit({T0: 10})
        await before.stop()
        cluster.log("t").delete_before(40)
        consumer = await start(cluster, assign=[T0], auto_offset_reset=policy, **BY_HAND)
        await cluster.wait_for(lambda: consumer.health().skipped)
        skipped = goes_on_at - 10
        assert consumer.health().skipped == skipped
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, goes_on_at)]
        (line,) = warnings(caplog)
        assert f"offset 10 is out of range, reset to {goes_on_at}: {skipped} offsets" in line
        assert consumer.metrics().value("records-skipped-total") == skipped
        assert consumer.metrics().value("records-skipped-total", topic="t") == skipped


async def test_a_log_that_ends_before_the_position_is_a_warning_too(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 10)
        before = await start(cluster, assign=[T0], **BY_HAND)
        await before.commit({T0: 30})
        await before.stop()
        consumer = await start(cluster, assign=[T0], **BY_HAND)
        assert await read(consumer, 1) == [(0, 0)]
        (line,) = warnings(caplog)
        assert "offset 30 is out of range, reset to 0: the last 30 offsets are read again" in line
        assert consumer.health().skipped == 0


async def test_a_broker_that_calls_each_position_out_of_range_is_a_stall(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a warning for each of them."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 10)
        cluster.log("t").delete_before(5)
        cluster.intercept(FetchRequest, partition_error(OffsetOutOfRangeError))
        consumer = await start(cluster, assign=[T0])
        consumer.seek(T0, 2)
        await asyncio.sleep(30)
        first, second = warnings(caplog)
        assert "offset 2 is out of range, reset to 5: 3 offsets are skipped" in first
        assert "running -> unreachable" in second
        assert "[Error 1] OffsetOutOfRangeError" in second
        assert [each.what.endswith("of t-0") for each in consumer.health().stalled] == [True]


async def test_a_seek_is_no_loss(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 10)
        consumer = await start(cluster, assign=[T0])
        await read(consumer, 2)
        await consumer.seek_to_end(T0)
        await consumer.seek_to_beginning(T0)
        assert await read(consumer, 1) == [(0, 0)]
        assert warnings(caplog) == []
        assert consumer.health().skipped == 0
