"""Producers of a fake cluster, and the values in its logs."""

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


def transactional(cluster: FakeCluster, **options: Any) -> Any:
    return new_producer(cluster, **{"transactional_id": "worker", **options})


def committed(cluster: FakeCluster, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    """Return the values that a consumer with read_committed returns."""
    log = cluster.log(topic, partition)
    aborted = log.producers.aborted_between(0, log.end_offset)
    dropped: set[int] = set()
    for batch in log.batches:
        for one in aborted:
            is_its = batch.producer_id == one.producer_id and batch.is_transactional
            if is_its and one.first_offset <= batch.base_offset < one.last_offset:
                dropped.update(range(batch.base_offset, batch.last_offset + 1))
    end = log.last_stable_offset
    return [r.value for r in log.records() if r.offset not in dropped and r.offset < end]
