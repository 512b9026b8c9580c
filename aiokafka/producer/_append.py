"""Put records into the open batches of their partitions: what `send` does for every record.

Compiled when possible, see _append.pxd. Nothing here waits.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import _seams
from aiokafka.partitioner import murmur2
from aiokafka.producer.batch import RECORD_OVERHEAD, BatchState, ProducerBatch
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import TopicPartition

__all__ = ["BATCH_OVERHEAD", "Appender", "PartitionQueue", "TopicLanes"]

BATCH_OVERHEAD = 1024
"""Bytes of buffer memory counted for a batch besides its records."""

_RECORD_FRAME = 36
"""More bytes than a record has in a batch besides key, value and headers."""

_TURN_BYTES = 262_144
"""After so many bytes without a pause `send` lets the event loop have a turn."""

# As C numbers where this is compiled: names of the module are looked up for every record.
_PER_RECORD = RECORD_OVERHEAD
_AT_MOST = _RECORD_FRAME + RECORD_OVERHEAD + BATCH_OVERHEAD

_LATE = 2**62
"""Times from here on, in milliseconds since 1970, are looked at before they are taken."""

_Headers = Sequence[tuple[str, "bytes | None"]]


class PartitionQueue:
    """The batches of one partition that have not been delivered, oldest first.

    Owns: `waiting` (sealed batches, and the open one at its end) and `in_flight`. `Appender` adds
    at the end; everything else is done by the `NodeSender` in `node`, that of the partition's
    leader.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        self.node: Any = None
        self.in_flight_from: Any = None
        """The NodeSender whose answers `in_flight` waits for."""
        self.retry_at = 0.0
        """Loop time before which nothing is sent: the pause after a failure."""
        self.backoff: Any = None
        self.sequence: Any = None
        """What the TransactionManager knows of the partition."""

    @property
    def load(self) -> int:
        """Batches that have not been delivered."""
        return len(self.waiting) + len(self.in_flight)

    def seal(self) -> None:
        """Close the open batch, if there is one: no record is added to it any more."""
        batch = self.open
        if batch is not None:
            self.open = None
            batch.transition(BatchState.SEALED)

    def put_back(self, batch: ProducerBatch) -> None:
        """Return a batch that was in flight to its place among those that wait: in the order of
        sending.
        """
        position = 0
        for other in self.waiting:
            if other.base_sequence == -1 or _is_before(batch.base_sequence, other.base_sequence):
                break
            position += 1
        self.waiting.insert(position, batch)


def _is_before(sequence: int, other: int) -> bool:
    # Sequences wrap at 2**31, and no two batches in one queue are ever half of that apart.
    return 0 < (other - sequence) & 0x7FFFFFFF < 0x40000000


class TopicLanes:
    """The queues of a topic's partitions, as the last metadata listed them, and the one for null
    keys.
    """

    def __init__(
        self,
        queues: Sequence[PartitionQueue],
        available: Sequence[PartitionQueue],
        builder_factory: Callable[[], RecordBatchBuilder],
        quantum: int,
    ) -> None:
        """`quantum`: bytes of records without a key that one partition gets before the next has its
        turn.
        """
        self.queues = list(queues)
        self.by_number = {queue.partition.partition: queue for queue in queues}
        self.builder_factory = builder_factory
        self.sticky: PartitionQueue | None = None
        self._choices = list(available) or self.queues
        self._quantum = quantum
        self._left = 0

    def turn(self) -> PartitionQueue:
        """Move on: to the one of two random partitions that has fewer batches waiting (KIP-794)."""
        choices = self._choices
        queue = choices[int(random.random() * len(choices))]
        rival = choices[int(random.random() * len(choices))]
        if rival.load < queue.load:
            queue = rival
        self.sticky = queue
        self._left = self._quantum
        return queue

    def keyed(self, key: bytes) -> PartitionQueue:
        """The queue of the partition that Java's client chooses for `key`."""
        return self.queues[(murmur2(key) & 0x7FFFFFFF) % len(self.queues)]


class Appender:
    """Finds the partition and the open batch of a record and appends it.

    Owns: `free`, the buffer memory that is left, `lanes` and every `PartitionQueue.open`. `is_open`
    is switched off by the accumulator while somebody waits for memory, so that nobody overtakes
    him.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        buffer_memory: int,
        max_record_bytes: int,
        delivery_timeout: float,
        hashes_keys: bool,
        on_batch: Callable[[PartitionQueue], None],
    ) -> None:
        """`on_batch(queue)` is called whenever a batch was opened or sealed by an append.

        `hashes_keys`: the default partitioner is used; otherwise `append` declines records that do
        not say their partition.
        """
        self.lanes: dict[str, TopicLanes] = {}
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        """Every batch whose futures have no result."""
        self.free = buffer_memory
        self.is_open = False
        self.is_busy = False
        """Somebody sends without a pause: he was interrupted to give the event loop a turn."""
        self.since_turn = 0
        self.max_record_bytes = max_record_bytes
        self._hashes_keys = hashes_keys
        self._delivery_timeout = delivery_timeout
        self._on_batch = on_batch
        self._loop = loop
        self._last_stamp = 0
        self._stamp = 0

    @property
    def owes_turn(self) -> bool:
        """Whether the event loop should get a turn, so much was appended since its last one."""
        return self.since_turn > _TURN_BYTES

    async def give_turn(self) -> None:
        """Let the event loop run, and tell the senders that there is more to come."""
        self.is_busy = True
        # Runs after the senders that are awake and before the caller goes on.
        self._loop.call_soon(self._end_turn)
        await asyncio.sleep(0)
        # Not before: another task would overtake the caller.
        self.since_turn = 0

    def _end_turn(self) -> None:
        self.is_busy = False

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: _Headers,
    ) -> Future[Any] | None:
        """Append a record and return its future, if that is possible at once; else None, and
        nothing changed.

        None means: something has to be waited for, checked or converted first.
        """
        if not self.is_open or self.since_turn > _TURN_BYTES:
            return None
        lanes = self.lanes.get(topic)
        if lanes is None:
            return None
        need = _AT_MOST
        if value is not None:
            if type(value) is not bytes:
                return None
            need += len(value)
        elif key is None:
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            need += len(key)
        if headers:
            need += headers_bound(headers)
        if need > self.free or need > self.max_record_bytes:
            return None
        if timestamp is None:
            timestamp = self.now()
        elif type(timestamp) is float and 0 <= timestamp < _LATE:
            timestamp = int(timestamp)
        elif type(timestamp) is not int or not 0 <= timestamp < _LATE:
            return None
        if partition is not None:
            if type(partition) is not int:
                return None
            queue = lanes.by_number.get(partition)
            if queue is None:
                return None
        elif not self._hashes_keys:
            return None
        elif key is None:
            return self.spread(lanes, timestamp, value, headers)
        else:
            queue = lanes.keyed(key)
        return self.place(lanes, queue, timestamp, key, value, headers)

    def now(self) -> int:
        """Milliseconds since 1970; the same object for as long as that does not change."""
        seconds = _seams.wall_time()
        stamp = int(seconds * 1000)
        if stamp != self._last_stamp:
            self._last_stamp = stamp
            self._stamp = stamp
        return self._stamp

    def place(
        self,
        lanes: TopicLanes,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: _Headers,
    ) -> Future[Any]:
        """Append a record to a certain partition, whatever memory there is."""
        batch = queue.open
        if batch is not None:
            before = batch.reserved
            future = batch.add(timestamp, key, value, headers, self._loop)
            if future is not None:
                self.take(batch.reserved - before)
                return future
            queue.seal()
        return self.begin(lanes, queue, timestamp, key, value, headers)

    def spread(
        self, lanes: TopicLanes, timestamp: int, value: bytes | None, headers: _Headers
    ) -> Future[Any]:
        """Append a record without a key: one partition's batch is filled, then another has its
        turn.
        """
        queue = lanes.sticky
        if queue is None:
            queue = lanes.turn()
        batch = queue.open
        if batch is None:
            if lanes._left <= 0:
                queue = lanes.turn()
        else:
            before = batch.reserved
            future = batch.add(timestamp, None, value, headers, self._loop)
            if future is not None:
                lanes._left -= batch.reserved - before - _PER_RECORD
                self.take(batch.reserved - before)
                return future
            # Full, whatever the quantum says: going on here would begin a batch for the last few
            # bytes.
            queue.seal()
            self._on_batch(queue)
            queue = lanes.turn()
        return self.place(lanes, queue, timestamp, None, value, headers)

    def begin(
        self,
        lanes: TopicLanes,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: _Headers,
    ) -> Future[Any]:
        """Open a new batch of `queue` with this record."""
        batch = self.new_batch(queue.partition, lanes.builder_factory())
        future = batch.add(timestamp, key, value, headers, self._loop)
        if future is None:
            raise RuntimeError("an empty batch has no room for its first record")
        queue.open = batch
        self.enqueue(queue, batch)
        return future

    def new_batch(self, partition: TopicPartition, builder: RecordBatchBuilder) -> ProducerBatch:
        """A batch whose life begins now."""
        now = self._loop.time()
        batch = ProducerBatch(partition, builder, now, now + self._delivery_timeout)
        batch.reserved = BATCH_OVERHEAD
        return batch

    def enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Put a new batch at the end of its queue and tell its sender."""
        queue.waiting.append(batch)
        self.incomplete[batch] = queue
        self.free -= BATCH_OVERHEAD
        self.take(batch.reserved - BATCH_OVERHEAD)
        self._on_batch(queue)

    def take(self, size: int) -> None:
        """Count `size` bytes of buffer memory as used."""
        self.free -= size
        self.since_turn += size


def headers_bound(headers: _Headers) -> int:
    """At least as many bytes as `headers` have in a batch."""
    size = 0
    for name, value in headers:
        size += 10 + 4 * len(name)
        if value is not None:
            size += len(value)
    return size
