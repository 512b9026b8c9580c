"""Calls with arguments that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.admin import NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError, UnsupportedVersionError
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster
from tests.admin.support import make_admin

TP = TopicPartition("t", 0)

# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [float("nan"), -1, -0.5, 10**400])
async def test_a_time_that_cannot_be_is_refused(wrong: float) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster) as admin:
            with pytest.raises(ValueError, match="timeout_ms="):
                await admin.topics.list(timeout_ms=wrong)  # with NaN it never returned
            with pytest.raises(ValueError, match="timeout_ms="):
                await admin.create_topics([NewTopic("new", 1, 1)], timeout_ms=wrong)  # type: ignore[arg-type]
            assert await admin.list_topics() == ["t"]


@pytest.mark.parametrize("wrong", ["500", True, [1]])
async def test_a_time_is_a_number(wrong: Any) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(TypeError, match="timeout_ms="):
            await admin.groups.describe(["g"], timeout_ms=wrong)


async def test_a_time_may_be_endless() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        endless = float("inf")
        await admin.topics.create([NewTopic("t", 1, 1)], timeout_ms=endless)
        assert await admin.records.delete({TP: 0}, timeout_ms=endless) == {TP: 0}
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.topics.delete(["nope"], timeout_ms=endless)


# -- old brokers -----------------------------------------------------------------------------------


async def test_all_offsets_of_a_group_need_a_newer_broker() -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster, request_timeout_ms=5000) as admin:
            with pytest.raises(UnsupportedVersionError, match="name the partitions"):
                await admin.list_consumer_group_offsets("g")
            found = await admin.list_consumer_group_offsets("g", partitions=[TP])
            assert found[TP].offset == -1
