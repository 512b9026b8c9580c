"""What tests of the consumer protocol (KIP-848) need: options, members of four partitions."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start
from tests.support.groups import Log, until

OPTIONS: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
CONFIG = {"group.consumer.heartbeat.interval.ms": 20}


def shares(*consumers: AIOKafkaConsumer) -> list[int]:
    """Sizes of the assignments, when they are a partition of all four; else nothing."""
    sets = [consumer.assignment() for consumer in consumers]
    is_whole = len(frozenset().union(*sets)) == sum(map(len, sets)) == 4
    return sorted(map(len, sets)) if is_whole else []


def beats(cluster: FakeCluster) -> list[ConsumerGroupHeartbeatRequest]:
    return [seen.request for seen in cluster.requests(ConsumerGroupHeartbeatRequest)]


async def listening(cluster: FakeCluster, start: Start, log: Log, **options: Any) -> Any:
    """A member with a listener that has all four partitions."""
    consumer = await start(cluster, **OPTIONS, **options)
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: shares(consumer) == [4] and bool(log.calls))
    return consumer
