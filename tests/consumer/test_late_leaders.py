"""New partitions whose leader is away when they come: "latest" reads them from their beginning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.testing import Cut, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T1, fill

OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "latest",
    "metadata_max_age_ms": 10_000,
    "max_poll_interval_ms": 3_600_000,
}


@pytest.mark.parametrize("how", ["silent", "stopped"])
@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_partition_is_new_for_as_long_as_its_leader_is_away(
    how: str, group_id: str | None
) -> None:
    """Ten minutes here, where partitions with a leader are new for one."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [0]})
            cluster.move_coordinator("group", "g", 0)
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.address(0), group_id=group_id, **OPTIONS
            ) as consumer:
                await asyncio.sleep(30)
                away = cluster.intercept(ListOffsetsRequest, Cut(), broker=1)
                cluster.add_partitions("t", 2)
                cluster.move_leader(T1, 1)
                fill(cluster, 1, 3)
                if how == "stopped":
                    await cluster.stop_broker(1)
                await asyncio.sleep(600)
                assert T1 in consumer.assignment()
                away.remove()
                if how == "stopped":
                    await cluster.start_broker(1)
                async with timeout(60):
                    assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]

    simulate(main)
