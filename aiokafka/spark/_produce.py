"""Write rows to Kafka: partitions, batches and acknowledgements; transactions for exactly-once.

This code runs in the event loop of the process, and does not depend on Spark.
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
    """Rows to write to one topic. `partitions` has an int32 for each row: its requested partition,
    or -1."""

    topic: str
    rows: RowSource
    partitions: Buffer | None = None


@contextlib.contextmanager
def topic_in_errors(topic: str) -> Iterator[None]:
    """Add the topic to the text of a ValueError about one of its rows."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"a row for the topic {topic} cannot be written: {error}") from None


async def make_producer(options: WriteOptions, **more: Any) -> AIOKafkaProducer:
    """Return a started producer. Waits for an available broker, up to `broker_timeout`."""
    keywords = {**_PRODUCER_DEFAULTS, **options.kafka.keywords(), **options.kafka.role, **more}
    # RecordWriter fills batches up to this limit. The producer cannot split these batches, so they
    # must fit into a request and into half of the buffer memory.
    keywords["max_batch_size"] = min(
        keywords["max_batch_size"], keywords["max_request_size"], keywords["buffer_memory"] // 2
    )

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**keywords)
        await producer.start()
        return producer

    return await with_retries(start, options.kafka.broker_timeout)


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Abort the open transaction of a producer, if any, and stop it, within `_STOP_TIMEOUT`
    seconds."""
    await producer.stop(timeout=_STOP_TIMEOUT)


class RecordWriter:
    """Writes the rows of one task. Owns the open batches, and the futures of sent batches.

    Rows with a key go to the same partitions as in the Java client. Rows without a key go to one
    partition until its batch is full, then to the next partition.
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
        """Add rows to batches, and send full batches. Waits while the buffer memory is full.

        Raises ValueError for a row that cannot be written, and the error of a batch that has
        failed.
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
        """Send the open batches, and wait for all acknowledgements. Raises the error of the first
        batch that has failed."""
        await self._send_open()
        while self._sent:
            try:
                await self._sent.popleft()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    def drop(self) -> None:
        """Discard the open batches, and ignore the results of the sent batches."""
        self._open.clear()
        sent, self._sent = self._sent, collections.deque()
        for future in sent:
            future.cancel()

    def _check_sent(self) -> None:
        """Remove acknowledged batches. Raises the error of the first batch that has failed."""
        while self._sent and self._sent[0].done():
            try:
                self._sent.popleft().result()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    # -- partitions and batches

    async def _count_partitions(self, topic: str) -> int:
        count = self._partitions[topic] = len(await self._producer.partitions_for(topic))
        # Start at a random partition, so that not all tasks write to the same partition first.
        self._next_keyless[topic] = random.randrange(count)
        return count

    def _batch(self, topic: str, partition: int) -> BatchBuilder:
        """Return the open batch of a partition; create one if there is none."""
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
    """Return a copy of the broker's error, with advice in its text."""
    text = error.args[0] if error.args else error
    return MessageSizeTooLargeError(
        f"{text}. Rows travel in batches of up to kafka.batch.size, here 256 KiB by default: set "
        "it below max.message.bytes of the topic, or raise that if one row is larger"
    )


# -- Exactly once


class TaskIdentity(NamedTuple):
    """Identifies a Spark task. It is the same if Spark repeats the task."""

    query: str
    batch: int
    task: int


class Tally:
    """Number and checksum of the rows of a task, to compare them with a repetition of the task."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0
        """Does not depend on the order of the rows."""

    def add(self, parts: Iterable[TopicRows]) -> None:
        """Count the rows, and add their checksums."""
        for part in parts:
            self.rows += part.rows.size
            self.checksum = (self.checksum + part.rows.checksum()) & _MAX_UINT64


class Marker(NamedTuple):
    """Proves that the last transaction of a task wrote the rows of `batch`. Stored in Kafka as a
    committed offset, `batch` + 1, and its metadata (see TaskTransaction)."""

    batch: int
    rows: int
    checksum: int | None
    """None if another version of this package, with another checksum, has stored the Marker."""

    def metadata(self) -> str:
        """Return the metadata of the committed offset that stores this Marker."""
        return json.dumps({"v": _MARKER_VERSION, "rows": self.rows, "hash": self.checksum})

    def is_same(self, tally: Tally) -> bool:
        """Return whether `tally` has the same number of rows as this Marker, and the same checksum.
        Without a checksum (None), only the numbers are compared.
        """
        return self.rows == tally.rows and self.checksum in (None, tally.checksum)


REPEAT_ADVICE = (
    "deliveryGuarantee=exactly-once needs a plan that gives the same rows in the same tasks when a "
    "batch is repeated: no random values, no change of the query, of minPartitions, maxPartitions "
    "or spark.sql.shuffle.partitions, and no adaptive execution"
)


class NotRepeatedError(KafkaError):
    """A repeated batch has other rows, or fewer tasks, than an earlier attempt that has written
    rows."""


class WrittenLaterError(KafkaError):
    """The Marker of a task has a later batch than the query. The checkpoint of the query is new, or
    belongs to another query, or was restored from an older copy."""


def marker_group_prefix(options: WriteOptions, query: str) -> str:
    """Return the common prefix of the transactional ids of a query's tasks. Each task stores its
    Marker as a committed offset of a group: the id of this group is the task's transactional id."""
    return f"{options.transactional_id_prefix}-{query}-"


def marker_partition(options: WriteOptions) -> TopicPartition:
    """Return the partition whose committed offset, in the group of a task, is the task's Marker."""
    topic = options.marker_topic or options.topic
    assert topic is not None
    return TopicPartition(topic, 0)


class TaskTransaction:
    """The transaction in which a task writes a batch and its Marker.

    The Marker is a committed offset of a group without members. It is committed in the transaction,
    so that the rows and the Marker become visible together, or not at all.
    """

    def __init__(self, options: WriteOptions, identity: TaskIdentity) -> None:
        self.name = f"{marker_group_prefix(options, identity.query)}{identity.task}"
        self._options = options
        self._identity = identity
        self._marker_partition = marker_partition(options)
        self._producer: AIOKafkaProducer | None = None

    async def begin(self) -> tuple[AIOKafkaProducer, Marker | None]:
        """Begin the transaction, and return (producer, None). If the task's Marker shows that this
        or a later batch was written, return (producer, Marker) without a transaction: no rows may
        be written.

        This fences producers with the same transactional id, such as that of an earlier attempt
        which still runs, and aborts their transactions.
        """
        timeout = self._options.kafka.role.get("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
        self._producer = producer = await make_producer(
            self._options, transactional_id=self.name, transaction_timeout_ms=timeout
        )
        # If the topic whose committed offset is the Marker does not exist, fail before rows are
        # written.
        await producer.partitions_for(self._marker_partition.topic)
        # Read the Marker after the producer was started, because this has fenced an earlier attempt
        # at this task and aborted its transaction. If the Marker were read first:
        # 1. The Marker could be missing, and then the earlier attempt could commit.
        # 2. Then both attempts would have written the same rows.
        marker = await self._read_marker()
        if marker is not None and marker.batch >= self._identity.batch:
            return producer, marker
        await producer.begin_transaction()
        return producer, None

    async def commit(self, tally: Tally) -> None:
        """Commit the rows and the Marker in one transaction."""
        assert self._producer is not None
        marker = Marker(self._identity.batch, tally.rows, tally.checksum)
        offset = OffsetAndMetadata(self._identity.batch + 1, marker.metadata())
        await self._producer.send_offsets_to_transaction(
            {self._marker_partition: offset}, self.name
        )
        await self._producer.commit_transaction()

    async def close(self) -> None:
        """Abort the transaction if it is not committed, and stop the producer."""
        if self._producer is not None:
            await stop_producer(self._producer)

    async def _read_marker(self) -> Marker | None:
        kafka = self._options.kafka

        async def ask() -> Marker | None:
            async with AIOKafkaAdminClient(**kafka.keywords()) as admin:
                return await read_marker(admin, self.name, self._marker_partition)

        return await with_retries(ask, kafka.broker_timeout)


def check_mark(identity: TaskIdentity, marker: Marker, tally: Tally) -> None:
    """Raise NotRepeatedError if `marker` is of this batch, but `tally` has other rows: another
    number of rows, or another checksum."""
    if marker.batch == identity.batch and not marker.is_same(tally):
        raise NotRepeatedError(
            f"query {identity.query}, batch {marker.batch}, task {identity.task}: "
            f"{marker.rows} rows were written before, but the repeated task has other rows "
            f"({tally.rows}). {REPEAT_ADVICE}"
        )


async def read_marker(
    admin: AIOKafkaAdminClient, group: str, place: TopicPartition
) -> Marker | None:
    """Return the Marker of the last committed transaction: the offset that `group` has committed
    for the partition `place`, and the metadata of that offset. Returns None if `group` has
    committed no offset for `place`.

    Waits while an open transaction has an offset for `place` (`require_stable`), and retries after
    other retriable errors. Raises KafkaTimeoutError after `_MARKER_TIMEOUT` seconds.
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
