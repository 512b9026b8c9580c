"""Elections, moves and brokers of the admin client against three real brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ElectionType, NewTopic
from aiokafka.errors import (
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgress,
    UnknownTopicOrPartitionError,
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
