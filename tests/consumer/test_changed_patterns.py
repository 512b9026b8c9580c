"""A member whose application subscribes to another regular expression that the broker matches."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, SubscriptionPattern
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill


@pytest.mark.parametrize(
    "before", [{"topics": ["t"]}, {"pattern": SubscriptionPattern("t.*")}], ids=["topics", "regex"]
)
def test_it_reads_on_what_both_match(before: dict[str, Any]) -> None:
    """The broker assigns nothing new then. The member forgot the topic: it had no leaders any more
    after the next metadata, and returned nothing for good."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                group_protocol="consumer",
                auto_offset_reset="earliest",
                metadata_max_age_ms=10_000,
            )
            consumer.subscribe(**before)
            async with consumer:
                fill(cluster, 0, 1)
                assert (await consumer.getone()).offset == 0
                consumer.subscribe(pattern=SubscriptionPattern("(t|u).*"))
                assert await consumer.getmany(timeout_ms=30_000) == {}
                assert consumer.subscription() == {"t"}
                cluster.move_leader(T0, 1 - cluster.partition("t").leader)
                fill(cluster, 0, 1)
                records = await consumer.getmany(timeout_ms=30_000)
                assert [record.offset for record in records.get(T0, ())] == [1]

    simulate(main)
