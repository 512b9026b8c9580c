"""What the tests of the producer share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from aiokafka.testing import FakeCluster

TOPIC = "topic"

QUICK = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "metadata_max_age_ms": 60_000}
"""Options that keep tests with retries short."""


def new_producer(cluster: FakeCluster, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(**{"bootstrap_servers": cluster.bootstrap_servers, **QUICK, **options})


def values(cluster: FakeCluster, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    return [record.value for record in cluster.log(topic, partition).records()]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def send_all(
    producer: AIOKafkaProducer, payloads: Iterable[bytes], partition: int | None = 0
) -> list[asyncio.Future[RecordMetadata]]:
    return [await producer.send(TOPIC, payload, partition=partition) for payload in payloads]


async def results(
    futures: Iterable[asyncio.Future[RecordMetadata]],
) -> list[RecordMetadata | BaseException]:
    return await asyncio.gather(*futures, return_exceptions=True)
