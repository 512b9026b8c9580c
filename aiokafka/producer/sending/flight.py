"""A request with batches that has not been answered."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokafka.producer.batches.batch import ProducerBatch
from aiokafka.producer.batches.partition_queue import PartitionQueue
from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse

__all__ = ["Cargo", "Flight"]

Cargo = list[tuple[PartitionQueue, ProducerBatch]]
"""What goes into one request: at most one batch of each partition."""


class Flight(NamedTuple):
    """A request that has not been answered, and what it carries."""

    request: ProduceRequest
    answer: asyncio.Future[ProduceResponse | None]
    """Its response; None with acks=0."""

    cargo: Cargo
    sent_at: float
    """When it was sent (loop time)."""
