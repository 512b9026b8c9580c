"""Helpers for tests of the consumer protocol (KIP-848), with members that share four partitions."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start
from tests.support.groups import Log, until

OPTIONS: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
CONFIG = {"group.consumer.heartbeat.interval.ms": 20}


def shares(*consumers: AIOKafkaConsumer) -> list[int]:
    """Return the sizes of the assignments if each of the four partitions is assigned once, else
    []."""
    sets = [consumer.assignment() for consumer in consumers]
    is_whole = len(frozenset().union(*sets)) == sum(map(len, sets)) == 4
    return sorted(map(len, sets)) if is_whole else []


def beats(cluster: FakeCluster) -> list[ConsumerGroupHeartbeatRequest]:
    return [seen.request for seen in cluster.requests(ConsumerGroupHeartbeatRequest)]


async def listening(cluster: FakeCluster, start: Start, log: Log, **options: Any) -> Any:
    """Return a member with the listener `log`, after all four partitions were assigned to it."""
    consumer = await start(cluster, **OPTIONS, **options)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: shares(consumer) == [4] and bool(log.calls))
    return consumer
