"""Put records into the open batches of their partitions: what `send` does for every record.

Compiled when possible, see appender.pxd. Nothing here waits for a broker or for memory.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import _seams
from aiokafka.partitioner import murmur2
from aiokafka.producer.batches.batch import RECORD_OVERHEAD, BatchState, ProducerBatch
from aiokafka.producer.batches.buffer_memory import BufferMemory
from aiokafka.producer.batches.partition_queue import PartitionQueue
from aiokafka.producer.batches.pending_batches import PendingBatches
from aiokafka.producer.batches.sizing import BatchSizing
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import TopicPartition

__all__ = ["BATCH_OVERHEAD", "Appender", "TopicLanes", "headers_bound"]

BATCH_OVERHEAD = 1024
"""Bytes of buffer memory counted for a batch besides its records."""

_RECORD_FRAME = 36
"""More bytes than a record has in a batch besides key, value and headers."""

_RIVALS = 7
"""Partitions that are compared with a first one when records without a key get another."""

_TURN_BYTES = 262_144
"""After so many bytes without a pause `send` gives the event loop a turn."""

_GROWTH_TIME = 1.0
"""Seconds for which a batch grows."""

# As C numbers where this is compiled: names of the module are looked up for every record.
_PER_RECORD = RECORD_OVERHEAD
_AT_MOST = _RECORD_FRAME + RECORD_OVERHEAD + BATCH_OVERHEAD

_LATE = 2**62
"""Times from here on, in milliseconds since 1970, are looked at before they are taken."""

_Headers = Sequence[tuple[str, "bytes | None"]]


class TopicLanes:
    """The queues of a topic's partitions, as the last metadata listed them.

    Owns which partition records without a key go to at the moment (`sticky`). What is left of its
    share is counted down by the `Appender`, without a call per record.
    """

    def __init__(
        self,
        queues: Sequence[PartitionQueue],
        available: Sequence[PartitionQueue],
        sizing: BatchSizing,
        quantum: int,
    ) -> None:
        """Begin with no choice. Records without a key go to one of `available`, the partitions that
        have a leader, until it has got `quantum` bytes of them; then another has its turn.
        """
        self.queues = list(queues)
        self.by_number = {queue.partition.partition: queue for queue in queues}
        self.sizing = sizing
        self.sticky: PartitionQueue | None = None
        self._choices = list(available) or self.queues
        self._quantum = quantum
        self._left = 0

    def turn(self) -> PartitionQueue:
        """Move on to another queue: of some random ones that with the fewest batches (KIP-794).

        With a slow broker, its partitions get less until it has caught up. Of two draws both may be
        its partitions: that part of all records, however small, fills the memory in the end, and
        the other brokers get no more than this one takes.
        """
        choices = self._choices
        queue = choices[int(random.random() * len(choices))]
        for _ in range(_RIVALS):
            rival = choices[int(random.random() * len(choices))]
            if rival.load < queue.load:
                queue = rival
            if not queue.load:
                break
        self.sticky = queue
        self._left = self._quantum
        return queue

    def keyed(self, key: bytes) -> PartitionQueue:
        """Return the queue of the partition that Java's client chooses for `key`."""
        return self.queues[(murmur2(key) & 0x7FFFFFFF) % len(self.queues)]


class Appender:
    """Finds the partition and the open batch of a record, and appends it.

    Owns the topics' lanes, whether records are accepted, and how long the event loop has had no
    turn.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        memory: BufferMemory,
        pending: PendingBatches,
        *,
        max_record_bytes: int,
        delivery_timeout: float,
        hashes_keys: bool,
        on_batch: Callable[[PartitionQueue], None],
    ) -> None:
        """Decline all records until `accept(True)`.

        `on_batch(queue)` is called whenever a batch was opened or sealed by an append. Unless the
        default partitioner is used (`hashes_keys`), `append` declines records without a partition.
        """
        self.memory = memory
        self.lanes: dict[str, TopicLanes] = {}
        self.is_accepting = False
        self.is_busy = False
        """A tight loop of sends was suspended so that the event loop can run: it goes on next."""
        self._turn_at = 0
        """What `memory.taken` was when the event loop had its last turn."""
        self._max_record_bytes = max_record_bytes
        self._hashes_keys = hashes_keys
        self._delivery_timeout = delivery_timeout
        self._pending = pending
        self._on_batch = on_batch
        self._loop = loop
        self._last_stamp = 0
        self._stamp = 0

    # -- what decides whether, and where to

    def accept(self, is_accepting: bool) -> None:
        """Take records from now on, or decline all of them."""
        self.is_accepting = is_accepting

    def set_lanes(self, topic: str, lanes: TopicLanes) -> None:
        """Take records for `topic`, to these partitions."""
        self.lanes[topic] = lanes

    def forget_lanes(self) -> None:
        """Decline records of all topics until their lanes are set again."""
        self.lanes.clear()

    # -- turns of the event loop

    @property
    def owes_turn(self) -> bool:
        """Whether the event loop should get a turn, so much was appended since its last one."""
        return self.memory.taken - self._turn_at > _TURN_BYTES

    def note_turn(self) -> None:
        """Begin to count again: the event loop has just run something else."""
        self._turn_at = self.memory.taken

    async def give_turn(self) -> None:
        """Let the event loop run, and show the senders by `is_busy` that there is more to come."""
        self.is_busy = True
        # Runs after the senders that are awake and before the caller goes on.
        self._loop.call_soon(self._end_turn)
        await asyncio.sleep(0)
        # Not before: another task would overtake the caller.
        self._turn_at = self.memory.taken

    def _end_turn(self) -> None:
        self.is_busy = False

    # -- records

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: _Headers,
        is_awaited: bool = False,
    ) -> Future[Any] | None:
        """Append a record and return its future, if that is possible at once: a real one if the
        caller awaits it at once (`is_awaited`).

        Returns None, with nothing changed, if something has to be waited for, checked or converted
        first.
        """
        memory = self.memory
        if not self.is_accepting:
            return None
        # The event loop is owed a turn. It has one when the caller awaits; but if another call is
        # giving one now, that goes first.
        if memory.taken - self._turn_at > _TURN_BYTES and (not is_awaited or self.is_busy):
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
        # No room, too, if calls wait for memory and the running task has no grant.
        if need > memory.room or need > self._max_record_bytes:
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
            return self.spread(lanes, timestamp, value, headers, is_awaited)
        else:
            queue = lanes.keyed(key)
        return self.place(lanes, queue, timestamp, key, value, headers, is_awaited)

    def now(self) -> int:
        """Return the milliseconds since 1970, as the same object until they change."""
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
        is_awaited: bool = False,
    ) -> Future[Any]:
        """Append a record to a certain partition, whatever memory there is; return its future."""
        batch = queue.open
        if batch is not None:
            before = batch.reserved
            future = batch.add(timestamp, key, value, headers, is_awaited)
            if future is None and self._grow(lanes, queue, batch):
                future = batch.add(timestamp, key, value, headers, is_awaited)
            if future is not None:
                self.memory.take(batch.reserved - before)
                return future
            queue.seal()
        return self._begin(lanes, queue, timestamp, key, value, headers, is_awaited)

    def spread(
        self,
        lanes: TopicLanes,
        timestamp: int,
        value: bytes | None,
        headers: _Headers,
        is_awaited: bool = False,
    ) -> Future[Any]:
        """Append a record without a key, to the batch that is being filled; return its future."""
        queue = lanes.sticky
        # A batch that was begun is filled, whatever the quantum says.
        if queue is None or (lanes._left <= 0 and queue.open is None):
            queue = lanes.turn()
        batch = queue.open
        if batch is not None:
            before = batch.reserved
            future = batch.add(timestamp, None, value, headers, is_awaited)
            if future is not None:
                lanes._left -= batch.reserved - before - _PER_RECORD
                self.memory.take(batch.reserved - before)
                return future
            # Full, whatever the quantum says: going on here would begin a batch for the last few
            # bytes.
            if not self._grow(lanes, queue, batch):
                queue.seal()
                self._on_batch(queue)
            queue = lanes.turn()
        return self.place(lanes, queue, timestamp, None, value, headers, is_awaited)

    def _begin(
        self,
        lanes: TopicLanes,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: _Headers,
        is_awaited: bool,
    ) -> Future[Any]:
        """Open a batch of `queue` with this record; return its future."""
        batch = self.new_batch(queue.partition, lanes.sizing.new_builder())
        future = batch.add(timestamp, key, value, headers, is_awaited)
        if future is None:
            raise RuntimeError("an empty batch has no room for its first record")
        if queue is lanes.sticky:
            lanes._left -= batch.reserved - BATCH_OVERHEAD - _PER_RECORD
        if batch.builder.size >= batch.builder.size_limit and not self._grow(lanes, queue, batch):
            batch.transition(BatchState.SEALED)  # full: it need not linger
        self.enqueue(queue, batch)
        return future

    def _grow(self, lanes: TopicLanes, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Let the open batch of `queue`, which is full, take more records; return whether it does.

        It does while it waits behind other batches, so it does not leave later. Few large batches
        take more records a second than many small ones, for both sides: a broker's work, and that
        of `NodeSender`, is by batch and request.
        """
        largest = lanes.sizing.largest
        limit = max(batch.builder.size_limit, batch.builder.size)
        if limit >= largest or not queue.waiting or queue.waiting[0] is batch:
            return False
        # Its records expire together: the last ones would have little time left.
        if self._loop.time() - batch.created > _GROWTH_TIME:
            return False
        batch.grow(min(2 * limit, largest))
        return True

    def new_batch(self, partition: TopicPartition, builder: RecordBatchBuilder) -> ProducerBatch:
        """Return a batch whose delivery timeout begins now."""
        now = self._loop.time()
        deadline = now + self._delivery_timeout
        batch = ProducerBatch(partition, builder, now, deadline, self._loop)
        batch.reserve(BATCH_OVERHEAD)
        return batch

    def enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Put a new batch at the end of its queue and tell its sender."""
        queue.append(batch)
        self._pending.add(batch, queue)
        self.memory.take(batch.reserved)
        self._turn_at += BATCH_OVERHEAD  # only records count
        self._on_batch(queue)


def headers_bound(headers: _Headers) -> int:
    """Return at least as many bytes as `headers` have in a batch."""
    size = 0
    for name, value in headers:
        size += 10 + 4 * len(name)
        if value is not None:
            size += len(value)
    return size
