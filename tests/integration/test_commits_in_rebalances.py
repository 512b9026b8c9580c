"""The plain loop "getmany, process, commit" never fails only because a rebalance runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tests.kafka.fixtures import Kafka, MakeTopic, Scale

# Starting a broker counts as part of the first test.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS = 4
RECORDS = 2000
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 100}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {**CLASSIC, "partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {**CLASSIC, "partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


class Member:
    """A program with the plain loop. Nothing is caught: a commit that fails ends it."""

    def __init__(self, kafka: Kafka, topic: str, protocol: str) -> None:
        self.seen: list[tuple[int, int]] = []
        self._is_over = False
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **PROTOCOLS[protocol],
        )

    async def run(self) -> None:
        async with self._consumer as consumer:
            while not self._is_over:
                batches = await consumer.getmany(timeout_ms=50, max_records=5)
                for tp, records in batches.items():
                    await asyncio.sleep(0.005)
                    await consumer.commit({tp: records[-1].offset + 1})
                    self.seen.extend((tp.partition, record.offset) for record in records)

    def end(self) -> None:
        self._is_over = True


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_members_come_and_go(
    kafka: Kafka, make_topic: MakeTopic, protocol: str, scale: Scale
) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"x", partition=number % PARTITIONS)
    loop = asyncio.get_running_loop()
    steady = Member(kafka, topic, protocol)
    running = loop.create_task(steady.run())
    visitors: list[Member] = []
    for _ in range(scale(5, 100)):
        visitor = Member(kafka, topic, protocol)
        visitors.append(visitor)
        visit = loop.create_task(visitor.run())
        await asyncio.sleep(0.7)
        visitor.end()
        await visit
    seen: set[tuple[int, int]] = set()
    everything = {(p, n) for p in range(PARTITIONS) for n in range(RECORDS // PARTITIONS)}
    async with timeout(60):
        while seen != everything:
            await asyncio.sleep(0.05)
            seen = {record for member in (steady, *visitors) for record in member.seen}
    assert not running.done()
    steady.end()
    await running
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=topic, enable_auto_commit=False
    ) as watcher:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = await watcher.committed_offsets(tps)
    assert {offset[0] for offset in found.values() if offset} == {RECORDS // PARTITIONS}
    # Every batch was committed before its partition moved, so nothing came twice.
    counts = [record for member in (steady, *visitors) for record in member.seen]
    assert len(counts) == len(set(counts))
