"""What waits to be sent: the queues of all partitions, and the memory that they may use."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import _seams
from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.producer._append import (
    Appender,
    PartitionQueue,
    TopicLanes,
    headers_bound,
)
from aiokafka.producer._sizing import BatchSizing
from aiokafka.producer.batch import BatchState, ProducerBatch
from aiokafka.producer.batch_builder import BatchBuilder
from aiokafka.producer.transaction_manager import PartitionSequence
from aiokafka.record._memory import varint_size
from aiokafka.record.batch import HEADER_SIZE
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig
    from aiokafka.cluster import ClusterMetadata

__all__ = ["BatchBuilder", "MessageAccumulator", "Record", "RecordMetadata"]


class Record(NamedTuple):
    """A record on its way into a batch."""

    topic: str
    value: bytes | None
    key: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]

    @staticmethod
    def now() -> int:
        """The time to give to a record that comes without one: milliseconds since 1970."""
        return int(_seams.wall_time() * 1000)

    @property
    def bound(self) -> int:
        """At least as many bytes as it has in a batch of its own; quickly found."""
        size = 100 + headers_bound(self.headers)
        return size + len(self.value or b"") + len(self.key or b"")

    @property
    def size(self) -> int:
        """What counts against `max_request_size`: its fields, and the most that a batch with one
        record has besides.
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


class _Waiter(NamedTuple):
    need: int
    future: asyncio.Future[None]


class _Flush(NamedTuple):
    pending: set[ProducerBatch]
    future: asyncio.Future[None]


class MessageAccumulator:
    """Owns the partition queues and the buffer memory.

    Appenders that find no memory are served in the order in which they came. `appender` is the way
    in for records that need not wait.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        hashes_keys: bool,
        on_batch: Callable[[PartitionQueue], None],
    ) -> None:
        """`on_batch(queue)` is called when a batch was opened, sealed or put back."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.appender = Appender(
            loop,
            buffer_memory=config.buffer_memory,
            max_record_bytes=config.max_request_size,
            delivery_timeout=config.delivery_timeout,
            hashes_keys=hashes_keys,
            on_batch=on_batch,
        )
        self._config = config
        self._loop = loop
        self._on_batch = on_batch
        self._sizing: dict[str, BatchSizing] = {}
        self._waiters: deque[_Waiter] = deque()
        self._flushes: list[_Flush] = []
        self._is_accepting = False

    # -- topics

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, made on first use."""
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
            queue.sequence = PartitionSequence()
        return queue

    def sizing(self, topic: str) -> BatchSizing:
        """What is known about the sizes of a topic's batches."""
        sizing = self._sizing.get(topic)
        if sizing is None:
            sizing = self._sizing[topic] = BatchSizing(self._config)
        return sizing

    def lanes(self, topic: str, cluster: ClusterMetadata) -> TopicLanes | None:
        """The queues of `topic` by partition, None if `cluster` does not know it."""
        lanes = self.appender.lanes.get(topic)
        if lanes is None:
            numbers = cluster.partition_ids(topic)
            if not numbers:
                return None
            queues = [self.queue(TopicPartition(topic, number)) for number in numbers]
            available = set(cluster.available_partition_ids(topic))
            lanes = self.appender.lanes[topic] = TopicLanes(
                queues,
                [queue for queue in queues if queue.partition.partition in available],
                self.sizing(topic).new_builder,
                self._config.max_batch_size,
            )
        return lanes

    def forget_lanes(self) -> None:
        """The metadata has changed: partitions and leaders may be others."""
        self.appender.lanes.clear()

    def forget_queues(
        self, cluster: ClusterMetadata, may_forget: Callable[[PartitionQueue], bool]
    ) -> list[PartitionQueue]:
        """Drop what is kept of topics that are not in use, nor in `cluster`, and return the queues
        that were dropped.

        `may_forget(queue)` says whether an idle queue can be done without.
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
        return idle

    # -- the way in

    def accept(self, is_accepting: bool) -> None:
        """Open or close the way in for new records."""
        self._is_accepting = is_accepting
        self.appender.is_open = is_accepting and not self._waiters

    async def wait_for_memory(self, need: int, deadline: float) -> None:
        """Return when `need` bytes are free and it is the caller's turn; he must append at once.

        Cancelled, or at the deadline (KafkaTimeoutError), nothing has changed.
        """
        appender = self.appender
        if need > self._config.buffer_memory:
            raise MessageSizeTooLargeError(
                f"{need} bytes can never fit into buffer_memory={self._config.buffer_memory}"
            )
        if appender.owes_turn:
            await appender.give_turn()
        if not self._waiters and appender.free >= need:
            return
        waiter = _Waiter(need, self._loop.create_future())
        self._waiters.append(waiter)
        if self._config.linger:
            # What lingers in the buffer is what there is no room for. Batches that are begun from
            # now on do not linger: see `is_short`.
            self.seal_all()
        appender.is_open = False
        try:
            async with timeout_at(deadline):
                await waiter.future
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(
                f"no room for {need} bytes within max_block_ms: {appender.free} of buffer_memory="
                f"{self._config.buffer_memory} bytes are free; the brokers take records more "
                "slowly than they are sent, or do not answer"
            ) from None
        finally:
            self._waiters.remove(waiter)
            # Only after the caller has appended is it known what is left for the next.
            self._loop.call_soon(self._serve_next)

    @property
    def is_short(self) -> bool:
        """Whether somebody waits for memory: nothing may linger in it."""
        return bool(self._waiters)

    def _serve_next(self) -> None:
        """Let the first in the row go on if there is room for him; open the fast way if nobody
        waits.
        """
        if not self._waiters:
            self.appender.is_open = self._is_accepting
            return
        first = self._waiters[0]
        if self.appender.free >= first.need and not first.future.done():
            first.future.set_result(None)

    def refuse_waiters(self, make_error: Callable[[], BaseException]) -> None:
        """Fail everybody who waits for memory, each with an exception of his own."""
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(make_error())

    async def add_message(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timeout: float,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record, as programs call it that know aiokafka from inside; `send()` has a
        shorter way. `timeout`: seconds to wait for memory."""
        timestamp = Record.now() if timestamp_ms is None else timestamp_ms
        record = Record(tp.topic, value, key, timestamp, headers)
        await self.wait_for_memory(record.bound, self._loop.time() + timeout)
        queue = self.queue(tp)
        builders = self.sizing(tp.topic).new_builder
        lanes = TopicLanes([queue], [queue], builders, self._config.max_batch_size)
        return self.appender.place(lanes, queue, timestamp, key, value, headers)

    def submit(
        self, partition: TopicPartition, builder: BatchBuilder
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a batch that a user made; left open, it takes records from `send` as well."""
        queue = self.queue(partition)
        queue.seal()
        takes_more = not builder.closed()
        batch = self.appender.new_batch(partition, builder.release())
        batch.reserved += builder.size()
        batch.whole = self._loop.create_future()
        batch.whole_timestamp = builder.first_timestamp
        if takes_more:
            queue.open = batch
        else:
            batch.transition(BatchState.SEALED)
        self.appender.enqueue(queue, batch)
        return batch.whole

    # -- the way out

    def finish(self, batch: ProducerBatch) -> None:
        """The futures of `batch` have results: nobody waits for it any more."""
        self.appender.incomplete.pop(batch, None)
        for flush in self._flushes:
            flush.pending.discard(batch)
            if not flush.pending and not flush.future.done():
                flush.future.set_result(None)

    def release(self, batch: ProducerBatch) -> None:
        """Give back the memory of `batch`: its bytes are not needed any more."""
        self.appender.free += batch.reserved
        batch.reserved = 0
        if self._waiters:
            self._serve_next()

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """`parts` stand for `batch` from now on, in memory and for those who flush."""
        queue = self.appender.incomplete.pop(batch)
        for part in parts:
            self.appender.incomplete[part] = queue
            part.reserved = part.builder.size
        # What the parts take more than the whole is owed: their headers are new.
        self.appender.free += batch.reserved - sum(part.reserved for part in parts)
        batch.reserved = 0
        for flush in self._flushes:
            if batch in flush.pending:
                flush.pending.discard(batch)
                flush.pending.update(parts)

    def seal_all(self) -> None:
        """Close every open batch, so that it need not wait for its linger time or for company."""
        for batch, queue in self.appender.incomplete.items():
            if batch is queue.open:
                queue.seal()
                self._on_batch(queue)

    async def flush(self, deadline: float | None) -> None:
        """Send what waits and return when all that was sent before the call is delivered or has
        failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        self.seal_all()
        pending = set(self.appender.incomplete)
        if not pending:
            return
        flush = _Flush(pending, self._loop.create_future())
        self._flushes.append(flush)
        try:
            async with timeout_at(deadline):
                await flush.future
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(
                f"{len(flush.pending)} batches were not delivered within the time-out of the flush"
            ) from None
        finally:
            self._flushes.remove(flush)
