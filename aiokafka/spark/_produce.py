"""Write rows to Kafka: choose partitions, fill batches, wait until they are written.

Runs in the event loop of the process; nothing here knows Spark.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka._backoff import Backoff
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.spark._options import WriteOptions
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.producer.message_accumulator import BatchBuilder
    from aiokafka.structs import RecordMetadata

__all__ = ["Identity", "Marker", "RecordWriter", "Transaction", "WriteColumns", "make_producer"]

_Row = tuple[
    "bytes | None",
    "bytes | None",
    Sequence[tuple[str, "bytes | None"]],
    "str | None",
    "int | None",
    "int | None",
]

_KIBIBYTE = 1024
_PRODUCER_DEFAULTS: dict[str, Any] = {"max_batch_size": 256 * _KIBIBYTE}
_TRANSACTION_TIMEOUT_MS = 300_000
_MAX_OPEN_BYTES = 32 * _KIBIBYTE * _KIBIBYTE
_MARKER_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0
BATCH_HEADER = "spark-batch"


class WriteColumns(NamedTuple):
    """A batch of rows to write, column by column; None for a column that is not there."""

    size: int
    values: list[bytes | None]
    keys: list[bytes | None] | None
    topics: list[str | None] | None
    partitions: list[int | None] | None
    headers: list[list[tuple[str, bytes | None]]] | None
    timestamps: list[int | None] | None
    """Milliseconds since 1970."""


async def make_producer(options: WriteOptions, **more: Any) -> AIOKafkaProducer:
    """A started producer."""
    keywords = {**_PRODUCER_DEFAULTS, **options.kafka.keywords(), **options.kafka.role, **more}
    producer = AIOKafkaProducer(**keywords)
    await producer.start()
    return producer


class RecordWriter:
    """Rows of one task on their way. Owns the open batches and the futures of the sent ones.

    Rows with a key go where Java's partitioner sends them; rows without one fill a batch for one
    partition and then move on to the next.
    """

    def __init__(
        self, producer: AIOKafkaProducer, topic: str | None, batch_label: str | None = None
    ) -> None:
        self.counts: collections.Counter[tuple[str, int]] = collections.Counter()
        """Rows that were sent, by topic and partition."""

        self.rows = 0
        self.checksum = 0
        """The same for the same rows in any order."""

        self._producer = producer
        self._topic = topic
        self._label = batch_label
        self._partitioner = DefaultPartitioner()
        self._numbers: dict[str, list[int]] = {}
        self._turns: dict[str, int] = {}
        self._open: dict[tuple[str, int], BatchBuilder] = {}
        self._sent: collections.deque[asyncio.Future[RecordMetadata]] = collections.deque()

    async def add(self, columns: WriteColumns) -> None:
        """Take rows. Waits while too much is on its way.

        Raises ValueError for a row without a topic; what the producer raises, as soon as it is
        known.
        """
        now = int(time.time() * 1000)
        for key, value, headers, topic, partition, timestamp in _rows(columns, self._topic):
            if topic is None:
                raise ValueError(
                    "topic: a row has none; set the option topic, or no null in the column"
                )
            if self._label is not None:
                place = f"{self._label}/{self.rows}".encode()
                headers = [*headers, (BATCH_HEADER, place)]
            stamp = now if timestamp is None else timestamp
            if partition is None:
                numbers = self._numbers.get(topic) or await self._find_partitions(topic)
                partition = self._choose(topic, key, numbers)
            batch = self._open.get((topic, partition))
            if batch is None or not batch.append(
                timestamp=stamp, key=key, value=value, headers=headers
            ):
                batch = await self._next_batch(topic, partition, has_key=key is not None)
                batch.append(timestamp=stamp, key=key, value=value, headers=headers)
            self.rows += 1
        self._settle()
        if sum(batch.size() for batch in self._open.values()) > _MAX_OPEN_BYTES:
            await self._send_open()

    def check(self, columns: WriteColumns) -> None:
        """Count rows for `rows` and `checksum` without writing them."""
        self.rows += columns.size
        self.sum_up(columns)

    def sum_up(self, columns: WriteColumns) -> None:
        """Add rows to `checksum`."""
        crc32 = zlib.crc32
        keys = columns.keys or itertools.repeat(None)
        self.checksum += sum(
            crc32(value or b"", crc32(key or b""))
            for key, value in zip(keys, columns.values, strict=False)
        )

    async def finish(self) -> None:
        """Send what is left, and wait until everything is written. Raises the first failure."""
        await self._send_open()
        while self._sent:
            await self._sent.popleft()

    def drop(self) -> None:
        """Forget what is not sent, and do not ask what became of the rest."""
        self._open.clear()
        sent, self._sent = self._sent, collections.deque()
        for future in sent:
            future.cancel()

    def _settle(self) -> None:
        """Look at what was written meanwhile; raises the first failure."""
        while self._sent and self._sent[0].done():
            self._sent.popleft().result()

    # -- partitions and batches

    async def _find_partitions(self, topic: str) -> list[int]:
        numbers = sorted(await self._producer.partitions_for(topic))
        self._numbers[topic] = numbers
        # Tasks must not all begin with the same partition.
        self._turns[topic] = self._partitioner(None, numbers, numbers)
        return numbers

    def _choose(self, topic: str, key: bytes | None, numbers: list[int]) -> int:
        if key is not None:
            return self._partitioner(key, numbers, numbers)
        return numbers[self._turns[topic] % len(numbers)]

    async def _next_batch(self, topic: str, partition: int, *, has_key: bool) -> BatchBuilder:
        """An empty batch in place of a full one, which is sent."""
        full = self._open.pop((topic, partition), None)
        if full is not None:
            await self._send(topic, partition, full)
            if not has_key:
                self._turns[topic] = self._turns.get(topic, 0) + 1
        batch = self._open[topic, partition] = self._producer.create_batch()
        return batch

    async def _send_open(self) -> None:
        while self._open:
            (topic, partition), batch = self._open.popitem()
            await self._send(topic, partition, batch)

    async def _send(self, topic: str, partition: int, batch: BatchBuilder) -> None:
        batch.close()
        self.counts[topic, partition] += batch.record_count()
        self._sent.append(await self._producer.send_batch(batch, topic, partition=partition))


def _rows(columns: WriteColumns, topic: str | None) -> Iterator[_Row]:
    """Rows of the columns; the option `topic` wins over the column."""
    nothing = itertools.repeat(None)
    topics = columns.topics if topic is None and columns.topics else itertools.repeat(topic)
    return zip(
        columns.keys or nothing,
        columns.values,
        columns.headers or itertools.repeat(()),
        topics,
        columns.partitions or nothing,
        columns.timestamps or nothing,
        strict=False,
    )


# -- exactly once


class Identity(NamedTuple):
    """What is the same when a task is repeated."""

    query: str
    batch: int
    task: int


class Marker(NamedTuple):
    """What the last transaction of a task left behind: it was of batch `batch`."""

    batch: int
    rows: int
    checksum: int

    def metadata(self) -> str:
        """As it is stored beside the offset."""
        return json.dumps({"v": 1, "rows": self.rows, "hash": self.checksum & 0xFFFFFFFFFFFF})


class NotRepeatedError(KafkaError):
    """A batch that was written is not the same when it is repeated."""


class Transaction:
    """The one transaction in which a task writes a batch, and the mark that it was.

    The mark is an offset of a group that nobody is in, committed inside the transaction. So the
    rows and the mark are there both, or neither.
    """

    def __init__(self, options: WriteOptions, identity: Identity) -> None:
        self.name = f"{options.transactional_id_prefix}-{identity.query}-{identity.task}"
        self._options = options
        self._identity = identity
        topic = options.marker_topic or options.topic
        assert topic is not None
        self._place = TopicPartition(topic, 0)
        self._producer: AIOKafkaProducer | None = None

    async def begin(self) -> tuple[AIOKafkaProducer, Marker | None]:
        """The producer to write with, and the mark of this or a later batch if there is one:
        nothing must be written then.

        Whoever else has the same name, such as an earlier attempt that still runs, is fenced, and
        what it left open is aborted.
        """
        timeout = self._options.kafka.role.get("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
        self._producer = producer = await make_producer(
            self._options, transactional_id=self.name, transaction_timeout_ms=timeout
        )
        # Its partitions are where the mark is put.
        await producer.partitions_for(self._place.topic)
        marker = await self._read_marker()
        if marker is not None and marker.batch >= self._identity.batch:
            return producer, marker
        await producer.begin_transaction()
        return producer, None

    async def commit(self, writer: RecordWriter) -> None:
        """Make the rows and the mark visible together."""
        assert self._producer is not None
        marker = Marker(self._identity.batch, writer.rows, writer.checksum)
        offset = OffsetAndMetadata(self._identity.batch + 1, marker.metadata())
        await self._producer.send_offsets_to_transaction({self._place: offset}, self.name)
        await self._producer.commit_transaction()

    async def close(self) -> None:
        """Drop what is not committed."""
        if self._producer is not None:
            await self._producer.stop(timeout=_STOP_TIMEOUT)

    def check(self, marker: Marker, writer: RecordWriter) -> None:
        """Raise NotRepeatedError unless the rows are those that were written for this batch."""
        same = Marker(self._identity.batch, writer.rows, writer.checksum & 0xFFFFFFFFFFFF)
        if marker.batch == self._identity.batch and marker != same:
            raise NotRepeatedError(
                f"query {self._identity.query}, batch {marker.batch}, task {self._identity.task}: "
                f"{marker.rows} rows were written, but its repetition has {writer.rows} rows, or "
                "others. deliveryGuarantee=exactly-once needs a plan that gives the same rows in "
                "the same tasks when a batch is repeated: no random values, no change of the "
                "query, of minPartitions, maxPartitions or spark.sql.shuffle.partitions, and no "
                "adaptive execution"
            )

    async def _read_marker(self) -> Marker | None:
        keywords = self._options.kafka.keywords()
        async with AIOKafkaAdminClient(**keywords) as admin:
            found = await _patiently(
                lambda: admin.list_consumer_group_offsets(
                    self.name, partitions=[self._place], require_stable=True
                )
            )
        stored = found.get(self._place)
        if stored is None or stored.offset < 0:
            return None
        return _marker(stored)


def _marker(stored: OffsetAndMetadata) -> Marker:
    try:
        metadata = json.loads(stored.metadata)
        return Marker(stored.offset - 1, int(metadata["rows"]), int(metadata["hash"]))
    except (ValueError, KeyError, TypeError):
        raise KafkaError(f"the mark of exactly-once is damaged: {stored}") from None


async def _patiently(
    ask: Callable[[], Awaitable[dict[TopicPartition, OffsetAndMetadata]]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The answer, after errors that pass: an offset of a transaction may not be settled yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _MARKER_TIMEOUT
    backoff = Backoff(0.02, 1.0)
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
            delay = backoff.next()
            if loop.time() + delay > deadline:
                raise KafkaTimeoutError(
                    f"the mark of exactly-once cannot be read: {error}"
                ) from error
        await asyncio.sleep(delay)
