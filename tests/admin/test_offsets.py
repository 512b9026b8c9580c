"""Offsets of partitions through `admin.offsets`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from aiokafka.admin import ListedOffset, OffsetSpec
from aiokafka.errors import (
    AdminItemsError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import FIRST, SECOND, START, THIRD, filled, make_admin


async def test_every_place() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        found = await admin.offsets.list(
            {FIRST: OffsetSpec.EARLIEST, SECOND: OffsetSpec.LATEST, THIRD: START + 2500}
        )
        assert list(found) == [FIRST, SECOND, THIRD]
        assert [each.offset for each in found.values()] == [2, 10, 3]
        assert found[THIRD].timestamp == START + 3000
        found = await admin.offsets.list(
            {
                FIRST: OffsetSpec.MAX_TIMESTAMP,
                SECOND: OffsetSpec.EARLIEST_LOCAL,
                THIRD: OffsetSpec.LATEST_TIERED,
            }
        )
        assert found[FIRST] == ListedOffset(9, START + 9000, 0)
        assert found[SECOND].offset == 2
        assert found[THIRD] == ListedOffset(None, None, None)
        found = await admin.offsets.list({FIRST: OffsetSpec.EARLIEST_PENDING_UPLOAD})
        assert found[FIRST].offset is None
        when = datetime.datetime.fromtimestamp((START + 8000) / 1000, datetime.timezone.utc)
        found = await admin.offsets.list({FIRST: when, SECOND: START + 99_000})
        assert (found[FIRST].offset, found[SECOND].offset) == (8, None)


async def test_the_end_for_readers_of_committed_records() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await admin.offsets.list({FIRST: OffsetSpec.LATEST}, isolation_level="read_committed")
        (seen,) = cluster.requests(ListOffsetsRequest)
        assert seen.request.isolation_level == 1
        with pytest.raises(ValueError, match="isolation_level: 'all': must be one of"):
            await admin.offsets.list({FIRST: OffsetSpec.LATEST}, isolation_level="all")


async def test_wrong_places() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(ValueError, match="places: -7"):
            await admin.offsets.list({FIRST: -7})
        with pytest.raises(ValueError, match="time zone"):
            await admin.offsets.list({FIRST: datetime.datetime(2026, 1, 1)})
        with pytest.raises(TypeError, match="'latest'"):
            await admin.offsets.list({FIRST: "latest"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("version", "place", "kafka"),
    [
        ("0.9", START, "by time needs Kafka 0.10.1"),
        ("2.8", OffsetSpec.MAX_TIMESTAMP, "MAX_TIMESTAMP needs Kafka 3.0"),
        ("3.9", OffsetSpec.EARLIEST_PENDING_UPLOAD, "UPLOAD needs Kafka 4.2"),
    ],
)
async def test_an_old_leader_fails_only_what_it_does_not_know(
    version: str, place: int, kafka: str
) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(AdminItemsError, match=kafka) as caught:
            await admin.offsets.list(
                {FIRST: OffsetSpec.EARLIEST, SECOND: OffsetSpec.LATEST, THIRD: place}
            )
        assert isinstance(caught.value.errors[THIRD], UnsupportedVersionError)
        assert [each.offset for each in caught.value.results.values()] == [2, 10]
        with pytest.raises(UnsupportedVersionError, match="ListOffsets"):
            await admin.offsets.list({THIRD: place})


async def test_a_moved_leader_and_a_refusal() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(ListOffsetsRequest, Fail(NotLeaderForPartitionError), times=2)
        found = await admin.offsets.list(dict.fromkeys([FIRST, SECOND], OffsetSpec.LATEST))
        assert [each.offset for each in found.values()] == [10, 10]

        def refuse(response: Any) -> None:
            response.topics[0].partitions[0].error_code = TopicAuthorizationFailedError.errno

        cluster.intercept(ListOffsetsRequest, Edit(refuse))
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await admin.offsets.list({FIRST: OffsetSpec.LATEST})
