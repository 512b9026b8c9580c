"""Elections, moves and brokers of the admin client against three real brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from aiokafka.admin import AclOperation, AIOKafkaAdminClient, ElectionType, NewTopic
from aiokafka.errors import (
    BrokerIdNotRegistered,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersion,
    LogDirNotFound,
    NoReassignmentInProgress,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.structs import TopicPartition
from tests.kafka.launcher import KafkaCluster

# Starting brokers counts as part of the first test.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def admin(kafka3: KafkaCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as client:
        yield client


async def test_moves_and_elections(admin: AIOKafkaAdminClient) -> None:
    name = f"admin-cluster-{uuid.uuid4().hex[:12]}"
    tp = TopicPartition(name, 0)
    await admin.topics.create([NewTopic(name, -1, -1, {0: [1, 2]})])
    await admin.topics.wait_until_ready([name])
    assert await admin.topics.elect_leaders([tp]) == {tp: False}
    assert await admin.topics.elect_leaders([tp], election_type=ElectionType.UNCLEAN) == {tp: False}

    await admin.topics.reassign({tp: [3, 2]}, allow_replication_factor_change=False)
    while await admin.topics.reassignments([tp]):
        await asyncio.sleep(0.05)
    while True:
        partition = (await admin.topics.describe([name]))[name].partitions[0]
        if partition.replicas == (3, 2) and set(partition.isr) == {2, 3}:
            break
        await asyncio.sleep(0.05)
    await admin.topics.reassign({tp: [2, 3]})
    while await admin.topics.reassignments():
        await asyncio.sleep(0.05)
    await admin.topics.elect_leaders([tp])
    while (await admin.topics.describe([name]))[name].partitions[0].leader != 2:
        await asyncio.sleep(0.05)
    assert tp not in await admin.topics.elect_leaders()

    with pytest.raises(NoReassignmentInProgress):
        await admin.topics.cancel_reassignments([tp])
    with pytest.raises(InvalidReplicationAssignmentError):
        await admin.topics.reassign({tp: [9]})
    with pytest.raises(InvalidReplicationFactorError):
        await admin.topics.reassign({tp: [1]}, allow_replication_factor_change=False)
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.topics.elect_leaders([TopicPartition("no-such", 0)])
    await admin.topics.delete([name])


async def test_the_cluster_and_its_quorum(admin: AIOKafkaAdminClient) -> None:
    cluster = await admin.brokers.describe_cluster(include_authorized_operations=True)
    assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
    assert cluster.controller_id in (1, 2, 3)
    assert AclOperation.ALTER in (cluster.authorized_operations or ())

    quorum = await admin.brokers.quorum()
    assert sorted(voter.replica_id for voter in quorum.voters) == [1, 2, 3]
    (leader,) = [each for each in quorum.voters if each.replica_id == quorum.leader_id]
    assert leader.lag == 0
    assert quorum.high_watermark > 0
    assert all(voter.log_end_offset > 0 for voter in quorum.voters)
    # The voters are those of the configuration files.
    with pytest.raises(UnsupportedVersionError):
        await admin.brokers.remove_voter(2, uuid.uuid4())
    with pytest.raises(UnsupportedVersionError):
        await admin.brokers.add_voter(9, uuid.uuid4(), [("CONTROLLER", "127.0.0.1", 1)])


async def test_features(admin: AIOKafkaAdminClient) -> None:
    found = await admin.brokers.features(2)
    supported, finalized = found.supported["metadata.version"], found.finalized["metadata.version"]
    assert supported.min_level <= finalized.max_level <= supported.max_level
    assert found.finalized_epoch is not None
    with pytest.raises(InvalidUpdateVersion):
        await admin.brokers.update_features({"metadata.version": 1000})
    level = found.finalized["transaction.version"].max_level
    await admin.brokers.update_features({"transaction.version": level}, validate_only=True)


async def test_log_directories(admin: AIOKafkaAdminClient) -> None:
    name = f"admin-cluster-{uuid.uuid4().hex[:12]}"
    tp = TopicPartition(name, 0)
    await admin.topics.create([NewTopic(name, -1, -1, {0: [1, 2]})])
    await admin.topics.wait_until_ready([name])
    found = await admin.brokers.log_dirs(partitions=[tp])
    assert sorted(found) == [1, 2, 3]
    (path,) = found[1]
    assert found[1][path].replicas[tp].offset_lag == 0
    assert (found[1][path].usable_bytes or 0) > 0
    assert not next(iter(found[3].values())).replicas
    await admin.brokers.move_replicas(1, {tp: path})
    with pytest.raises(LogDirNotFound):
        await admin.brokers.move_replicas(1, {tp: "/no/such/directory"})
    await admin.topics.delete([name])


async def test_a_broker_is_forgotten(admin: AIOKafkaAdminClient, kafka3: KafkaCluster) -> None:
    with pytest.raises(BrokerIdNotRegistered):
        await admin.brokers.unregister(99)
    await asyncio.to_thread(kafka3.terminate, 3)
    while True:
        found = await admin.brokers.describe_cluster(include_fenced=True)
        if [broker.id for broker in found.brokers if broker.is_fenced] == [3]:
            break
        await asyncio.sleep(0.1)
    await admin.brokers.unregister(3)
    while 3 in [broker.id for broker in found.brokers]:
        await asyncio.sleep(0.1)
        found = await admin.brokers.describe_cluster(include_fenced=True)
    await asyncio.to_thread(kafka3.restart, 3)
    found = await admin.brokers.describe_cluster()
    assert [broker.id for broker in found.brokers] == [1, 2, 3]
