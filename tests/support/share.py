"""Helpers for tests of share consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaShareConsumer, ShareRecord, TopicPartition
from aiokafka._compat import timeout
from aiokafka.protocol.messages.metadata import ApiVersionsRequest
from aiokafka.protocol.messages.share_groups import ShareAcknowledgeRequest
from aiokafka.testing import Edit, FakeCluster

Start = Callable[..., Awaitable[AIOKafkaShareConsumer[Any, Any]]]
"""`await start(**options)`: a started member of group `g`."""

T0 = TopicPartition("t", 0)


def fill(cluster: FakeCluster, count: int, first: int = 0) -> None:
    """Append records with the values `first`, `first + 1`, ..., each in a batch of its own."""
    for number in range(first, first + count):
        cluster.log("t").append(b"%d" % number)


async def take(
    consumer: AIOKafkaShareConsumer[Any, Any], count: int, seconds: float = 30
) -> list[ShareRecord[Any, Any]]:
    """Return this number of records, read with `getmany`."""
    found: list[ShareRecord[Any, Any]] = []
    async with timeout(seconds):
        while len(found) < count:
            got = await consumer.getmany(timeout_ms=1000, max_records=count - len(found))
            found += [record for records in got.values() for record in records]
    return found


def offsets(records: list[ShareRecord[Any, Any]]) -> list[int]:
    return [record.offset for record in records]


async def is_empty(consumer: AIOKafkaShareConsumer[Any, Any], ms: float = 12_000) -> bool:
    """Return whether no record is delivered for longer than a lock lasts."""
    return await consumer.getmany(timeout_ms=ms) == {}


def without_renewals(cluster: FakeCluster) -> None:
    """Let the brokers support no renewals of locks, as in Kafka 4.1."""

    def limit(response: Any) -> None:
        for api in response.api_keys:
            if api.api_key == ShareAcknowledgeRequest.API_KEY:
                api.max_version = 1

    cluster.intercept(ApiVersionsRequest, Edit(limit))
