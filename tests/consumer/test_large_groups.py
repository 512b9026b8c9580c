"""Groups as wholes: many members, and members that work in different ways."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from functools import partial
from typing import Any

import pytest

from aiokafka import (
    AIOKafkaConsumer,
    ConsumerRebalanceListener,
    ConsumerState,
    TopicPartition,
)
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


def has_shares(consumers: list[AIOKafkaConsumer], wanted: list[int]) -> bool:
    return sorted(shares(consumers)) == wanted


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


class OtherAssignor(CooperativeStickyAssignor):
    """A program's own, to which a group moves from the one of this library."""

    name = "other"


class NaiveAssignor(RangePartitionAssignor):
    """One that does not know of two steps."""

    name = "naive"
    supports_cooperative = True


class Duck:
    """One that has only the methods that it needs."""

    name = "duck"
    supports_cooperative = True

    def metadata(self, topics: Any) -> Any:
        return RangePartitionAssignor.metadata(topics)

    def assign(self, cluster: Any, members: Any) -> Any:
        return RangePartitionAssignor.assign(cluster, members)

    def on_assignment(self, assignment: Any) -> None:
        pass


class Slow(ConsumerRebalanceListener):
    """Gives nothing up before the newcomer has heard of its first assignment."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self.gate.wait()

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        pass


class Newcomer(ConsumerRebalanceListener):
    """Notes what it is assigned while another consumer has it."""

    def __init__(self, others: list[AIOKafkaConsumer], gate: asyncio.Event) -> None:
        self.shared: set[TopicPartition] = set()
        self._others = others
        self._gate = gate

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        for other in self._others:
            self.shared |= other.assignment() & assigned
        self._gate.set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([CooperativeStickyAssignor, OtherAssignor], [OtherAssignor]),
        2 * ([NaiveAssignor],),
        2 * ([Duck],),
    ],
)
async def test_a_newcomer_gets_nothing_that_another_cooperative_member_has(
    cluster: FakeCluster, start: Start, before: list[Any], after: list[Any]
) -> None:
    """Only the assignor that was chosen hears of an assignment. A leader that asked the other one
    gave partitions to a newcomer that their owners had not given up yet, and so did one whose
    assignor is a program's own."""
    await cluster.create_topic("t", partitions=4)
    options: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
    slow = Slow()
    consumers = []
    for count in (1, 2):
        consumer = await start(cluster, partition_assignment_strategy=before, **options)
        consumer.subscribe(["t"], listener=slow)
        consumers.append(consumer)
        await cluster.wait_for(partial(has_shares, consumers, [4 // count] * count))
    slow.gate.clear()
    third = await start(cluster, partition_assignment_strategy=after, **options)
    newcomer = Newcomer(consumers, slow.gate)
    third.subscribe(["t"], listener=newcomer)
    await cluster.wait_for(partial(has_shares, [*consumers, third], [1, 1, 2]))
    assert newcomer.shared == set()
