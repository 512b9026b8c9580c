"""Brokers, features, the quorum and log directories of the admin client."""

from __future__ import annotations

import json
import uuid

import pytest

from aiokafka.admin import AclOperation, FeatureLevels, FeatureUpgradeType
from aiokafka.errors import (
    AdminItemsError,
    BrokerIdNotRegistered,
    ControllerIdNotRegistered,
    DuplicateVoter,
    InvalidUpdateVersion,
    KafkaStorageError,
    LogDirNotFound,
    NotControllerError,
    ReplicaNotAvailableError,
    UnsupportedVersionError,
    VoterNotFound,
)
from aiokafka.protocol.messages.cluster import (
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeaturesRequest,
)
from aiokafka.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import make_admin, simulated

EVERY_AGE = ["0.9", "0.10.2", "1.1", "2.1", "2.8", "3.9", "4.3"]


@pytest.mark.parametrize("version", EVERY_AGE)
async def test_the_cluster(version: str) -> None:
    racks = ["a", "b", None]
    async with FakeCluster(3, as_version=version, racks=racks) as cluster:
        async with make_admin(cluster) as admin:
            found = await admin.brokers.describe_cluster(include_authorized_operations=True)
        assert [broker.id for broker in found.brokers] == [0, 1, 2]
        assert found.brokers[1].port == cluster.state.nodes[1].port
        assert found.brokers[1].rack == (None if version == "0.9" else "b")
        assert found.brokers[1].is_fenced == (False if version == "4.3" else None)
        assert found.controller_id == (None if version == "0.9" else 0)
        assert found.cluster_id == (None if version == "0.9" else cluster.state.cluster_id)
        if version in ("2.8", "3.9", "4.3"):
            assert AclOperation.ALTER in (found.authorized_operations or ())
        assert json.dumps(found.as_dict())


async def test_fenced_brokers() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.stop_broker(1)
        assert [b.id for b in (await admin.brokers.describe_cluster()).brokers] == [0]
        found = await admin.brokers.describe_cluster(include_fenced=True)
        assert [(broker.id, broker.is_fenced) for broker in found.brokers] == [
            (0, False),
            (1, True),
        ]
        assert found.authorized_operations is None
    for version in ("2.1", "3.9"):
        async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
            with pytest.raises(UnsupportedVersionError):
                await admin.brokers.describe_cluster(include_fenced=True)


async def test_features() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        found = await admin.brokers.features()
        assert found.supported["transaction.version"] == FeatureLevels(0, 2)
        assert found.finalized["transaction.version"] == FeatureLevels(2, 2)
        assert found.finalized_epoch == 1
        assert (await admin.brokers.features(1)).supported == found.supported
        down = {"transaction.version": 1}
        with pytest.raises(InvalidUpdateVersion, match="would go down"):
            await admin.brokers.update_features(down)
        safe = FeatureUpgradeType.SAFE_DOWNGRADE
        await admin.brokers.update_features(down, upgrade_type=safe, validate_only=True)
        assert (await admin.brokers.features()).finalized["transaction.version"].max_level == 2
        cluster.intercept(UpdateFeaturesRequest, Fail(NotControllerError), times=1)
        await admin.brokers.update_features(down, upgrade_type=safe)
        found = await admin.brokers.features()
        assert found.finalized["transaction.version"] == FeatureLevels(1, 1)
        assert found.finalized_epoch == 2
        with pytest.raises(InvalidUpdateVersion, match="downgrade to a newer version"):
            await admin.brokers.update_features({"transaction.version": 2}, upgrade_type=safe)
        with pytest.raises(InvalidUpdateVersion, match="no such feature"):
            await admin.brokers.update_features({"wings": 1})


async def test_features_of_old_brokers() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="features"):
            await admin.brokers.features()
        with pytest.raises(UnsupportedVersionError, match="UpdateFeatures"):
            await admin.brokers.update_features({"a": 1})
    async with FakeCluster(as_version="2.8") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"needs Kafka 3\.3"):
            await admin.brokers.update_features({"a": 1}, validate_only=True)


async def test_the_quorum() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.stop_broker(2)
        found = await admin.brokers.quorum()
        assert found.leader_id == 0
        assert [(voter.replica_id, voter.lag) for voter in found.voters] == [
            (0, 0),
            (1, 0),
            (2, 100),
        ]
        assert len({voter.directory_id for voter in found.voters}) == 3
        assert found.listeners[1][0][0] == "CONTROLLER"
        assert json.dumps(found.as_dict())
    async with FakeCluster(as_version="2.8") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="DescribeQuorum"):
            await admin.brokers.quorum()


async def test_voters_come_and_go() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        directory = (await admin.brokers.quorum()).voters[1].directory_id
        assert directory is not None
        with pytest.raises(UnsupportedVersionError):
            await admin.brokers.remove_voter(1, directory)
        await admin.brokers.update_features({"kraft.version": 1})
        with pytest.raises(VoterNotFound):
            await admin.brokers.remove_voter(1, uuid.UUID(int=1))
        await admin.brokers.remove_voter(1, directory)
        assert [voter.replica_id for voter in (await admin.brokers.quorum()).voters] == [0]
        listeners = [("CONTROLLER", "localhost", 9093)]
        await admin.brokers.add_voter(1, directory, listeners)
        with pytest.raises(DuplicateVoter):
            await admin.brokers.add_voter(1, directory, listeners)
        with pytest.raises(ValueError, match="listeners: must be one"):
            await admin.brokers.add_voter(1, directory, [])


async def test_a_broker_is_forgotten() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.stop_broker(2)
        cluster.intercept(UnregisterBrokerRequest, Fail(NotControllerError), times=1)
        await admin.brokers.unregister(2)
        found = await admin.brokers.describe_cluster(include_fenced=True)
        assert [broker.id for broker in found.brokers] == [0, 1]
        for gone in (2, 7):
            with pytest.raises(BrokerIdNotRegistered):
                await admin.brokers.unregister(gone)
        await cluster.start_broker(2)
        found = await admin.brokers.describe_cluster()
        assert [broker.id for broker in found.brokers] == [0, 1, 2]


async def test_a_controller_is_forgotten() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.stop_broker(2)
        cluster.intercept(UnregisterControllerRequest, Fail(NotControllerError), times=1)
        await admin.brokers.unregister_controller(2)
        for gone in (2, 7):
            with pytest.raises(ControllerIdNotRegistered, match=f"controller {gone}"):
                await admin.brokers.unregister_controller(gone)


@pytest.mark.parametrize("version", ["1.1", "2.1", "2.8", "3.9", "4.3"])
async def test_log_directories(version: str) -> None:
    async with FakeCluster(2, as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        cluster.log("t", 1).extend([(None, b"value", ())])
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        found = await admin.brokers.log_dirs()
        assert list(found) == [0, 1]
        main, spare = found[1]
        assert set(found[0][main].replicas) == {first}
        assert set(found[1][main].replicas) == {second}
        assert found[1][main].replicas[second].size > 0
        assert found[1][main].error is None
        told = found[1][main].total_bytes is not None
        assert told == (version in ("3.9", "4.3"))
        await admin.brokers.move_replicas(1, {second: spare})
        moved = await admin.brokers.log_dirs([1], partitions=[second])
        assert set(moved[1][spare].replicas) == {second}
        assert not moved[1][main].replicas
        with pytest.raises(LogDirNotFound, match="t-0 on node 0, to /none"):
            await admin.brokers.move_replicas(0, {first: "/none"})
        with pytest.raises(AdminItemsError) as caught:
            await admin.brokers.move_replicas(0, {first: main, second: main})
        assert isinstance(caught.value.errors[second], ReplicaNotAvailableError)


async def test_a_broken_directory_and_a_broker_that_is_away() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:

        def broken(response: object) -> None:
            response.results[0].error_code = KafkaStorageError.errno  # type: ignore[attr-defined]

        cluster.intercept(DescribeLogDirsRequest, Edit(broken), broker=0)
        found = await admin.brokers.log_dirs([0])
        errors = [each.error for each in found[0].values()]
        assert isinstance(errors[0], KafkaStorageError)
        assert errors[1] is None
        await cluster.stop_broker(1)
        with pytest.raises(AdminItemsError) as caught:
            await admin.brokers.log_dirs([0, 1])
        assert list(caught.value.results) == [0]
        assert isinstance(caught.value.errors[1], BrokerIdNotRegistered)


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        for levels in ({"a": -1}, {"a": True}, {}):
            error = TypeError if levels == {"a": True} else ValueError
            with pytest.raises(error, match="levels: "):
                await admin.brokers.update_features(levels)


@simulated
async def test_a_directory_that_has_failed_is_told_of_at_once() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.intercept(AlterReplicaLogDirsRequest, Fail(KafkaStorageError))
        moves = {TopicPartition("t", 0): "/failed"}
        with pytest.raises(KafkaStorageError, match="t-0 on node 0, to /failed"):
            await admin.brokers.move_replicas(0, moves)
