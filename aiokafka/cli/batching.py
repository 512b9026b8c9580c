"""Send many records as batches: objects and futures for each would take most of the time."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.record.rows import ANY, BinarySource, HeaderSource, RowSource, route_rows

if TYPE_CHECKING:
    import asyncio

    from aiokafka import AIOKafkaProducer
    from aiokafka.producer.batches.batch_builder import BatchBuilder

__all__ = ["Batching", "LineColumns"]

Cells = Sequence[bytes | None]
Headers = list[tuple[str, bytes | None]]


class LineColumns(NamedTuple):
    """Records, as columns of equal length."""

    values: Cells
    keys: Cells | None = None
    headers: Headers | None = None
    """Of every record."""


class Batching:
    """Fills a batch for each partition as the producer would, and sends those that are full.

    `sent` gets the future of each, the number of its first record, from 1, and how many it has.
    `refused` gets the number of the first record of one that was not taken, and the error; it
    returns what to raise.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        partition: int | None,
        sent: Callable[[asyncio.Future[Any], int, int], None],
        refused: Callable[[int, KafkaError], Exception],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._sent = sent
        self._refused = refused
        self._turn = random.randrange(1_000_000)
        # By partition, ANY for records without a key, with the number of the first record.
        self._open: dict[int, tuple[BatchBuilder, int]] = {}

    async def add(self, columns: LineColumns, before: int) -> None:
        """Add records, of which the first has the number `before + 1`."""
        rows = _rows(columns)
        partitions = 1
        if columns.keys is not None and self._partition is None:
            partitions = len(await self._producer.partitions_for(self._topic))
        order, routes = route_rows(rows, partitions, self._chosen(columns, partitions))
        numbers = memoryview(order).cast("i")
        for partition, start, stop in routes:
            while start < stop:
                if partition not in self._open:
                    number = before + numbers[start] + 1
                    self._open[partition] = (self._producer.create_batch(), number)
                start = self._open[partition][0].append_rows(rows, order, start, stop)
                if start < stop:
                    await self._send(partition)

    def _chosen(self, columns: LineColumns, partitions: int) -> memoryview | None:
        """Return the partitions of records that do not go by their keys, as int32."""
        if self._partition is not None:
            found = array("i", (self._partition,)) * len(columns.values)
        elif columns.keys is not None and None in columns.keys:
            # These keep their places among those with keys, so they need a partition by now.
            self._turn = (self._turn + 1) % partitions
            found = array("i", [self._turn if key is None else -1 for key in columns.keys])
        else:
            return None
        return memoryview(found).cast("B")

    async def flush(self) -> None:
        """Send what there is."""
        while self._open:
            await self._send(next(iter(self._open)))

    async def _send(self, partition: int) -> None:
        batch, number = self._open.pop(partition)
        batch.close()
        target = None if partition == ANY else partition
        try:
            future = await self._producer.send_batch(batch, self._topic, partition=target)
        except KafkaError as error:
            raise self._refused(number, error) from error
        self._sent(future, number, batch.record_count())


def _rows(columns: LineColumns) -> RowSource:
    values, keys, headers = columns
    return RowSource(
        _column(values),
        None if keys is None else _column(keys),
        _headers(headers, len(values)) if headers else None,
        int(time.time() * 1000),
    )


def _column(cells: Cells) -> BinarySource:
    validity = None
    if None in cells:
        validity = bytearray((len(cells) + 7) // 8)
        for row, cell in enumerate(cells):
            if cell is not None:
                validity[row >> 3] |= 1 << (row & 7)
    data = [cell or b"" for cell in cells]
    ends = array("i", accumulate(map(len, data), initial=0))
    return BinarySource(len(data), memoryview(ends).cast("B"), b"".join(data), validity)


def _headers(headers: Headers, count: int) -> HeaderSource:
    names = _column([name.encode() for name, _ in headers] * count)
    values = _column([value for _, value in headers] * count)
    ends = array("i", range(0, (count + 1) * len(headers), len(headers)))
    return HeaderSource(count, memoryview(ends).cast("B"), names, values)
