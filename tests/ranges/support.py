"""What tests of ranges share: topics of numbered records, and readers of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaClient
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.testing import FakeCluster

Found = dict[tuple[str, int], list[tuple[int, bytes]]]


@contextlib.asynccontextmanager
async def reading(
    fake: FakeCluster, ranges: list[PartitionRange], **options: Any
) -> AsyncIterator[RangeReader]:
    options.setdefault("max_wait_ms", 20)
    servers = options.pop("servers", fake.bootstrap_servers)
    async with AIOKafkaClient(
        bootstrap_servers=servers, retry_backoff_ms=10, allow_auto_create_topics=False
    ) as client:
        async with RangeReader(client, ranges, **options) as reader:
            yield reader


async def drain(reader: RangeReader, max_rows: int = 7) -> Found:
    found: Found = {}
    while (records := await reader.next()) is not None:
        while (rows := records.read(max_rows)) is not None:
            assert 0 < rows.size <= max_rows
            offsets = memoryview(rows.columns.offsets).cast("q")
            ends = memoryview(rows.columns.values.offsets).cast("i")
            data = bytes(rows.columns.values.data)
            found.setdefault((records.topic, records.partition), []).extend(
                (offsets[i], data[ends[i] : ends[i + 1]]) for i in range(rows.size)
            )
    return found


def fill(fake: FakeCluster, partition: int, count: int, *, batch: int = 1, codec: int = 0) -> None:
    log = fake.log("t", partition)
    first = log.end_offset
    for start in range(first, first + count, batch):
        log.extend([(None, b"%d" % n, ()) for n in range(start, start + batch)], codec=codec)


def numbered(start: int, until: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(start, until)]
