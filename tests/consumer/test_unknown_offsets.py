"""Coordinators that say in their own way that a partition has no committed offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import NoOffsetForPartitionError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, T1, Start, fill, read

Change = Callable[[OffsetFetchResponse], None]
GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def unknown(*partitions: int) -> Change:
    """UNKNOWN_TOPIC_OR_PARTITION for these partitions."""

    def change(response: OffsetFetchResponse) -> None:
        for topic in (response.groups[0] if response.groups else response).topics:
            for data in topic.partitions:
                if data.partition_index in partitions:
                    data.error_code, data.committed_offset = UnknownTopicOrPartitionError.errno, -1

    return change


def left_out(*partitions: int) -> Change:
    """A response without these partitions."""

    def change(response: OffsetFetchResponse) -> None:
        for topic in (response.groups[0] if response.groups else response).topics:
            topic.partitions = [p for p in topic.partitions if p.partition_index not in partitions]

    return change


def empty(response: OffsetFetchResponse) -> None:
    """A response without topics."""
    (response.groups[0] if response.groups else response).topics = []


ALL = [unknown(0, 1), unknown(1), left_out(0, 1), left_out(1), empty]
NAMES = ["all unknown", "one unknown", "all left out", "one left out", "no topics"]


async def make_topic(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    fill(cluster, 1, 3)


@pytest.mark.parametrize("version", ["2.8", "4.3"])
@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_the_reset_policy_applies_to_what_the_coordinator_does_not_know(
    start: Start, version: str, change: Change
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await make_topic(cluster)
        cluster.intercept(OffsetFetchRequest, Edit(change))
        consumer = await start(cluster, "t", **GROUP)
        async with timeout(10):
            assert sorted(await read(consumer, 6)) == [(p, n) for p in (0, 1) for n in range(3)]
            assert await consumer.committed(T1) is None
            assert await consumer.seek_to_committed(T1) == {T1: None}


async def test_without_a_policy_the_application_is_told(cluster: FakeCluster, start: Start) -> None:
    await make_topic(cluster)
    cluster.intercept(OffsetFetchRequest, Edit(unknown(1)))
    consumer = await start(cluster, "t", **GROUP, auto_offset_reset="none")
    async with timeout(10):
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.getone(T1)


@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_an_offset_that_the_coordinator_finds_later_counts(
    cluster: FakeCluster, start: Start, change: Change
) -> None:
    """A coordinator may hear of a topic after others, and of the offsets in it at once."""
    await make_topic(cluster)
    first = await start(cluster, "t", **GROUP)
    await first.commit({T0: 2, T1: 1})
    await first.stop()
    async with timeout(10):
        script = cluster.intercept(OffsetFetchRequest, Edit(change), times=3)
        second = await start(cluster, "t", **GROUP)
        assert sorted(await read(second, 3)) == [(0, 2), (1, 1), (1, 2)]
        assert script.hits == 3
        cluster.intercept(OffsetFetchRequest, Edit(change), times=3)
        assert await second.committed(T1) == 1


async def test_an_unknown_partition_does_not_hold_up_the_others(
    cluster: FakeCluster, start: Start
) -> None:
    await make_topic(cluster)
    cluster.intercept(OffsetFetchRequest, Edit(unknown(1)))
    consumer = await start(cluster, "t", **GROUP, retry_backoff_ms=60_000)
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "4.3"])
@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_admin_calls_find_no_offset(version: str, change: Change) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await make_topic(cluster)
        cluster.intercept(OffsetFetchRequest, Edit(change))
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        async with timeout(10), admin:
            found = await admin.list_consumer_group_offsets("g", partitions=[T0, T1])
            assert {tp: offset.offset for tp, offset in found.items()} == {T0: -1, T1: -1}
            assert await admin.groups.offsets({"g": [T0, T1]}) == {"g": {T0: None, T1: None}}
