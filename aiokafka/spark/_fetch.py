"""Read the ranges of one task, ahead of Spark. Runs where the task runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka import AIOKafkaClient
from aiokafka.ranges import OffsetSizes, PartitionRange, RangeReader, RecordSet, Rows
from aiokafka.spark._loop import SharedClients, connected, loop_thread, unwind
from aiokafka.spark._options import ReadOptions

__all__ = ["read_batches"]

# Batches of large rows have fewer of them: data that is still in the processor's cache is cheaper
# to send, and the JVM holds less at a time.
_BATCH_BYTES = 2 * 1024 * 1024
_FIRST_ROWS = 1024
_LEAST_ROWS = 64

# Kafka's settings, and what RangeReader calls them.
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
    """Yield Arrow batches of all records in `ranges`, with the columns `names`.

    Closing the generator early stops what it started; the client stays open for the next task.
    """
    from aiokafka.spark._arrow import ArrowRows

    rows = ArrowRows(names)
    thread = loop_thread()
    task = _Task(options, ranges, thread.clients)
    error: BaseException | None = None
    most = min(_FIRST_ROWS, options.batch_rows)
    try:
        # It may fail with the shared client in use, which would then count as used for ever.
        thread.run(task.open())
        while (records := thread.run(task.next())) is not None:
            while (part := records.read(most)) is not None:
                yield rows.batch(records.topic, records.partition, part)
                # By the rows just read: those of a topic are alike.
                most = min(_rows_that_fit(part), options.batch_rows)
    except Exception as raised:
        error = raised
        raise
    finally:
        # Also when Spark closes the generator early, as with LIMIT. That is no error, so the shared
        # client stays.
        thread.run(task.close(error))


def _rows_that_fit(part: Rows) -> int:
    """Return how many rows like these make a batch of the best size."""
    columns, _ = part
    size = len(columns.keys.data) + len(columns.values.data)
    return max(_LEAST_ROWS, _BATCH_BYTES * columns.rows // max(size, 1))


class _Source(NamedTuple):
    """What tasks share: a client, and what they have learned with it."""

    client: AIOKafkaClient
    sizes: OffsetSizes


class _Task:
    """The reader of a task and the shared client that it uses."""

    def __init__(
        self, options: ReadOptions, ranges: list[PartitionRange], clients: SharedClients
    ) -> None:
        self._options = options
        self._ranges = ranges
        self._clients = clients
        self._stack = contextlib.AsyncExitStack()
        self._reader: RangeReader | None = None

    async def open(self) -> None:
        """Take the shared client, and begin to read."""
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

        return _Source(await connected(bootstrap, kafka.patience), OffsetSizes())

    async def next(self) -> RecordSet | None:
        """Return the next record set; None at the end."""
        assert self._reader is not None
        return await self._reader.next()

    async def close(self, error: BaseException | None) -> None:
        """Stop reading, and give the client back."""
        await unwind(self._stack, error)
