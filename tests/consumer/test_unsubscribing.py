"""What a listener hears of when the application unsubscribes: of the end of all that it had."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.groups import Log

KINDS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RangePartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_listener_hears_of_all_that_came_in_several_rebalances(kind: str) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=4)
            options = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": "g",
                "enable_auto_commit": False,
                **KINDS[kind],
            }
            listener = Log()
            async with AIOKafkaConsumer(**options) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await asyncio.sleep(20)
                async with AIOKafkaConsumer("t", **options):
                    await asyncio.sleep(20)
                    assert len(consumer.assignment()) == 2
                await asyncio.sleep(20)
                assert len(consumer.assignment()) == 4
                listener.calls.clear()
                consumer.unsubscribe()
                await asyncio.sleep(20)
                assert [call for call in listener.calls if call[1]] == [
                    ("revoked", {0, 1, 2, 3}),
                ]

    simulate(main)
