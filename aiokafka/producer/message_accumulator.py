"""Collect records until they are sent: the queues of all partitions, and the way into them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiokafka import _clock
from aiokafka._config.producer import ProducerConfig
from aiokafka._retry import Backoff
from aiokafka.cluster import ClusterMetadata
from aiokafka.producer._meter import ProducerMeter
from aiokafka.producer.batches.appender import (
    BATCH_OVERHEAD,
    Appender,
    BufferMemory,
    PartitionQueue,
    PendingBatches,
    TopicLanes,
    headers_bound,
)
from aiokafka.producer.batches.batch import RECORD_OVERHEAD, BatchSizing, BatchState, ProducerBatch
from aiokafka.producer.batches.batch_builder import BatchBuilder
from aiokafka.record._memory import varint_size
from aiokafka.record.batch import HEADER_SIZE
from aiokafka.structs import RecordMetadata, TopicPartition

__all__ = [
    "BatchBuilder",
    "MessageAccumulator",
    "MessageBatch",
    "OutgoingRecord",
    "RecordMetadata",
]


class MessageBatch(ProducerBatch):
    """The name of a batch in aiokafka. Programs give it other methods; nothing here calls them."""


class OutgoingRecord(NamedTuple):
    """A record on its way into a batch."""

    topic: str
    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]

    @staticmethod
    def now() -> int:
        """Return the timestamp of a record that comes without one: milliseconds since 1970."""
        return int(_clock.wall_time() * 1000)

    @property
    def bound(self) -> int:
        """No fewer bytes than the record has in a batch of its own; cheap to find."""
        size = 100 + headers_bound(self.headers)
        return size + len(self.value or b"") + len(self.key or b"")

    @property
    def size(self) -> int:
        """The bytes that count against `max_request_size`: the record's fields, and the most that
        a batch of one record has besides.
        """
        size = _MOST_AROUND + _field_size(self.key) + _field_size(self.value)
        size += varint_size(len(self.headers))
        for name, value in self.headers:
            size += _field_size(name.encode()) + _field_size(value)
        return size


_MOST_AROUND = HEADER_SIZE + 21
"""Lengths, times and offsets have up to 21 bytes in a record, in aiokafka's count as well."""


def _field_size(field: bytes | None) -> int:
    return 1 if field is None else varint_size(len(field)) + len(field)


class MessageAccumulator:
    """Collects records in one queue per partition.

    `appender` is the way in for records that need not wait. Owns: which partitions have a queue,
    and what is known of the sizes of each topic's batches. The parts that it holds together own the
    rest: `memory` the free bytes and who waits for them, `pending` the batches that are not
    delivered, each queue its batches.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        hashes_keys: bool,
        on_batch: Callable[[PartitionQueue], None],
        meter: ProducerMeter,
    ) -> None:
        """Begin without queues. `on_batch(queue)` is called when a batch was opened or sealed."""
        self._meter = meter
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.memory = BufferMemory(loop, config.buffer_memory)
        self.pending = PendingBatches(loop)
        self.appender = Appender(
            loop,
            self.memory,
            self.pending,
            max_record_bytes=config.max_request_size,
            delivery_timeout=config.delivery_timeout,
            hashes_keys=hashes_keys,
            on_batch=on_batch,
        )
        self._config = config
        self._loop = loop
        self._on_batch = on_batch
        self._sizing: dict[str, BatchSizing] = {}

    # -- topics

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, made on first use."""
        queue = self.queues.get(partition)
        if queue is None:
            client = self._config.client
            backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
            queue = self.queues[partition] = PartitionQueue(partition, backoff)
        return queue

    def sizing(self, topic: str) -> BatchSizing:
        """Return what is known of the sizes of a topic's batches, to ask and to teach."""
        sizing = self._sizing.get(topic)
        if sizing is None:
            sizing = self._sizing[topic] = BatchSizing(self._config, self._loop.time)
        return sizing

    def lanes(self, topic: str, cluster: ClusterMetadata) -> TopicLanes | None:
        """Return the queues of `topic`; None if `cluster` does not know it."""
        lanes = self.appender.lanes.get(topic)
        if lanes is None:
            numbers = cluster.partition_ids(topic)
            if not numbers:
                return None
            queues = [self.queue(TopicPartition(topic, number)) for number in numbers]
            available = set(cluster.available_partition_ids(topic))
            lanes = TopicLanes(
                queues,
                [queue for queue in queues if queue.partition.partition in available],
                self.sizing(topic),
                self._config.max_batch_size,
            )
            self.appender.set_lanes(topic, lanes)
        return lanes

    def forget_queues(
        self, cluster: ClusterMetadata, may_forget: Callable[[PartitionQueue], bool]
    ) -> list[PartitionQueue]:
        """Drop what is kept of topics that are neither in use nor in `cluster`; return the queues
        that were dropped.

        `may_forget(queue)` says whether an idle queue is dispensable.
        """
        topics = {partition.topic for partition in self.queues}
        absent = {topic for topic in topics if not cluster.partition_ids(topic)}
        idle = [
            queue
            for partition, queue in self.queues.items()
            if partition.topic in absent and not queue.load and may_forget(queue)
        ]
        for queue in idle:
            del self.queues[queue.partition]
        for topic in absent.difference(partition.topic for partition in self.queues):
            self._sizing.pop(topic, None)
            self._meter.forget_topic(topic)
        return idle

    # -- the way in

    async def wait_for_memory(
        self, need: int, deadline: float, topic: str = "", partition: int | None = None
    ) -> float:
        """Wait until `need` bytes are free and it is the caller's turn to append, which must happen
        in the same step. Returns the seconds for which they were not free.

        Raises MessageSizeTooLargeError for more than `buffer_memory`, KafkaTimeoutError at
        `deadline` (loop time). Then, or cancelled, nothing has changed.
        """
        self.memory.check(need)
        # As the appender counts: with less it would decline the caller's next record.
        need = min(need + BATCH_OVERHEAD + RECORD_OVERHEAD, self.memory.size)
        # The turn first, for the row of waiters is in the order of the calls: with the room checked
        # before, another call could come in between.
        if self.appender.owes_turn:
            await self.appender.give_turn()
        if need <= self.memory.room:
            return 0.0
        if self._config.linger and not self.memory.has_waiters:
            # What lingers in the buffer is what there is no room for: while calls wait, batches do
            # not linger, see `NodeSender._due`. They stay open as long as the connection is busy.
            for batch, queue in self.pending.entries():
                if batch is queue.open:
                    self._on_batch(queue)
        with self._meter.waiting_for_memory(topic, partition) as wait:
            await self.memory.wait(need, deadline)
        self.appender.note_turn()
        return wait.seconds

    async def add_message(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timeout: float,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record and return its future, for programs that use aiokafka's internals;
        `send()` has a shorter way. `timeout`: seconds to wait for memory."""
        timestamp = OutgoingRecord.now() if timestamp_ms is None else timestamp_ms
        record = OutgoingRecord(tp.topic, value, key, timestamp, headers)
        await self.wait_for_memory(record.bound, self._loop.time() + timeout)
        queue = self.queue(tp)
        sizing = self.sizing(tp.topic)
        lanes = TopicLanes([queue], [queue], sizing, self._config.max_batch_size)
        return self.appender.place(lanes, queue, timestamp, key, value, headers)

    def submit(
        self, partition: TopicPartition, builder: BatchBuilder
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a batch that a user made and return its future; left open, it takes records from
        `send` as well.
        """
        queue = self.queue(partition)
        # Records that were sent before are before it in the partition, too.
        queue.seal()
        takes_more = not builder.closed()
        batch = self.appender.new_batch(partition, builder.release())
        batch.reserve(builder.size())
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch.serve_whole(future, builder.first_timestamp)
        if not takes_more:
            batch.transition(BatchState.SEALED)
        self.appender.enqueue(queue, batch)
        return future

    # -- the way out

    def release(self, batch: ProducerBatch) -> None:
        """Give back the memory of `batch`: its bytes are not needed any more."""
        self.memory.give_back(batch.release())

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Count `parts` in the place of `batch`, in memory and for those who flush."""
        self.pending.replace(batch, parts)
        free = batch.release()
        for part in parts:
            part.reserve(part.builder.size)
            free -= part.reserved
        # Below zero if the parts take more than the whole, as their headers are new: it is owed.
        self.memory.give_back(free)

    def seal_all(self) -> None:
        """Close every open batch, so that it need not wait for its linger time or for company."""
        for batch, queue in self.pending.entries():
            if batch is queue.open:
                queue.seal()
                self._on_batch(queue)

    async def flush(self, deadline: float | None) -> None:
        """Send what waits, and wait until all that was sent before the call is delivered or has
        failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        self.seal_all()
        await self.pending.wait(deadline)
