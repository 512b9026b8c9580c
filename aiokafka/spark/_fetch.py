"""Read the offset ranges of one task on an executor. While Spark processes records, the next
records are fetched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka import AIOKafkaClient
from aiokafka.ranges import OffsetSizes, PartitionRange, RangeReader, RecordSet, Rows
from aiokafka.spark._loop import SharedClients, loop_thread, unwind, with_retries
from aiokafka.spark._options import ReadOptions

__all__ = ["read_batches"]

# Approximate size of an Arrow batch in bytes. A batch of this size is still in the CPU cache when
# it is sent to the JVM, and needs little memory there.
_BATCH_BYTES = 2 * 1024 * 1024
_FIRST_ROWS = 1024
_LEAST_ROWS = 64

# Keywords of a consumer -> arguments of RangeReader.
_LIMITS = {
    "fetch_max_bytes": "max_bytes",
    "max_partition_fetch_bytes": "max_partition_bytes",
    "fetch_min_bytes": "min_bytes",
    "fetch_max_wait_ms": "max_wait_ms",
    "check_crcs": "check_crcs",
}


def read_batches(
    options: ReadOptions, names: list[str], ranges: list[PartitionRange]
) -> Iterator[Any]:
    """Yield all records of `ranges` as Arrow batches with the columns `names`.

    If the generator is closed before its end, reading stops. The client stays open for later tasks.
    """
    from aiokafka.spark._arrow import ArrowRows

    rows = ArrowRows(names)
    thread = loop_thread()
    task = _Task(options, ranges, thread.clients)
    error: BaseException | None = None
    most = min(_FIRST_ROWS, options.batch_rows)
    try:
        # `open` is inside `try`, because `close` must release the shared client even if `open`
        # fails.
        thread.run(task.open())
        while (records := thread.run(task.next())) is not None:
            while (part := records.read(most)) is not None:
                yield rows.batch(records.topic, records.partition, part)
                # Estimate from this batch how many rows fit into the next one: rows of a topic have
                # similar sizes.
                most = min(_rows_that_fit(part), options.batch_rows)
    except Exception as raised:
        error = raised
        raise
    finally:
        # Spark may close the generator before its end, for example for LIMIT. Then `error` is None
        # (GeneratorExit is no Exception), so that the shared client is kept.
        thread.run(task.close(error))


def _rows_that_fit(part: Rows) -> int:
    """Return how many rows with the average size of `part` fit into `_BATCH_BYTES`, at least
    `_LEAST_ROWS`."""
    columns, _ = part
    size = len(columns.keys.data) + len(columns.values.data)
    return max(_LEAST_ROWS, _BATCH_BYTES * columns.rows // max(size, 1))


class _Source(NamedTuple):
    """A client that tasks share, and the sizes of records that these tasks have measured."""

    client: AIOKafkaClient
    sizes: OffsetSizes


class _Task:
    """Reads the ranges of one task by a RangeReader, with a client that tasks share."""

    def __init__(
        self, options: ReadOptions, ranges: list[PartitionRange], clients: SharedClients
    ) -> None:
        self._options = options
        self._ranges = ranges
        self._clients = clients
        self._stack = contextlib.AsyncExitStack()
        self._reader: RangeReader | None = None

    async def open(self) -> None:
        """Get the shared client, and start the reader."""
        options = self._options
        source = await self._stack.enter_async_context(
            self._clients.use(
                ("read", options.kafka.key()),
                self._connect,
                lambda source: source.client.close(),
                options.idle_timeout,
            )
        )
        limits = {_LIMITS[k]: v for k, v in options.kafka.role.items() if k in _LIMITS}
        reader = RangeReader(
            source.client,
            self._ranges,
            sizes=source.sizes,
            read_committed=options.read_committed,
            fail_on_data_loss=options.fail_on_data_loss,
            buffer_memory=options.prefetch_bytes,
            timeout_ms=options.poll_timeout * 1000,
            **limits,
        )
        self._reader = await self._stack.enter_async_context(reader)

    async def _connect(self) -> _Source:
        kafka = self._options.kafka

        async def bootstrap() -> AIOKafkaClient:
            client = AIOKafkaClient(**kafka.keywords(), allow_auto_create_topics=False)
            await client.bootstrap()
            return client

        return _Source(await with_retries(bootstrap, kafka.broker_timeout), OffsetSizes())

    async def next(self) -> RecordSet | None:
        """Return the next record set; None if all ranges were read."""
        assert self._reader is not None
        return await self._reader.next()

    async def close(self, error: BaseException | None) -> None:
        """Stop the reader, and release the shared client. `error` is the error of the task, or
        None."""
        await unwind(self._stack, error)
