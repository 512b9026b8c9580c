"""Elections and moves by the admin client."""

from __future__ import annotations

import pytest

from aiokafka.admin import ElectionType, Reassignment
from aiokafka.errors import (
    AdminItemsError,
    EligibleLeadersNotAvailable,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgress,
    NotControllerError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster
from tests.admin.support import make_admin

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_preferred_leaders_are_elected() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [1, 0], 1: [0, 1]})
        cluster.controller.elect(FIRST, 0)
        found = await admin.topics.elect_leaders([FIRST, SECOND])
        assert found == {FIRST: True, SECOND: False}
        assert cluster.partition(*FIRST).leader == 1
        cluster.controller.elect(FIRST, 0)
        assert await admin.topics.elect_leaders() == {FIRST: True}
        assert await admin.topics.elect_leaders() == {}


async def test_leaders_that_cannot_be_elected() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [1, 0], 1: [1, 2]})
        await cluster.stop_broker(1)
        await cluster.stop_broker(2)
        with pytest.raises(PreferredLeaderNotAvailable):
            await admin.topics.elect_leaders([FIRST])
        with pytest.raises(EligibleLeadersNotAvailable):
            await admin.topics.elect_leaders([SECOND], election_type=ElectionType.UNCLEAN)
        with pytest.raises(AdminItemsError) as caught:
            await admin.topics.elect_leaders([FIRST, TopicPartition("t", 9)])
        assert isinstance(caught.value.errors[TopicPartition("t", 9)], UnknownTopicOrPartitionError)
        assert len(cluster.requests(ElectLeadersRequest)) == 3


async def test_an_unclean_election() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        cluster.replication.stall(FIRST, 1)
        cluster.log("t", 0).extend([(None, b"lost", ())])
        cluster.replication.shrink(FIRST, 1)
        await cluster.stop_broker(0)
        assert cluster.partition(*FIRST).leader == -1
        found = await admin.topics.elect_leaders([FIRST], election_type=ElectionType.UNCLEAN)
        assert (found, cluster.partition(*FIRST).leader) == ({FIRST: True}, 1)


@pytest.mark.parametrize("replicated", [False, True])
async def test_partitions_move(replicated: bool) -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        cluster.log("t", 0).extend([(None, b"kept", ())] * 3)
        if replicated:
            cluster.replication.use()
        await admin.topics.reassign({FIRST: [2, 0]})
        described = (await admin.topics.describe(["t"]))["t"].partitions[0]
        assert described.replicas == (2, 0)
        assert set(described.isr) == {0, 2}
        assert await admin.topics.reassignments() == {}
        await admin.topics.reassign({FIRST: [2]})
        assert cluster.partition(*FIRST).leader == 2
        assert cluster.log("t", 0).end_offset == 3


async def test_a_move_waits_for_its_brokers() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        await cluster.stop_broker(2)
        await admin.topics.reassign({FIRST: [2], SECOND: [1, 2]})
        moves = await admin.topics.reassignments()
        assert moves == {
            FIRST: Reassignment((2, 0), (2,), (0,)),
            SECOND: Reassignment((1, 2), (2,), ()),
        }
        assert await admin.topics.reassignments([SECOND]) == {SECOND: moves[SECOND]}
        assert await admin.topics.reassignments([]) == {}
        await admin.topics.cancel_reassignments([SECOND])
        assert list(await admin.topics.reassignments()) == [FIRST]
        with pytest.raises(NoReassignmentInProgress):
            await admin.topics.cancel_reassignments([SECOND])
        await cluster.start_broker(2)
        assert await admin.topics.reassignments() == {}
        assert cluster.partition(*FIRST).replicas == [2]
        assert cluster.partition(*SECOND).replicas == [1]


async def test_moves_that_cannot_be() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        with pytest.raises(AdminItemsError) as caught:
            await admin.topics.reassign({FIRST: [7], SECOND: [0], TopicPartition("u", 0): [0]})
        assert isinstance(caught.value.errors[FIRST], InvalidReplicationAssignmentError)
        assert list(caught.value.results) == [SECOND]
        with pytest.raises(InvalidReplicationFactorError):
            await admin.topics.reassign({FIRST: [0, 1]}, allow_replication_factor_change=False)
        for wrong in ([], [1, 1]):
            with pytest.raises(ValueError, match="must be one broker or more, each once"):
                await admin.topics.reassign({FIRST: wrong})


async def test_another_controller_is_asked() -> None:
    async with FakeCluster(2, as_version="2.8") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [1, 0]})
        cluster.controller.elect(FIRST, 0)
        for request in (
            ElectLeadersRequest,
            AlterPartitionReassignmentsRequest,
            ListPartitionReassignmentsRequest,
        ):
            cluster.intercept(request, Fail(NotControllerError), times=1)
        assert await admin.topics.elect_leaders([FIRST]) == {FIRST: True}
        await admin.topics.reassign({FIRST: [0, 1]})
        assert await admin.topics.reassignments() == {}


async def test_old_brokers() -> None:
    async with FakeCluster(as_version="4.0") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        with pytest.raises(UnsupportedVersionError, match=r"needs Kafka 4\.1"):
            await admin.topics.reassign({FIRST: [0]}, allow_replication_factor_change=False)
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="ElectLeaders"):
            await admin.topics.elect_leaders()
        with pytest.raises(UnsupportedVersionError, match="AlterPartitionReassignments"):
            await admin.topics.reassign({FIRST: [0], SECOND: [0]})
        with pytest.raises(UnsupportedVersionError, match="ListPartitionReassignments"):
            await admin.topics.reassignments()
