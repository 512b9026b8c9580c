"""Share groups and streams groups. A fake cluster has none: what brokers say of them is put in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiokafka.admin import GroupState, GroupType, ShareOffset
from aiokafka.errors import (
    AdminItemsError,
    GroupIdNotFound,
    NonEmptyGroup,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import share_groups, streams_groups
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import FIRST, SECOND, START, THIRD, filled, make_admin


async def test_a_share_group_is_described() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        wire = share_groups

        def fill(response: Any) -> None:
            topic = wire.DescribedTopicPartitions(
                topic_id=bytes(16), topic_name="t", partitions=[1, 0]
            )
            member = wire.Member(
                member_id="m",
                rack_id="r",
                member_epoch=3,
                client_id="c",
                client_host="/h",
                subscribed_topic_names=["t"],
                assignment=wire.DescribedAssignment(topic_partitions=[topic]),
            )
            group = response.groups[0]
            group.error_code = 0
            group.group_state, group.group_epoch, group.assignment_epoch = "Stable", 3, 2
            group.assignor_name, group.members = "simple", [member]

        cluster.intercept(wire.ShareGroupDescribeRequest, Edit(fill))
        found = (await admin.groups.describe(["g"]))["g"]
        assert (found.type, found.state, found.epoch) == (GroupType.SHARE, GroupState.STABLE, 3)
        assert (found.protocol_type, found.assignor) == ("share", "simple")
        (one,) = found.members
        assert (one.assignment, one.rack, one.epoch) == ((FIRST, SECOND), "r", 3)
        assert not cluster.requests(streams_groups.StreamsGroupDescribeRequest)


async def test_a_streams_group_is_described() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        wire = streams_groups

        def fill(response: Any) -> None:
            tasks = [wire.TaskIds(subtopology_id="0", partitions=[2, 1])]
            nothing = wire.Assignment(active_tasks=[], standby_tasks=[], warmup_tasks=[])
            member = wire.Member(
                member_id="m",
                member_epoch=4,
                client_id="c",
                client_host="/h",
                topology_epoch=1,
                process_id="p",
                client_tags=[],
                task_offsets=[],
                task_end_offsets=[],
                assignment=wire.Assignment(active_tasks=tasks, standby_tasks=[], warmup_tasks=[]),
                target_assignment=nothing,
                is_classic=False,
            )
            group = response.groups[0]
            group.error_code = 0
            group.group_state, group.group_epoch, group.assignment_epoch = "NotReady", 4, 4
            group.topology = wire.DescribedTopology(epoch=7, subtopologies=None)
            group.members = [member]

        cluster.intercept(wire.StreamsGroupDescribeRequest, Edit(fill))
        found = (await admin.groups.describe(["g"]))["g"]
        assert (found.type, found.state) == (GroupType.STREAMS, GroupState.NOT_READY)
        assert found.topology_epoch == 7
        (one,) = found.members
        assert one.tasks is not None
        assert (one.tasks.active, one.tasks.standby) == ({"0": (1, 2)}, {})
        plain = json.loads(json.dumps(found.as_dict()))
        assert plain["members"][0]["tasks"]["active"] == {"0": [1, 2]}


async def test_offsets_of_share_groups() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        wire = share_groups

        def fill(response: Any) -> None:
            partition = wire.DescribeShareGroupOffsetsResponsePartition
            for group in response.groups:
                if group.group_id == "missing":
                    group.error_code = GroupIdNotFound.errno
                    continue
                group.error_code = 0
                parts = [
                    partition(partition_index=0, start_offset=4, leader_epoch=1, lag=6),
                    partition(partition_index=1, start_offset=-1, leader_epoch=-1),
                ]
                group.topics = [
                    wire.DescribeShareGroupOffsetsResponseTopic(
                        topic_name="t", topic_id=bytes(16), partitions=parts
                    )
                ]

        cluster.intercept(
            wire.DescribeShareGroupOffsetsRequest, Fail(NotCoordinatorForGroupError), times=1
        )
        cluster.intercept(wire.DescribeShareGroupOffsetsRequest, Edit(fill))
        expected = {FIRST: ShareOffset(4, 1, 6), SECOND: None}
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.share_offsets({"g": [FIRST, SECOND], "h": None, "missing": None})
        assert caught.value.results == {"g": expected, "h": expected}
        assert isinstance(caught.value.errors["missing"], GroupIdNotFound)
        assert await admin.groups.share_offsets(["g"]) == {"g": expected}


async def test_offsets_of_share_groups_are_changed() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        wire = share_groups
        cluster.intercept(wire.AlterShareGroupOffsetsRequest, Fail(GroupIdNotFound), times=1)
        with pytest.raises(GroupIdNotFound, match="share group 'g'"):
            await admin.groups.alter_share_offsets("g", {FIRST: 1, SECOND: 2})
        with pytest.raises(GroupIdNotFound, match="share group 'g'"):
            await admin.groups.delete_share_offsets("g", ["t", "u"])
        cluster.intercept(wire.AlterShareGroupOffsetsRequest, Fail(NonEmptyGroup), times=1)
        with pytest.raises(NonEmptyGroup, match="stop its consumers"):
            await admin.groups.alter_share_offsets("g", {FIRST: 1})

        def refuse_one(response: Any) -> None:
            denied = TopicAuthorizationFailedError.errno
            response.error_code = 0
            response.responses = [
                wire.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=bytes(16), error_code=code
                )
                for name, code in (("t", 0), ("u", denied))
            ]

        cluster.intercept(wire.DeleteShareGroupOffsetsRequest, Edit(refuse_one))
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.delete_share_offsets("g", ["t", "u"])
        assert (list(caught.value.results), list(caught.value.errors)) == (["t"], ["u"])


async def test_the_lag_of_a_share_group() -> None:
    def describe(response: Any) -> None:
        for group in response.groups:
            group.error_code, group.group_state = 0, "Empty"
            group.group_epoch, group.assignment_epoch = 1, 1
            group.assignor_name, group.members = "simple", []

    def tell(response: Any) -> None:
        wire = share_groups
        places = ((0, 4, 3), (1, 4, -1), (2, -1, -1))
        parts = [
            wire.DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=start, leader_epoch=0, lag=lag
            )
            for number, start, lag in places
        ]
        topic = wire.DescribeShareGroupOffsetsResponseTopic(
            topic_name="t", topic_id=bytes(16), partitions=parts
        )
        for group in response.groups:
            group.error_code, group.topics = 0, [topic]

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(share_groups.ShareGroupDescribeRequest, Edit(describe))
        cluster.intercept(share_groups.DescribeShareGroupOffsetsRequest, Edit(tell))
        found = (await admin.groups.lag(["g"]))["g"]
        assert (found.type, found.lag) == (GroupType.SHARE, 3 + 6)
        first, second, third = (found.partitions[tp] for tp in (FIRST, SECOND, THIRD))
        # What was acknowledged out of order is no lag; older brokers do not tell.
        assert (first.committed, first.end_offset, first.lag) == (4, 10, 3)
        assert (second.committed, second.lag, second.unread_since) == (4, 6, START + 4000)
        assert (third.committed, third.lag) == (None, None)


async def test_brokers_that_have_no_share_groups() -> None:
    async with FakeCluster(as_version="3.9") as cluster, make_admin(cluster) as admin:
        with pytest.raises(GroupIdNotFound):
            await admin.groups.describe(["g"])
        with pytest.raises(UnsupportedVersionError, match="DescribeShareGroupOffsets"):
            await admin.groups.share_offsets(["g"])
        with pytest.raises(UnsupportedVersionError, match="AlterShareGroupOffsets"):
            await admin.groups.alter_share_offsets("g", {FIRST: 1})
