"""Write rows to Kafka: choose partitions, fill batches, wait until they are acknowledged.

Runs in the event loop of the process; nothing here knows Spark.
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
from aiokafka.spark._loop import connected
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
    "naming",
    "stop_producer",
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
    """Rows to write to a topic, and the partitions that they ask for: int32, -1 for none."""

    topic: str
    rows: RowSource
    partitions: Buffer | None = None


@contextlib.contextmanager
def naming(topic: str) -> Iterator[None]:
    """Name the topic in a ValueError about one of its rows."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"a row for the topic {topic} cannot be written: {error}") from None


async def make_producer(options: WriteOptions, **more: Any) -> AIOKafkaProducer:
    """Return a started producer. Waits for brokers that are unavailable."""
    keywords = {**_PRODUCER_DEFAULTS, **options.kafka.keywords(), **options.kafka.role, **more}
    # Rows fill batches to their limit, and nothing divides a batch that a request, or the memory,
    # cannot hold.
    keywords["max_batch_size"] = min(
        keywords["max_batch_size"], keywords["max_request_size"], keywords["buffer_memory"] // 2
    )

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**keywords)
        await producer.start()
        return producer

    return await connected(start, options.kafka.patience)


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop a producer after at most `_STOP_TIMEOUT` seconds, and abort its open transaction."""
    await producer.stop(timeout=_STOP_TIMEOUT)


class RecordWriter:
    """Writes the rows of one task. Owns the open batches and the futures of those in flight.

    Rows with a key go where Java's partitioner sends them. Rows without a key fill a batch for one
    partition and then move on to the next.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.counts: collections.Counter[tuple[str, int]] = collections.Counter()
        """Rows that were sent, by topic and partition."""

        self.rows = 0
        self._producer = producer
        self._partitions: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._open: dict[tuple[str, int], BatchBuilder] = {}
        self._sent: collections.deque[asyncio.Future[RecordMetadata]] = collections.deque()

    async def add(self, parts: Iterable[TopicRows]) -> None:
        """Add rows. Waits while too much is in flight.

        Raises ValueError for a row that cannot be written, and what the producer raises as soon as
        it is known.
        """
        for topic, rows, chosen in parts:
            partitions = self._partitions.get(topic) or await self._count_partitions(topic)
            with naming(topic):
                order, routes = route_rows(rows, partitions, chosen)
            for partition, start, stop in routes:
                while start < stop:
                    number = self._turns[topic] % partitions if partition == ANY else partition
                    batch = self._batch(topic, number)
                    with naming(topic):
                        start = batch.append_rows(rows, order, start, stop)
                    if start < stop:
                        await self._send(topic, number)
                        self._turns[topic] += partition == ANY
            self.rows += rows.size
        self._settle()
        if sum(batch.size() for batch in self._open.values()) > _MAX_OPEN_BYTES:
            await self._send_open()

    async def finish(self) -> None:
        """Send what is left, and wait until everything is acknowledged. Raises the first
        failure."""
        await self._send_open()
        while self._sent:
            try:
                await self._sent.popleft()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    def drop(self) -> None:
        """Forget what is not sent, and ignore the outcome of the rest."""
        self._open.clear()
        sent, self._sent = self._sent, collections.deque()
        for future in sent:
            future.cancel()

    def _settle(self) -> None:
        """Collect acknowledged batches; raise the first failure."""
        while self._sent and self._sent[0].done():
            try:
                self._sent.popleft().result()
            except MessageSizeTooLargeError as error:
                raise _too_large(error) from None

    # -- partitions and batches

    async def _count_partitions(self, topic: str) -> int:
        count = self._partitions[topic] = len(await self._producer.partitions_for(topic))
        # Tasks must not all begin with the same partition.
        self._turns[topic] = random.randrange(count)
        return count

    def _batch(self, topic: str, partition: int) -> BatchBuilder:
        """Return the batch that takes the next rows."""
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
    """Return the refusal of a broker with what to do about it."""
    told = error.args[0] if error.args else error
    return MessageSizeTooLargeError(
        f"{told}. Rows travel in batches of up to kafka.batch.size, here 256 KiB by default: set "
        "it below max.message.bytes of the topic, or raise that if one row is larger"
    )


# -- exactly once


class TaskIdentity(NamedTuple):
    """What stays the same when a task is repeated."""

    query: str
    batch: int
    task: int


class Tally:
    """Counts the rows of a task, to compare them with a repetition of the task."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0
        """The same for the same rows in any order."""

    def add(self, parts: Iterable[TopicRows]) -> None:
        """Count rows."""
        for part in parts:
            self.rows += part.rows.size
            self.checksum = (self.checksum + part.rows.checksum()) & _MAX_UINT64


class Marker(NamedTuple):
    """The mark of a task's last transaction, which wrote batch `batch`."""

    batch: int
    rows: int
    checksum: int | None
    """None if it was written by a version with another checksum."""

    def metadata(self) -> str:
        """Return the mark as it is stored beside the offset."""
        return json.dumps({"v": _MARKER_VERSION, "rows": self.rows, "hash": self.checksum})

    def is_same(self, tally: Tally) -> bool:
        """Return whether these may be the same rows."""
        return self.rows == tally.rows and self.checksum in (None, tally.checksum)


REPEAT_ADVICE = (
    "deliveryGuarantee=exactly-once needs a plan that gives the same rows in the same tasks when a "
    "batch is repeated: no random values, no change of the query, of minPartitions, maxPartitions "
    "or spark.sql.shuffle.partitions, and no adaptive execution"
)


class NotRepeatedError(KafkaError):
    """A repeated batch differs from what was written before."""


class WrittenLaterError(KafkaError):
    """A later batch was written already: the checkpoint belongs to another query."""


def name_of_marks(options: WriteOptions, query: str) -> str:
    """Return the common prefix of the transactional ids and groups of a query's tasks."""
    return f"{options.transactional_id_prefix}-{query}-"


def place_of_marks(options: WriteOptions) -> TopicPartition:
    """Return the partition for which the groups have offsets."""
    topic = options.marker_topic or options.topic
    assert topic is not None
    return TopicPartition(topic, 0)


class TaskTransaction:
    """The one transaction in which a task writes a batch and its mark.

    The mark is an offset of a group without members, committed inside the transaction. So either
    both the rows and the mark are visible, or neither.
    """

    def __init__(self, options: WriteOptions, identity: TaskIdentity) -> None:
        self.name = f"{name_of_marks(options, identity.query)}{identity.task}"
        self._options = options
        self._identity = identity
        self._place = place_of_marks(options)
        self._producer: AIOKafkaProducer | None = None

    async def begin(self) -> tuple[AIOKafkaProducer, Marker | None]:
        """Return the producer to write with, and the mark of this or a later batch.

        If there is such a mark, nothing must be written. Other producers with the same name, such
        as an earlier attempt that still runs, are fenced, and what they left open is aborted.
        """
        timeout = self._options.kafka.role.get("transaction_timeout_ms", _TRANSACTION_TIMEOUT_MS)
        self._producer = producer = await make_producer(
            self._options, transactional_id=self.name, transaction_timeout_ms=timeout
        )
        # The mark is an offset of its first partition.
        await producer.partitions_for(self._place.topic)
        # Only after the producer has started, which has fenced an earlier attempt at this task and
        # aborted what that left open:
        # 1. Read before, the mark could be missing, and the earlier attempt commit right after.
        # 2. Both attempts would then have written the same rows.
        marker = await self._read_marker()
        if marker is not None and marker.batch >= self._identity.batch:
            return producer, marker
        await producer.begin_transaction()
        return producer, None

    async def commit(self, tally: Tally) -> None:
        """Make the rows and the mark visible together."""
        assert self._producer is not None
        marker = Marker(self._identity.batch, tally.rows, tally.checksum)
        offset = OffsetAndMetadata(self._identity.batch + 1, marker.metadata())
        await self._producer.send_offsets_to_transaction({self._place: offset}, self.name)
        await self._producer.commit_transaction()

    async def close(self) -> None:
        """Abort what is not committed."""
        if self._producer is not None:
            await stop_producer(self._producer)

    async def _read_marker(self) -> Marker | None:
        kafka = self._options.kafka

        async def ask() -> Marker | None:
            async with AIOKafkaAdminClient(**kafka.keywords()) as admin:
                return await read_marker(admin, self.name, self._place)

        return await connected(ask, kafka.patience)


def check_mark(identity: TaskIdentity, marker: Marker, tally: Tally) -> None:
    """Raise NotRepeatedError unless these are the rows that were written for this batch."""
    if marker.batch == identity.batch and not marker.is_same(tally):
        raise NotRepeatedError(
            f"query {identity.query}, batch {marker.batch}, task {identity.task}: "
            f"{marker.rows} rows were written, but its repetition has {tally.rows} rows, or "
            f"others. {REPEAT_ADVICE}"
        )


async def read_marker(
    admin: AIOKafkaAdminClient, group: str, place: TopicPartition
) -> Marker | None:
    """Return the mark of the transactions named like the group, once none is open.

    Retries after retriable errors: the offset may belong to an open transaction.
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
