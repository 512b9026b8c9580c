"""Elections, moves and brokers of the admin client against three real brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AclOperation, AIOKafkaAdminClient, ElectionType, NewTopic
from aiokafka.errors import (
    AdminItemsError,
    BrokerIdNotRegistered,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersion,
    KafkaError,
    LogDirNotFound,
    NoReassignmentInProgress,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.structs import RecordMetadata, TopicPartition
from tests.integration.support import read
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
    async with timeout(20):
        while True:
            found = await admin.brokers.log_dirs(partitions=[tp])
            assert sorted(found) == [1, 2, 3]
            (path,) = found[1]
            # A follower makes its replica a moment after all brokers know the topic.
            if tp in found[1][path].replicas:
                break
            await asyncio.sleep(0.1)
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


async def test_topics_are_created_once_though_the_controller_is_killed(
    admin: AIOKafkaAdminClient, kafka3: KafkaCluster
) -> None:
    """Each of 200 topics is made once, or reported as failed by its name."""
    prefix = f"killed-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(200)]
    results: dict[str, int | None] = {}
    errors: dict[str, KafkaError] = {}
    first_made = asyncio.Event()

    async def create(part: list[str]) -> None:
        try:
            made = await admin.topics.create([NewTopic(name, 2, 1) for name in part])
        except AdminItemsError as error:
            errors.update(error.errors)
            made = error.results
        results.update({name: each.num_partitions for name, each in made.items()})
        first_made.set()

    leader = (await admin.brokers.quorum()).leader_id
    # In turn, so that the kill comes in the middle: two lines of requests.
    parts = [names[at : at + 5] for at in range(0, 200, 5)]

    async def line(mine: list[list[str]]) -> None:
        for part in mine:
            await create(part)

    lines = [asyncio.ensure_future(line(parts[at::2])) for at in (0, 1)]
    await first_made.wait()
    await asyncio.to_thread(kafka3.kill, leader)
    assert len(results) < 200, "the controller was killed too late"
    await asyncio.gather(*lines)
    assert results.keys() | errors.keys() == set(names)
    await asyncio.to_thread(kafka3.restart, leader)
    # An attempt whose response was lost has made its topic all the same.
    there = [name for name, each in errors.items() if isinstance(each, TopicAlreadyExistsError)]
    await admin.topics.wait_until_ready([*results, *there])
    found = {topic.name: topic.partitions for topic in await admin.topics.list(f"{prefix}-*")}
    assert set(found.values()) == {2}
    assert {*results, *there} <= found.keys() <= set(names)
    await admin.topics.delete(found)


async def test_fifty_partitions_are_moved_under_load(
    admin: AIOKafkaAdminClient, kafka3: KafkaCluster
) -> None:
    name = f"moved-{uuid.uuid4().hex[:8]}"
    tps = [TopicPartition(name, number) for number in range(50)]
    await admin.topics.create([NewTopic(name, -1, -1, {tp.partition: [1] for tp in tps})])
    await admin.topics.wait_until_ready([name])
    sent: list[asyncio.Future[RecordMetadata]] = []
    producer = AIOKafkaProducer(bootstrap_servers=kafka3.bootstrap_servers)
    moved = asyncio.Event()

    async def load() -> None:
        while not moved.is_set() or len(sent) < 2000:
            number = len(sent)
            sent.append(await producer.send(name, b"%d" % number, partition=number % 50))
            if not number % 20:
                await asyncio.sleep(0.01)

    async with producer:
        loading = asyncio.ensure_future(load())
        while len(sent) < 500:
            await asyncio.sleep(0.01)
        await admin.topics.reassign({tp: [2 + tp.partition % 2] for tp in tps})
        while await admin.topics.reassignments(tps):
            await asyncio.sleep(0.1)
        moved.set()
        await loading
        await asyncio.gather(*sent)
    partitions = (await admin.topics.describe([name]))[name].partitions
    assert [each.replicas for each in partitions] == [(2 + tp.partition % 2,) for tp in tps]
    found = await read(kafka3.bootstrap_servers, name, len(sent), partitions=50)
    assert len(found) == len(sent)
    for tp in tps:
        values = [int(each.value or b"") for each in found if each.partition == tp.partition]
        assert values == list(range(tp.partition, len(sent), 50))
    await admin.topics.delete([name])
