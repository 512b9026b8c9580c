"""Groups deleted, members removed, offsets altered, deleted and reset."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from aiokafka.admin import OffsetReset, ResetRule
from aiokafka.errors import (
    AdminItemsError,
    GroupDeletionFailed,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    NoOffsetForPartitionError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.group_members import LeaveGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import (
    FIRST,
    SECOND,
    START,
    THIRD,
    commit,
    filled,
    joined,
    make_admin,
    member,
)

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


async def test_groups_are_deleted_at_their_coordinators() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        for broker, group in enumerate("abc"):
            await commit(cluster, group, {FIRST: 3})
            cluster.move_coordinator("group", group, broker)
        cluster.intercept(DeleteGroupsRequest, Fail(NotCoordinatorForGroupError), times=1)
        await admin.groups.delete(["a", "b"])
        assert list(await admin.groups.list()) == ["c"]
        async with member(cluster, "used", "t") as consumer:
            await joined(cluster, consumer, 3)
            with pytest.raises(NonEmptyGroup, match="'used' has members: stop its consumers"):
                await admin.groups.delete(["used"])
            with pytest.raises(AdminItemsError) as caught:
                await admin.groups.delete(["c", "used", "missing"])
            assert list(caught.value.results) == ["c"]
            kinds = {group: type(error) for group, error in caught.value.errors.items()}
            assert kinds == {"used": NonEmptyGroup, "missing": GroupIdNotFound}


async def test_the_brokers_reason_for_a_group_that_cannot_be_deleted() -> None:
    def explain(response: DeleteGroupsResponse) -> None:
        response.results[0].error_code = GroupDeletionFailed.errno
        response.results[0].error_message = "its topology description is in use"

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 3})
        cluster.intercept(DeleteGroupsRequest, Edit(explain))
        with pytest.raises(GroupDeletionFailed, match="its topology description is in use"):
            await admin.groups.delete(["g"])


async def test_what_old_brokers_cannot_do() -> None:
    async with FakeCluster(as_version="0.11") as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(UnsupportedVersionError, match="DeleteGroups"):
            await admin.groups.delete(["g"])
        with pytest.raises(UnsupportedVersionError, match=r"LeaveGroup.*Kafka 2\.4"):
            await admin.groups.remove_members("g", instance_ids=["one"])
        with pytest.raises(UnsupportedVersionError, match="OffsetDelete"):
            await admin.groups.delete_offsets("g", [FIRST])


async def test_members_are_removed_by_name_by_id_and_all() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        options = {"heartbeat_interval_ms": 60_000, "session_timeout_ms": 200_000}
        async with (
            member(cluster, "g", "t", group_instance_id="one", **options) as one,
            member(cluster, "h", "t", **options) as two,
        ):
            await joined(cluster, one, 3)
            await joined(cluster, two, 3)
            with pytest.raises(AdminItemsError) as caught:
                await admin.groups.remove_members("g", instance_ids=["one", "other"], reason="old")
            assert list(caught.value.results) == ["one"]
            assert isinstance(caught.value.errors["other"], UnknownMemberIdError)
            (described,) = (await admin.groups.describe(["h"])).values()
            member_id = described.members[0].member_id
            assert await admin.groups.remove_members("h", all_members=True) == (member_id,)
            assert not (await admin.groups.describe(["h"]))["h"].members
            with pytest.raises(UnknownMemberIdError, match=r"'h', member"):
                await admin.groups.remove_members("h", member_ids=[member_id])
            reasons = [
                each.reason
                for seen in cluster.requests(LeaveGroupRequest)
                for each in seen.request.members
            ]
            assert reasons[:2] == ["old", "old"]
            assert await admin.groups.remove_members("h") == ()


@pytest.mark.parametrize("version", ["0.9", "1.1", "4.3"])
async def test_offsets_are_altered(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(OffsetCommitRequest, Fail(NotCoordinatorForGroupError), times=1)
        await admin.groups.alter_offsets("g", {FIRST: 4, SECOND: OffsetAndMetadata(5, "note")})
        assert await admin.groups.offsets({"g": [FIRST, SECOND, THIRD]}) == {
            "g": {FIRST: OffsetAndMetadata(4), SECOND: OffsetAndMetadata(5, "note"), THIRD: None}
        }
        with pytest.raises(AdminItemsError, match="gone-0") as caught:
            await admin.groups.alter_offsets("g", {FIRST: 9, TopicPartition("gone", 0): 1})
        assert list(caught.value.results) == [FIRST]
        (error,) = caught.value.errors.values()
        assert isinstance(error, UnknownTopicOrPartitionError)
        with pytest.raises(ValueError, match=r"offsets: .*-1"):
            await admin.groups.alter_offsets("g", {FIRST: -1})


@PROTOCOLS
async def test_a_group_with_members_is_left_alone(protocol: str) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        async with member(
            cluster, "g", "t", group_protocol=protocol, enable_auto_commit=False
        ) as consumer:
            await joined(cluster, consumer, 3)
            await consumer.commit({FIRST: 5})
            with pytest.raises(NonEmptyGroup, match="stop its consumers"):
                await admin.groups.alter_offsets("g", {FIRST: 9, SECOND: 9})
            cluster.forget_requests()
            with pytest.raises(NonEmptyGroup, match="stop its consumers"):
                await admin.groups.reset_offsets("g", ResetRule.earliest(), topics=["t"])
            assert not cluster.requests(OffsetCommitRequest)
            found = await admin.groups.reset_offsets("g", ResetRule.earliest(), dry_run=True)
            assert found == {FIRST: OffsetReset(5, 2, False)}
            with pytest.raises(GroupSubscribedToTopic, match="t-0"):
                await admin.groups.delete_offsets("g", [FIRST])
            assert cluster.groups.committed("g", "t", 0) == 5


async def test_a_consumer_that_joins_meanwhile_stops_a_reset() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 5})
        cluster.intercept(OffsetCommitRequest, Fail(RebalanceInProgressError))
        with pytest.raises(NonEmptyGroup):
            await admin.groups.reset_offsets("g", ResetRule.latest())
        assert cluster.groups.committed("g", "t", 0) == 5


async def test_offsets_are_deleted() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 3, SECOND: 4})
        cluster.intercept(OffsetDeleteRequest, Fail(NotCoordinatorForGroupError), times=1)
        await admin.groups.delete_offsets("g", [FIRST])
        assert await admin.groups.offsets(["g"]) == {"g": {SECOND: OffsetAndMetadata(4)}}
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.delete_offsets("g", [SECOND, TopicPartition("gone", 1)])
        assert list(caught.value.results) == [SECOND]
        with pytest.raises(GroupIdNotFound):
            await admin.groups.delete_offsets("missing", [FIRST])


OLD = {FIRST: 4, SECOND: 10}
RULES = {
    "earliest": (ResetRule.earliest(), (2, 2), (False, False)),
    "latest": (ResetRule.latest(), (10, 10), (False, False)),
    "timestamp": (ResetRule.timestamp(START + 6500), (7, 7), (False, False)),
    "too new": (ResetRule.timestamp(START + 99_000), (10, 10), (False, False)),
    "duration": (ResetRule.duration(datetime.timedelta(days=20_000)), (2, 2), (False, False)),
    "forward": (ResetRule.shift_by(3), (7, 10), (False, True)),
    "back": (ResetRule.shift_by(-3), (2, 7), (True, False)),
    "offset": (ResetRule.to_offset(5), (5, 5), (False, False)),
    "too low": (ResetRule.to_offset(0), (2, 2), (True, True)),
}


@pytest.mark.parametrize("name", RULES)
async def test_offsets_are_reset_by_each_rule(name: str) -> None:
    rule, new, clamped = RULES[name]
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", OLD)
        expected = {
            tp: OffsetReset(OLD[tp], new[at], clamped[at]) for at, tp in enumerate((FIRST, SECOND))
        }
        assert await admin.groups.reset_offsets("g", rule, dry_run=True) == expected
        assert cluster.groups.committed("g", "t", 0) == 4
        assert await admin.groups.reset_offsets("g", rule) == expected
        assert [cluster.groups.committed("g", "t", at) for at in (0, 1, 2)] == [*new, None]


async def test_offsets_are_copied_from_another_group() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "a", {FIRST: 4, SECOND: 6})
        assert await admin.groups.reset_offsets("b", ResetRule.copy("a")) == {
            FIRST: OffsetReset(None, 4, False),
            SECOND: OffsetReset(None, 6, False),
        }
        with pytest.raises(AdminItemsError, match="group 'a' has no offset for t-2") as caught:
            await admin.groups.reset_offsets("c", ResetRule.copy("a"), topics=["t"])
        assert isinstance(caught.value.errors[THIRD], NoOffsetForPartitionError)
        assert "c" not in await admin.groups.list()
        with pytest.raises(GroupIdNotFound, match="'missing' has no offsets to copy"):
            await admin.groups.reset_offsets("b", ResetRule.copy("missing"))


async def test_a_reset_begins_a_group_or_more_partitions() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(GroupIdNotFound, match="name the topics or partitions"):
            await admin.groups.reset_offsets("g", ResetRule.earliest())
        found = await admin.groups.reset_offsets("g", ResetRule.earliest(), topics=["t"])
        assert list(found) == [FIRST, SECOND, THIRD]
        with pytest.raises(NoOffsetForPartitionError, match="the group has no offset for t-0"):
            await admin.groups.reset_offsets("h", ResetRule.shift_by(1), partitions=[FIRST])
        assert await admin.groups.reset_offsets("g", ResetRule.latest(), partitions=[]) == {}


async def test_a_reset_of_what_is_not_there() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(UnknownTopicOrPartitionError, match="'gone'"):
            await admin.groups.reset_offsets("g", ResetRule.latest(), topics=["gone"])
        absent = TopicPartition("t", 99)
        with pytest.raises(AdminItemsError, match="t-99: no such partition"):
            await admin.groups.reset_offsets("g", ResetRule.latest(), partitions=[FIRST, absent])
        assert "g" not in await admin.groups.list()
        for wrong in (lambda: ResetRule.to_offset(-1), lambda: ResetRule.duration(-1)):
            with pytest.raises(ValueError, match=r"not be negative|at least 0"):
                wrong()
        with pytest.raises(TypeError, match="rule: must be a ResetRule, not 'latest'"):
            await admin.groups.reset_offsets("g", "latest")  # type: ignore[arg-type]


async def test_a_cancelled_change_ends_at_once() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})

        def hold(response: Any) -> None:
            task.cancel()

        cluster.intercept(OffsetCommitRequest, Edit(hold))
        task = asyncio.create_task(admin.groups.reset_offsets("g", ResetRule.latest()))
        with pytest.raises(asyncio.CancelledError):
            await task
        # What was sent has been done.
        assert cluster.groups.committed("g", "t", 0) == 10
