"""The batches whose futures have no result, and the calls that wait for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer.batches.batch import ProducerBatch
from aiokafka.producer.batches.partition_queue import PartitionQueue

__all__ = ["PendingBatches"]


class _Flush(NamedTuple):
    pending: set[ProducerBatch]
    future: asyncio.Future[None]


class PendingBatches:
    """Every batch whose futures have no result, in the order of making.

    Owns that list and the flushes that wait for parts of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queues: dict[ProducerBatch, PartitionQueue] = {}
        self._flushes: list[_Flush] = []
        self._loop = loop

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._queues)

    def entries(self) -> tuple[tuple[ProducerBatch, PartitionQueue], ...]:
        """Return the batches with their queues, as they are now: they may end meanwhile."""
        return tuple(self._queues.items())

    def add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        """Count in a new batch."""
        self._queues[batch] = queue

    def finish(self, batch: ProducerBatch) -> None:
        """Count out a batch whose futures have results, and end the flushes that it was the last
        of.
        """
        self._queues.pop(batch, None)
        # A flush waits for the batches of its beginning only, or it would never end under load.
        for flush in self._flushes:
            flush.pending.discard(batch)
            if not flush.pending and not flush.future.done():
                flush.future.set_result(None)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Count `parts` in the place of `batch`, which was split; flushes wait for all of them."""
        queue = self._queues.pop(batch)
        for part in parts:
            self._queues[part] = queue
        for flush in self._flushes:
            if batch in flush.pending:
                flush.pending.discard(batch)
                flush.pending.update(parts)

    async def wait(self, deadline: float | None) -> None:
        """Wait until every batch of this moment is delivered or has failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        pending = set(self._queues)
        if not pending:
            return
        flush = _Flush(pending, self._loop.create_future())
        self._flushes.append(flush)
        try:
            async with timeout_at(deadline):
                await flush.future
        except asyncio.TimeoutError:
            if not flush.pending:
                return  # in the same turn: the program has stood still
            raise KafkaTimeoutError(
                f"{len(flush.pending)} batches were not delivered within the timeout of the flush"
            ) from None
        finally:
            self._flushes.remove(flush)
