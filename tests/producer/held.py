"""A producer whose requests are answered when a test says so."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from tests.support.producers import TOPIC

Sent = asyncio.Future[RecordMetadata]


class Held:
    """A producer whose requests are answered after `release()`."""

    def __init__(self, producer: AIOKafkaProducer, event: asyncio.Event, requests: Any) -> None:
        self.producer = producer
        self.requests = requests
        self._event = event

    async def send(self, value: bytes = b"v") -> Sent:
        return await self.producer.send(TOPIC, value, partition=0)

    def release(self) -> None:
        self._event.set()

    async def deliver(self) -> None:
        """Release, and wait until all is delivered and told."""
        self._event.set()
        await self.producer.flush()
        await asyncio.sleep(0)


async def fail(held: Held) -> None:
    """Fail the records that wait, and see to it that it is told."""
    held.producer.abort_buffered()
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()


async def waiting(held: Held, count: int = 1) -> list[Sent]:
    """Return futures of records that wait behind one that is in flight."""
    await held.send(b"first")
    await held.requests.wait()
    return [await held.send() for _ in range(count)]
