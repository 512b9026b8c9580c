"""A member is removed by its group while a rebalance waits for its application; and what it may do
when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AsyncConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import fill
from tests.support.groups import Log, until

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("is_auto", [True, False], ids=["auto", "by hand"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_listener_hears_of_it_as_lost(protocol: str, is_auto: bool) -> None:
    """It heard that its partitions are revoked, when the application had finished what it had in
    hand: others had them by then, and the commit of a listener was refused."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=2)
            fill(cluster, 0, 5)
            fill(cluster, 1, 5)

            def member() -> AIOKafkaConsumer:
                return AIOKafkaConsumer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id="g",
                    auto_offset_reset="earliest",
                    enable_auto_commit=is_auto,
                    rebalance_timeout_ms=60_000,
                    **PROTOCOLS[protocol],
                )

            log, other = Log(), member()
            async with member() as consumer:
                consumer.subscribe(["t"], listener=log)
                await until(cluster, lambda: len(consumer.assignment()) == 2)
                while set(await consumer.getmany(timeout_ms=100)) != consumer.assignment():
                    for tp in consumer.assignment():
                        consumer.seek(tp, 0)
                log.calls.clear()
                other.subscribe(["t"])
                begins = asyncio.create_task(other.start())
                # It is told to give up, and waits for the application, for 30 s.
                await asyncio.sleep(10)
                assert log.calls == []
                cluster.groups.expire("g", consumer.group_metadata().member_id)
                await asyncio.sleep(10)
                assert log.calls[0] == ("lost", {0, 1})
                await consumer.getmany(timeout_ms=10_000)
                await begins
                assert len(consumer.assignment()) == len(other.assignment()) == 1
                await other.stop()

    simulate(main)


@pytest.mark.parametrize("way", ["removed", "unsubscribed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_listener_may_commit_when_the_member_is_back(protocol: str, way: str) -> None:
    """Its commit of what was just assigned was taken for one of the time before, and refused."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                enable_auto_commit=False,
                **PROTOCOLS[protocol],
            )
            offsets = iter([1, 2])

            class Commits(AsyncConsumerRebalanceListener):
                async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
                    pass

                async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
                    await consumer.commit(dict.fromkeys(assigned, next(offsets)))

            consumer.subscribe(["t"], listener=Commits())
            async with consumer:
                await until(cluster, lambda: cluster.groups.committed("g", "t") == 1)
                if way == "removed":
                    cluster.groups.expire("g", consumer.group_metadata().member_id)
                else:
                    consumer.unsubscribe()
                    consumer.subscribe(["t"], listener=Commits())
                await until(cluster, lambda: cluster.groups.committed("g", "t") == 2)

    simulate(main)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["removed", "group deleted"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_is_told_once_that_the_member_was_removed(protocol: str, is_deleted: bool) -> None:
    """The next one, of the first record after that, was stored and raised CommitFailedError as
    well. Where the group had been deleted, as one without members may be, the first raised
    GroupIdNotFound, and the member went on until its next heartbeat."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            log = Log()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **PROTOCOLS[protocol],
            )
            consumer.subscribe(["t"], listener=log)
            async with consumer:
                await consumer.getmany(timeout_ms=10_000)
                cluster.groups.expire("g", consumer.group_metadata().member_id)
                if is_deleted:
                    assert cluster.groups.delete("g") == 0
                with pytest.raises(CommitFailedError):
                    await consumer.commit()
                assert (await consumer.getone()).offset == 0
                told = [call for call in log.calls if call[1]]
                assert told == [("assigned", {0}), ("lost", {0}), ("assigned", {0})]
                await consumer.commit()
                assert cluster.groups.committed("g", "t") == 1

    simulate(main)
