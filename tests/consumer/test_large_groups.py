"""Groups as wholes: many members, and members that work in different ways."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerState, TopicPartition
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start

MEMBERS, PARTITIONS = 40, 400


def shares(consumers: list[AIOKafkaConsumer]) -> list[int]:
    """How many partitions each has; fails if two have the same one. One that joins is left out: it
    shows what it had, and reads nothing of it."""
    settled = [each for each in consumers if each.health().state is ConsumerState.RUNNING]
    owned = [consumer.assignment() for consumer in settled]
    sizes = [len(some) for some in owned]
    assert len(frozenset[TopicPartition]().union(*owned)) == sum(sizes)
    return sizes


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
async def test_a_large_group_settles_in_one_rebalance(assignor: Any) -> None:
    """As Kafka does, the cluster gives the members of a new group time to come together."""
    settings = {"group.initial.rebalance.delay.ms": 1000}
    async with FakeCluster(config=settings) as cluster:
        await cluster.create_topic("t", partitions=PARTITIONS)
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                partition_assignment_strategy=[assignor],
            )
            for _ in range(MEMBERS)
        ]
        try:
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            assert shares(consumers) == [PARTITIONS // MEMBERS] * MEMBERS
            assert cluster.groups.classic["g"].generation == 1
            # Each asks twice: for its member id, then with it (KIP-394).
            assert cluster.count(JoinGroupRequest) == 2 * MEMBERS
            assert cluster.count(SyncGroupRequest) == MEMBERS
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))


async def test_eager_members_with_a_cooperative_assignor(
    cluster: FakeCluster, start: Start
) -> None:
    """With assignors of both kinds a member is eager: it must not claim what it has given up, or
    no other member gets it."""
    await cluster.create_topic("t", partitions=6)
    options = {
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "partition_assignment_strategy": [CooperativeStickyAssignor, RangePartitionAssignor],
    }
    consumers = []
    for count in (1, 2, 3):
        consumers.append(await start(cluster, "t", **options))
        wanted = [6 // count] * count
        await cluster.wait_for(lambda wanted=wanted: shares(consumers) == wanted)
