"""A target of the consumer protocol with two ids of one topic name: a topic that was deleted and
created again, both in one assignment."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import OPTIONS, beats

INTERVAL_MS = 1000
CONFIG = {"group.consumer.heartbeat.interval.ms": INTERVAL_MS}
GONE = b"\xff" * 16  # sorted behind any other id


def name_it(response: Any) -> None:
    """Say that the id that is gone still has its name."""
    for topic in response.topics:
        if topic.topic_id == GONE:
            topic.name, topic.error_code = "t", 0


def add_the_old_one(response: Any) -> None:
    """Assign the partitions of the topic that is gone as well."""
    if response.assignment is not None and response.assignment.topic_partitions:
        (new,) = response.assignment.topic_partitions
        old = type(new)(topic_id=GONE, partitions=new.partitions)
        response.assignment.topic_partitions = [new, old]


def test_it_is_asked_for_at_a_quiet_pace() -> None:
    """Nothing that the member owns can be all of the target. It acknowledged that again and again,
    as fast as the coordinator responded.
    """

    async def main(simulation: Simulation) -> tuple[int, list[Any]]:
        async with FakeCluster(config=CONFIG) as cluster:
            await cluster.create_topic("t", partitions=2)
            cluster.log("t", 0).append(b"value")
            cluster.intercept(MetadataRequest, Edit(name_it))
            with cluster.intercept(ConsumerGroupHeartbeatRequest, Edit(add_the_old_one)):
                async with AIOKafkaConsumer(
                    "t",
                    bootstrap_servers=cluster.bootstrap_servers,
                    auto_offset_reset="earliest",
                    **OPTIONS,
                ) as consumer:
                    # What the name means now is read meanwhile.
                    assert (await consumer.getone()).value == b"value"
                    await asyncio.sleep(5)
                    before = len(beats(cluster))
                    await asyncio.sleep(10)
                    count = len(beats(cluster)) - before
                    assert len(consumer.assignment()) == 2
                    told = [beat.topic_partitions for beat in beats(cluster)]
                    return count, [topics for topics in told if topics]

    count, told = simulate(main)
    assert 8 <= count <= 12
    # The coordinator hears of the topic that there is.
    assert all(topic.topic_id != GONE for topics in told for topic in topics)
