"""Write rows to Kafka: partitions, batches and acknowledgements; transactions for exactly-once.

Runs in the event loop of the process, independent of Spark.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka._retry import Backoff
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    UnstableOffsetCommit,
)
from aiokafka.record.rows import ANY, RowSource, route_rows
from aiokafka.spark._loop import with_retries
from aiokafka.spark._options import WriteOptions
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.producer.message_accumulator import BatchBuilder
    from aiokafka.structs import RecordMetadata

__all__ = [
    "Marker",
    "NotRepeatedError",
    "RecordWriter",
    "Tally",
    "TaskIdentity",
    "TaskTransaction",
    "TopicRows",
    "WrittenLaterError",
    "check_mark",
    "make_producer",
    "stop_producer",
    "topic_in_errors",
]

Buffer = bytes | bytearray | memoryview

_KIBIBYTE = 1024
_PRODUCER_DEFAULTS: dict[str, Any] = {
    "max_batch_size": 256 * _KIBIBYTE,
    "max_request_size": 1024 * _KIBIBYTE,
    "buffer_memory": 32 * _KIBIBYTE * _KIBIBYTE,
}
_TRANSACTION_TIMEOUT_MS = 300_000
_MAX_OPEN_BYTES = 32 * _KIBIBYTE * _KIBIBYTE
_MARKER_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0
_MARKER_VERSION = 2
_MAX_UINT64 = 0xFFFFFFFFFFFFFFFF
BATCH_HEADER = "spark-batch"


class TopicRows(NamedTuple):
    """Rows to write to a topic. `partitions` has an int32 for each row, -1 if none is requested."""

    topic: str
    rows: RowSource
    partitions: Buffer | None = None


@contextlib.contextmanager
def topic_in_errors(topic: str) -> Iterator[None]:
    """Add the topic to a ValueError about a row of this topic."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"a row for the topic {topic} cannot be written: {error}") from None


async def make_producer(options: WriteOptions, **more: Any) -> AIOKafkaProducer:
    """Return a started producer. Waits for an available broker."""
    keywords = {**_PRODUCER_DEFAULTS, **options.kafka.keywords(), **options.kafka.role, **more}
    # RecordWriter fills batches to this limit. The limit is lower than a request and than the
    # buffer memory, because the producer cannot split these batches.
    keywords["max_batch_size"] = min(
        keywords["max_batch_size"], keywords["max_request_size"], keywords["buffer_memory"] // 2
    )

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**keywords)
        await producer.start()
        return producer

    return await with_retries(start, options.kafka.broker_timeout)


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop a producer within `_STOP_TIMEOUT` seconds, and abort its open transaction."""
    await producer.stop(timeout=_STOP_TIMEOUT)


class RecordWriter:
    """Writes the rows of one task. Owns the open batches, and the futures of sent batches.

    Rows with a key are partitioned as by Java's partitioner. Rows without a key fill a batch for
    one partition, then a batch for the next partition.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.counts: collections.Counter[tuple[str, int]] = collections.Counter()
        """Number of sent rows, by topic and partition."""

        self.rows = 0
        self._producer = producer
        self._partitions: dict[str, int] = {}
        self._next_keyless: dict[str, int] = {}
        self._open: dict[tuple[str, int], BatchBuilder] = {}
        self._sent: collections.deque[asyncio.Future[RecordMetadata]] = collections.deque()

    async def add(self, parts: Iterable[TopicRows]) -> None:
        """Add rows. Waits while the buffer memory is full.

        Raises ValueError for a row that cannot be written, and the error of a batch that has
        already failed.
        """
        for topic, rows, chosen in parts:
            partitions = self._partitions.get(topic) or await self._count_partitions(topic)
            with topic_in_errors(topic):
                order, routes = route_rows(rows, partitions, chosen)
            for partition, start, stop in routes:
                while start < stop:
                    number = (
                        self._next_keyless[topic] % partitions if partition == ANY else partition
                    )
                    batch = self._batch(topic, number)
                    with topic_in_errors(topic):
                        start = batch.append_rows(rows, order, start, stop)
                    if start < stop:
                        await self._send(topic, number)
                        self._next_keyless[topic] += partition == ANY
            self.rows += rows.size
        self._check_sent()
        if sum(batch.size() for batch in self._open.values()) > _MAX_OPEN_BYTES:
            await self._send_open()

    async def finish(self) -> None:
        """Send the open batches, and wait for all acknowledgements. Raises the first failure."""
        await self._send_open()
        while self._sent:
            try:
                await self._sent.popleft()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    def drop(self) -> None:
        """Discard the open batches, and ignore the results of sent batches."""
        self._open.clear()
        sent, self._sent = self._sent, collections.deque()
        for future in sent:
            future.cancel()

    def _check_sent(self) -> None:
        """Remove acknowledged batches; raise the first failure."""
        while self._sent and self._sent[0].done():
            try:
                self._sent.popleft().result()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    # -- partitions and batches

    async def _count_partitions(self, topic: str) -> int:
        count = self._partitions[topic] = len(await self._producer.partitions_for(topic))
        # Begin at a random partition, so that not all tasks begin at the same partition.
        self._next_keyless[topic] = random.randrange(count)
        return count

    def _batch(self, topic: str, partition: int) -> BatchBuilder:
        """Return the open batch of a partition, or a new batch."""
        batch = self._open.get((topic, partition))
        if batch is None:
            batch = self._open[topic, partition] = self._producer.create_batch()
        return batch

    async def _send_open(self) -> None:
        while self._open:
            await self._send(*next(iter(self._open)))

    async def _send(self, topic: str, partition: int) -> None:
        batch = self._open.pop((topic, partition))
        batch.close()
        self.counts[topic, partition] += batch.record_count()
        self._sent.append(await self._producer.send_batch(batch, topic, partition=partition))


def _too_large(error: MessageSizeTooLargeError) -> MessageSizeTooLargeError:
    """Return the broker's error with advice in its text."""
    text = error.args[0] if error.args else error
    return MessageSizeTooLargeError(
        f"{text}. Rows travel in batches of up to kafka.batch.size, here 256 KiB by default: set "
        "it below max.message.bytes of the topic, or raise that if one row is larger"
    )


# -- exactly once


class TaskIdentity(NamedTuple):
    """Identity of a Spark task, stable across retries."""

    query: str
    batch: int
    task: int


class Tally:
    """Number and checksum of the rows of a task, to compare them with a retry of the task."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0
        """Independent of the order of rows."""

    def add(self, parts: Iterable[TopicRows]) -> None:
        """Count the rows, and add their checksums."""
        for part in parts:
            self.rows += part.rows.size
            self.checksum = (self.checksum + part.rows.checksum()) & _MAX_UINT64


class Marker(NamedTuple):
    """Proof, stored in Kafka, that the last transaction of a task wrote the rows of `batch`."""

    batch: int
    rows: int
    checksum: int | None
    """None if a version of this package with another kind of checksum wrote the mark."""

    def metadata(self) -> str:
        """Return the metadata of the offset that stores the mark."""
        return json.dumps({"v": _MARKER_VERSION, "rows": self.rows, "hash": self.checksum})

    def is_same(self, tally: Tally) -> bool:
        """Return whether the written rows have the number of `tally`, and its checksum, if the
        checksum of the written rows is known.
        """
        return self.rows == tally.rows and self.checksum in (None, tally.checksum)


REPEAT_ADVICE = (
    "deliveryGuarantee=exactly-once needs a plan that gives the same rows in the same tasks when a "
    "batch is repeated: no random values, no change of the query, of minPartitions, maxPartitions "
    "or spark.sql.shuffle.partitions, and no adaptive execution"
)


class NotRepeatedError(KafkaError):
    """A repeated batch has other rows than the rows that its first attempt has written."""


class WrittenLaterError(KafkaError):
    """A mark has a later batch than the query, so the checkpoint belongs to another query."""


def marker_group_prefix(options: WriteOptions, query: str) -> str:
    """Return the common prefix of the transactional ids and groups of a query's tasks."""
    return f"{options.transactional_id_prefix}-{query}-"


def marker_partition(options: WriteOptions) -> TopicPartition:
    """Return the partition whose committed offsets store the marks."""
    topic = options.marker_topic or options.topic
    assert topic is not None
    return TopicPartition(topic, 0)


class TaskTransaction:
    """The transaction in which a task writes a batch and its mark.

    The mark is an offset of a group without members, committed in the transaction. So the rows and
    the mark become visible together, or not at all.
    """

    def __init__(self, options: WriteOptions, identity: TaskIdentity) -> None:
        self.name = f"{marker_group_prefix(options, identity.query)}{identity.task}"
        self._options = options
        self._identity = identity
        self._marker_partition = marker_partition(options)
        self._producer: AIOKafkaProducer | None = None

    async def begin(self) -> tuple[AIOKafkaProducer, Marker | None]:
        """Begin the transaction; return (producer, None). If this or a later batch was written,
        return (producer, mark) without a transaction: no rows may be written.

        Producers with the same transactional id, as of an earlier attempt that still runs, are
        fenced, and their transactions are aborted.
        """
        timeout = self._options.kafka.role.get("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
        self._producer = producer = await make_producer(
            self._options, transactional_id=self.name, transaction_timeout_ms=timeout
        )
        # Fail before rows are written if the topic of the mark does not exist.
        await producer.partitions_for(self._marker_partition.topic)
        # Read the mark after the producer has started, which has fenced an earlier attempt at this
        # task and aborted its transaction. If the mark were read before:
        # 1. The mark could be missing, and the earlier attempt could commit afterwards.
        # 2. Both attempts would write the same rows.
        marker = await self._read_marker()
        if marker is not None and marker.batch >= self._identity.batch:
            return producer, marker
        await producer.begin_transaction()
        return producer, None

    async def commit(self, tally: Tally) -> None:
        """Commit the rows and the mark together."""
        assert self._producer is not None
        marker = Marker(self._identity.batch, tally.rows, tally.checksum)
        offset = OffsetAndMetadata(self._identity.batch + 1, marker.metadata())
        await self._producer.send_offsets_to_transaction(
            {self._marker_partition: offset}, self.name
        )
        await self._producer.commit_transaction()

    async def close(self) -> None:
        """Abort the transaction, unless it is committed, and stop the producer."""
        if self._producer is not None:
            await stop_producer(self._producer)

    async def _read_marker(self) -> Marker | None:
        kafka = self._options.kafka

        async def ask() -> Marker | None:
            async with AIOKafkaAdminClient(**kafka.keywords()) as admin:
                return await read_marker(admin, self.name, self._marker_partition)

        return await with_retries(ask, kafka.broker_timeout)


def check_mark(identity: TaskIdentity, marker: Marker, tally: Tally) -> None:
    """Raise NotRepeatedError if the mark shows that other rows were written for this batch."""
    if marker.batch == identity.batch and not marker.is_same(tally):
        raise NotRepeatedError(
            f"query {identity.query}, batch {marker.batch}, task {identity.task}: "
            f"{marker.rows} rows were written, but its repetition has {tally.rows} rows, or "
            f"others. {REPEAT_ADVICE}"
        )


async def read_marker(
    admin: AIOKafkaAdminClient, group: str, place: TopicPartition
) -> Marker | None:
    """Return the mark stored in a group; None without a mark.

    Waits while a transaction with a mark is open, and retries after retriable errors; raises
    KafkaTimeoutError after `_MARKER_TIMEOUT`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _MARKER_TIMEOUT
    backoff = Backoff(0.02, 1.0)
    while True:
        try:
            found = await admin.list_consumer_group_offsets(
                group, partitions=[place], require_stable=True
            )
        except KafkaError as error:
            if not error.retriable:
                raise
            delay = backoff.next()
            if loop.time() + delay > deadline:
                raise KafkaTimeoutError(
                    f"the mark of exactly-once cannot be read: {error}{_hint(error)}"
                ) from error
        else:
            stored = found.get(place)
            return None if stored is None or stored.offset < 0 else _marker(stored)
        await asyncio.sleep(delay)


def _marker(stored: OffsetAndMetadata) -> Marker:
    try:
        metadata = json.loads(stored.metadata)
        is_known = metadata["v"] == _MARKER_VERSION
        checksum = int(metadata["hash"]) if is_known else None
        return Marker(stored.offset - 1, int(metadata["rows"]), checksum)
    except (ValueError, KeyError, TypeError):
        raise KafkaError(f"the mark of exactly-once is damaged: {stored}") from None


def _hint(error: KafkaError) -> str:
    if not isinstance(error, UnstableOffsetCommit):
        return ""
    return (
        f" It was open for {_MARKER_TIMEOUT:g} s: if admin.transactions.find_hanging() names it, a "
        "broker has lost its end"
    )
