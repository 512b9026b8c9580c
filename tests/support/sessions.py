"""Transactional sessions on a fake cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
    TransactionalSession,
)
from aiokafka._compat import timeout
from aiokafka.session import SessionTransaction
from aiokafka.testing import FakeCluster
from tests.support.producers import QUICK
from tests.support.transactions import READING


def consumer_of(cluster: FakeCluster, *topics: str, **options: Any) -> AIOKafkaConsumer:
    chosen = {
        **READING,
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "retry_backoff_ms": 10,
        "fetch_max_wait_ms": 100,
        **options,
    }
    if "group_protocol" in options:
        del chosen["heartbeat_interval_ms"]
    return AIOKafkaConsumer(*topics, **chosen)


def producer_of(cluster: FakeCluster, **options: Any) -> AIOKafkaProducer:
    defaults = {"transactional_id": "worker", "bootstrap_servers": cluster.bootstrap_servers}
    return AIOKafkaProducer(**{**QUICK, **defaults, **options})


def session_of(
    cluster: FakeCluster,
    *,
    name: str = "worker",
    assign: Any = (),
    listener: Any = None,
    reading: Any = None,
    writing: Any = None,
    **options: Any,
) -> TransactionalSession:
    consumer = consumer_of(cluster, **(reading or {}))
    if assign:
        consumer.assign(assign)
    else:
        consumer.subscribe(["t"], listener=listener)
    producer = producer_of(cluster, transactional_id=name, **(writing or {}))
    return TransactionalSession(consumer, producer, **options)


async def copy(
    session: TransactionalSession,
    count: int,
    before_end: Callable[[SessionTransaction], Awaitable[object]] | None = None,
) -> list[list[bytes]]:
    """Copy records to `out` until `count` are committed; return the values of each transaction,
    aborted transactions included."""
    tries: list[list[bytes]] = []
    done = 0
    async with timeout(20):
        async for transaction in session:
            async with transaction as records:
                tries.append([record.value for record in records])
                for record in records:
                    await transaction.send("out", record.value, partition=0)
                if before_end is not None:
                    await before_end(transaction)
            if transaction.is_committed:
                done += len(records)
            if done >= count:
                break
    return tries


class RecordingListener(ConsumerRebalanceListener):
    """A rebalance listener that records its calls, except calls without partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Set[TopicPartition]]] = []

    def _note(self, kind: str, partitions: Set[TopicPartition]) -> None:
        if partitions:
            self.calls.append((kind, partitions))

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._note("lost", lost)
