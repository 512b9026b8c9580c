"""The record accumulator: undelivered batches, and the buffer memory that they hold.

The module is compiled if possible (message_accumulator.pxd), because `MessageAccumulator.append`
runs for every record.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import _clock
from aiokafka._compat import timeout_at
from aiokafka._config.producer import ProducerConfig
from aiokafka._retry import MOST_PROMPT_ATTEMPTS, Backoff, fail_late
from aiokafka._tasks import refuse_other_loop
from aiokafka._typing import later
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.partitioner import murmur2
from aiokafka.producer.batch import (
    NO_SEQUENCE,
    RECORD_OVERHEAD,
    BatchSizing,
    BatchState,
    ProducerBatch,
)
from aiokafka.producer.batch_builder import BatchBuilder
from aiokafka.producer.transaction_manager import PartitionSequence, ProducerIdState
from aiokafka.record.batch import SpareBuffers
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.producer._metrics import ProducerMeter
    from aiokafka.producer.node_sender import NodeSender
    from aiokafka.producer.sender import Sender
else:
    ProducerMeter = later("aiokafka.producer._metrics.ProducerMeter")
    NodeSender = later("aiokafka.producer.node_sender.NodeSender")
    Sender = later("aiokafka.producer.sender.Sender")

__all__ = ["BatchBuilder", "MessageAccumulator", "MessageBatch", "RecordMetadata"]


# -- `buffer_memory`, and the calls that wait for it


_QUANTUM = 65_536
"""Bytes that a waiting call is granted at a time while other calls wait. One wait costs as much CPU
time as appending twenty small records; a quantum is enough for more than two hundred records."""

_ROUND = 1.0
"""Seconds of waiting after which the quantum of a call is smaller: a quarter after twice this time,
a ninth after three times this time. After a long wait there are many waiting calls, or slow
brokers: with whole quanta, the next wait of the call could exceed `max_block_ms`."""

_PER_TURN = 262_144
"""Maximum number of bytes granted in one iteration of the event loop: appending more bytes would
block the loop for too long."""


class _Waiter:
    """A call that has waited for memory since loop time `since`. The call needs `need` bytes at
    once, and is granted up to `quantum` bytes (0: `_serve` computes the quantum)."""

    __slots__ = ("future", "grant", "need", "quantum", "since")

    def __init__(self, need: int, quantum: int, since: float, future: asyncio.Future[None]) -> None:
        self.need = need
        self.quantum = quantum
        self.since = since
        self.future = future
        self.grant = 0
        """Bytes granted to the call, at least `need`."""


class BufferMemory:
    """Counts the free bytes of `buffer_memory`, and grants them to waiting calls in FIFO order.

    Owns `free`, `allocatable` and the queue of waiters. Without waiters `allocatable` equals
    `free`, and any call may allocate. With waiters `allocatable` is the unused part of the running
    task's grant, and zero while a task without a grant runs. So all waiters get the same amount of
    memory in turn, and a task does not wait while it has a grant.

    How waiters get memory:

    1. `send` A needs more bytes than are free. A joins the queue, and `allocatable` becomes zero:
       `send` B joins behind A, even if the record of B would fit.
    2. A batch is written. `release` adds its bytes to `free` and calls `_serve`, which removes
       waiters from the front of the queue while `free` suffices, and sets their results. Each
       waiter is granted `_QUANTUM` bytes, or fewer bytes after waiting for more than `_ROUND`. The
       last waiter of the queue is granted all remaining bytes.
    3. The tasks of these waiters run next, one after the other, and then `_end_turn`, because
       `_serve` schedules all of them in one step. A running task sets `allocatable` to its grant
       before it allocates. Further sends of the task allocate from the grant, until the task awaits
       something else. A grant does not change `free`, only `allocate` does. So a task that is
       cancelled after step 2, times out in the same iteration of the event loop, or sends no more
       has nothing to release.
    4. `_end_turn` reads `free` again, which contains the unused grants, and the bytes that
       `release` has added since step 2. It grants these bytes to the next waiters; without waiters,
       any call may allocate.
    5. A has used its grant and needs more bytes. A joins the queue again: at the end if the grant
       was a whole quantum, otherwise at the front for the rest of its quantum. (If A always joined
       at the end, the same waiters might be granted only the last few free bytes in each round, and
       get less memory than others.)
    6. A waiter that leaves the queue without a grant (cancelled, timed out, refused) may have
       blocked waiters that need less. `_leave` calls `_serve` for the waiters behind it. If the
       deadline passes in the same iteration of the event loop as the grant, the call ignores the
       deadline, and continues with step 3.
    7. `stop()` refuses the waiters in the queue, and calls that join the queue later because they
       were in `yield_to_loop` at that time. The waiters of step 3 find the producer closed when
       they run, and allocate nothing.
    8. `allocate` counts the memory in the same synchronous step that appends.
       `ProducerBatch.release` returns the bytes of a batch one time; a second call returns zero.

    Tasks that did not wait run before the waiters of step 3, or after `_end_turn`. When a task
    joins the queue, the grant of the running task ends, even if the running task has started the
    joining task eagerly. So later calls of the running task do not overtake the call that waits.
    """

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self.size = size
        self.free = size
        """Free bytes; below zero if the additional headers of split batches did not fit."""
        self.allocatable = size
        """Bytes that the running task may allocate without waiting."""
        self.allocated = 0
        """Bytes allocated since the start."""
        self.is_contended = False
        """Whether calls wait for memory, or were granted memory in this iteration of the event
        loop."""
        self._is_granting = False
        self._rest = 0
        """The part of the running task's quantum that was not granted, because too little memory
        was free."""
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._refusal: Callable[[], BaseException] | None = None
        self._loop = loop

    @property
    def has_waiters(self) -> bool:
        """Whether calls wait for memory. If so, batches do not linger."""
        return bool(self._waiters)

    def allocate(self, size: int) -> None:
        """Count `size` bytes as used, even if fewer are free."""
        self.free -= size
        self.allocatable -= size
        self.allocated += size

    def release(self, size: int) -> None:
        """Count `size` bytes as free again, and grant them to waiters."""
        self.free += size
        if not self.is_contended:
            self.allocatable = self.free
        elif not self._is_granting:
            self._serve()

    def check_size(self, need: int) -> None:
        """Raise MessageSizeTooLargeError if `need` exceeds `buffer_memory`."""
        if need > self.size:
            raise MessageSizeTooLargeError(
                f"{need} bytes can never fit into buffer_memory={self.size}"
            )

    async def wait(self, need: int, deadline: float) -> None:
        """Wait until `need` bytes are granted to the caller, which must allocate before it awaits
        again.

        Raises KafkaTimeoutError at `deadline` (loop time), and the error of `refuse_waiters`. A
        call that raises or is cancelled has no effect.
        """
        if self._refusal is not None:
            raise self._refusal()
        waiter = self._join(need)
        try:
            async with timeout_at(deadline):
                await waiter.future
        except asyncio.TimeoutError:
            if not waiter.future.done() or waiter.future.cancelled():
                raise KafkaTimeoutError(
                    f"no memory for {need} bytes within max_block_ms: {self.free} of buffer_memory="
                    f"{self.size} bytes are free; the brokers take records more slowly than they "
                    "are sent, or do not answer"
                ) from None
            # The grant and the deadline came in the same iteration of the event loop: use the
            # grant.
            waiter.future.result()
        finally:
            self._leave(waiter)
        self._begin_turn(waiter)

    def _join(self, need: int) -> _Waiter:
        """Add the running task to the queue, and end its grant. The task joins at the front if the
        grant was less than a quantum (step 5), else at the end."""
        is_first = self._rest > 0
        waiter = _Waiter(need, self._rest, self._loop.time(), self._loop.create_future())
        self._waiters[waiter] = None
        if is_first:
            self._waiters.move_to_end(waiter, last=False)
        self.allocatable = self._rest = 0
        self.is_contended = True
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter without a grant from the queue, and serve the waiters behind it (step
        6)."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            if not self._is_granting:
                self._serve()

    def _begin_turn(self, waiter: _Waiter) -> None:
        """Set `allocatable` to the grant of the running task (step 3)."""
        if self._is_granting:
            self.allocatable = waiter.grant
            self._rest = max(0, waiter.quantum - waiter.grant)

    def _serve(self) -> None:
        """Grant free bytes to waiters from the front of the queue (step 2)."""
        left = self.free
        granted = 0
        now = self._loop.time()
        while self._waiters and granted < _PER_TURN:
            waiter = next(iter(self._waiters))
            if not waiter.future.done():
                # Keep FIFO order: otherwise later waiters that need less memory could delay this
                # waiter for ever.
                if left < waiter.need:
                    break
                if not waiter.quantum:
                    waiter.quantum = int(_QUANTUM / max(1.0, (now - waiter.since) / _ROUND) ** 2)
                share = left if len(self._waiters) == 1 else min(left, waiter.quantum)
                waiter.grant = max(waiter.need, share)
                waiter.future.set_result(None)
                left -= waiter.grant
                granted += waiter.grant
            del self._waiters[waiter]
        if granted:
            self._is_granting = True
            self._loop.call_soon(self._end_turn)
        elif not self._waiters:
            self.is_contended = False
            self.allocatable = self.free

    def _end_turn(self) -> None:
        """End the grants of this iteration of the event loop, and grant free bytes to the next
        waiters (step 4)."""
        self._is_granting = False
        self.allocatable = self._rest = 0
        self._serve()

    def refuse_waiters(self, make_error: Callable[[], BaseException]) -> None:
        """Make every call that waits now or later raise a new exception from `make_error`."""
        self._refusal = make_error
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(make_error())


# -- The batches of one partition between `send` and the leader's response


class PartitionQueue:
    """The undelivered batches of one partition, oldest first.

    Owns every field. Other classes only read the fields. Each method is one step of a batch:

        append() -> seal() -> take() -> complete()
                      ^         |
                      +---- requeue()

    A batch that fails leaves this path by `drop()` or `remove_in_flight()`, a batch that is split
    by `replace()`. `MessageAccumulator` appends, the `NodeSender` in `node` seals and takes,
    `BatchCompletion` calls the methods for completed, failed and split batches, `Sender` assigns
    the node.
    """

    def __init__(self, partition: TopicPartition, backoff: Backoff) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        """The sealed batches, followed by the open batch, if any."""
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        """The batch that accepts records; None without an open batch."""
        self.node: NodeSender | None = None
        """The sender of the partition's leader; None while the leader is unknown."""
        self.in_flight_from: NodeSender | None = None
        """The NodeSender that has sent the batches in `in_flight`."""
        self.retry_at = 0.0
        """The loop time at which the backoff after a failure ends; until then no batch is sent."""
        self.sequence = PartitionSequence()
        self._backoff = backoff
        self._sealed_bytes = 0

    @property
    def load(self) -> int:
        """The bytes of buffer memory that the undelivered batches hold."""
        batch = self.open
        return self._sealed_bytes if batch is None else self._sealed_bytes + batch.reserved

    def append(self, batch: ProducerBatch) -> None:
        """Add a new batch at the end. An OPEN batch becomes the batch that accepts records."""
        self.waiting.append(batch)
        if batch.state == _BATCH_OPEN:
            self.open = batch
        else:
            self._sealed_bytes += batch.reserved

    def seal(self) -> None:
        """Seal the open batch, if any, so that it accepts no more records."""
        batch = self.open
        if batch is not None:
            self.open = None
            self._sealed_bytes += batch.reserved
            batch.transition(_BATCH_SEALED)

    def assign(self, node: NodeSender | None) -> None:
        """Move the queue to `node`, the sender of the partition's leader; None without a leader.

        A new leader ends the backoff after a failure, because the backoff only waits for the
        metadata to change. After many attempts of the oldest batch, the backoff continues.
        """
        if self.node is not node:
            if self.node is not None:
                # Otherwise both senders would send from the queue. In-flight batches of the old
                # sender stay in flight.
                self.node.discard(self)
            self.node = node
            is_another = node is not None and node is not self.in_flight_from
            if is_another and self.waiting and self.waiting[0].attempts <= MOST_PROMPT_ATTEMPTS:
                self.retry_at = 0.0

    def take(self, node: NodeSender, id_state: ProducerIdState | None, now: float) -> bool:
        """Assign a sequence number to the oldest batch, move the batch to `in_flight`, for a
        request of `node`, and return True. Return False if the batch has to wait for a sequence
        number.

        `id_state` is None without idempotence: then batches have no sequence numbers. `now` is loop
        time.
        """
        batch = self.waiting[0]
        if id_state is not None and not id_state.assign_sequence(self, batch, now):
            return False
        self.waiting.popleft()
        batch.begin_attempt()
        self.in_flight.append(batch)
        self.in_flight_from = node
        return True

    def complete(self, batch: ProducerBatch) -> None:
        """Remove a batch that the leader has written, and reset the backoff. The caller releases
        the memory of the batch afterwards."""
        self.remove_in_flight(batch)
        self.retry_at = 0.0
        if self._backoff.failures:
            self._backoff.reset()

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Remove an in-flight batch that has failed and is not retried. The caller releases the
        memory of the batch afterwards."""
        self.in_flight.remove(batch)
        self._sealed_bytes -= batch.reserved

    def requeue(self, batch: ProducerBatch, error: BaseException) -> None:
        """Move an in-flight batch back to the waiting batches, for a retry after `error`.

        The sequence number decides the position of the batch in the queue. The end or the front of
        the queue would be wrong:

        1. Batches 1, 2 and 3 are in flight. Batch 4 waits and has no sequence number yet.
        2. Batch 1 is written. Batch 2 fails with NOT_LEADER and moves back to the front. Now
           batches 2 and 4 wait, in this order.
        3. Batch 3, in the next request, fails for the same reason. At the front, batch 3 would be
           sent before batch 2, and the leader would refuse it as a gap. At the end, batch 3 would
           be behind batch 4, which gets the next sequence number.
        4. By its sequence number, batch 3 is inserted between batches 2 and 4.

        Batches without a sequence number are new, so a requeued batch is inserted before them.
        Without idempotence no batch has a sequence number. Then only one batch is in flight at a
        time, and is inserted at the front.
        """
        self.in_flight.remove(batch)
        batch.fail_attempt(error)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        position = 0
        for other in self.waiting:
            if other.base_sequence == NO_SEQUENCE or _is_before(
                batch.base_sequence, other.base_sequence
            ):
                break
            position += 1
        self.waiting.insert(position, batch)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Replace `batch`, which waits or is in flight, by the `parts` that it was split into. The
        caller releases the memory of `batch` afterwards."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        self._sealed_bytes += sum(part.reserved for part in parts) - batch.reserved
        batch.transition(BatchState.SETTLED)
        # Insert the parts by sequence number, because other batches may have been requeued.
        if batch.has_sequence:
            for part in parts:
                self._insert(part)
        else:
            self.waiting.extendleft(reversed(parts))

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a waiting batch that has failed and is not retried. The caller releases the memory
        of the batch afterwards."""
        if batch is self.open:
            self.open = None
        else:
            self._sealed_bytes -= batch.reserved
        self.waiting.remove(batch)
        if self.node is not None and not self.waiting:
            self.node.discard(self)

    def clear_sequences(self) -> None:
        """Clear the sequence numbers of the waiting batches, before the sequence restarts at 0."""
        for batch in self.waiting:
            batch.clear_sequence()

    def set_error(self, error: BaseException) -> None:
        """Record why the oldest waiting batch is not sent, for the error of its timeout."""
        if self.waiting:
            self.waiting[0].set_error(error)

    def pause(self, now: float) -> None:
        """Begin the next backoff, unless a backoff is in progress."""
        if self.retry_at <= now:
            self.retry_at = now + self._backoff.next()


def _is_before(sequence: int, other: int) -> bool:
    # Sequence numbers wrap at 2**31; two batches of a queue are less than half this range apart.
    return 0 < (other - sequence) & 0x7FFFFFFF < 0x40000000


# -- Undelivered batches, and the calls of `flush` that wait for them


class _Flush:
    __slots__ = ("future", "pending")

    def __init__(self, pending: set[ProducerBatch], future: asyncio.Future[None]) -> None:
        self.pending = pending
        self.future = future


class PendingBatches:
    """All batches whose futures have no result or exception yet, oldest first. Owns these batches,
    and the calls of `flush` that wait for some of them."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._queues: dict[ProducerBatch, PartitionQueue] = {}
        self._flushes: list[_Flush] = []
        self._next: asyncio.Future[None] | None = None
        """The future that `wait_for_next` awaits; None if no call of it waits."""
        self._loop = loop

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._queues)

    def entries(self) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches with their queues, as a copy: callers remove batches while they
        iterate."""
        return list(self._queues.items())

    def add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        """Add a new batch, and end a call of `wait_for_next` that waits for it."""
        self._queues[batch] = queue
        if self._next is not None:
            if not self._next.done():  # not cancelled
                self._next.set_result(None)
            self._next = None

    async def wait_for_next(self) -> None:
        """Wait until a batch is added after this call. Only one call may wait."""
        self._next = self._loop.create_future()
        await self._next

    def finish(self, batch: ProducerBatch) -> None:
        """Remove a batch whose futures have results. End the flushes for which it was the last
        batch."""
        self._queues.pop(batch, None)
        # A flush waits only for batches that were pending when it was called: otherwise it would
        # never end under load.
        for flush in self._flushes:
            flush.pending.discard(batch)
            if not flush.pending and not flush.future.done():
                flush.future.set_result(None)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Replace `batch` by the `parts` that it was split into, also in pending flushes."""
        queue = self._queues.pop(batch)
        for part in parts:
            self._queues[part] = queue
        for flush in self._flushes:
            if batch in flush.pending:
                flush.pending.discard(batch)
                flush.pending.update(parts)

    async def wait(self, deadline: float | None) -> None:
        """Wait until every batch that is pending now is delivered or has failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        pending = set(self._queues)
        if not pending:
            return
        flush = _Flush(pending, self._loop.create_future())
        self._flushes.append(flush)
        timer = None
        if deadline is not None:
            timer = self._loop.call_at(deadline, fail_late, flush.future)
        try:
            await flush.future
        except asyncio.TimeoutError:
            if not flush.pending:
                return  # finished in the loop iteration of the deadline
            raise KafkaTimeoutError(
                f"{len(flush.pending)} batches were not delivered within the timeout of the flush"
            ) from None
        finally:
            if timer is not None:
                timer.cancel()
            self._flushes.remove(flush)


# -- The accumulator


BATCH_OVERHEAD = 1024
"""Bytes of buffer memory counted for each batch in addition to its records."""

_RECORD_FRAME = 36
"""An upper bound of the bytes of an encoded record without its key, value and headers."""

_RIVALS = 7
"""Number of random partitions that `TopicQueues.switch` compares with the first random
partition."""

_YIELD_BYTES = 262_144
"""Bytes that may be appended before `send` yields to the event loop. Of each record, the bytes
beyond `_SMALL` count only a quarter, because copying bytes takes less time than the rest of
`send`."""

_SMALL = 512

_GROWTH = 4
"""Factor by which the size limit of a batch is raised at a time."""

_BUSY_TIME = 0.01
"""Seconds for which the application counts as sending without a break after `send` has yielded to
the event loop, or has waited for memory."""

_BUSY_SHARE = 4
"""While the application sends without a break, the quantum of the sticky partition is at least 1/4
of `BatchSizing.largest`. With a smaller quantum there would be more batches, and each batch costs
as much CPU time as appending ten records."""

_SPARE_BYTES = 4_194_304
"""Maximum size in bytes, in total, of the buffers that are kept for later batches."""

_SPARE_SHARE = 8
"""The buffers that are kept for later batches have at most 1/8 of `buffer_memory` in total."""

_GROWTH_TIME = 1.0
"""The age in seconds up to which a batch may grow beyond `max_batch_size`."""

# These are C integers in the compiled module; Python globals would be looked up for every record.
_PER_RECORD = RECORD_OVERHEAD
_AT_MOST = _RECORD_FRAME + RECORD_OVERHEAD + BATCH_OVERHEAD
_BATCH_OPEN = int(BatchState.OPEN)
_BATCH_SEALED = int(BatchState.SEALED)

_LATE = 2**62
"""For timestamps from this value on (milliseconds since 1970) `append` returns None, because
`checked_record` has to validate them."""

_Headers = Sequence[tuple[str, "bytes | None"]]


def headers_bound(headers: _Headers) -> int:
    """Return an upper bound of the encoded size of `headers` in a batch."""
    size = 0
    for name, value in headers:
        size += 10 + 4 * len(name)
        if value is not None:
            size += len(value)
    return size


def record_bound(key: bytes | None, value: bytes | None, headers: _Headers) -> int:
    """Return an upper bound of the size of a batch with this record alone."""
    return 100 + headers_bound(headers) + len(value or b"") + len(key or b"")


class MessageBatch(ProducerBatch):
    """The name of the batch class in aiokafka 0.14. Instrumentation for aiokafka 0.14 may replace
    methods of this class. That has no effect, because batches are of class ProducerBatch."""


class TopicQueues:
    """The queues of a topic's partitions, according to the last metadata.

    Owns the partition for records without a key (`sticky`), and `_left`, the bytes until the next
    switch. `MessageAccumulator` itself decrements `_left`, to save a call for each record.
    """

    def __init__(
        self,
        queues: Sequence[PartitionQueue],
        available: Sequence[PartitionQueue],
        sizing: BatchSizing,
        quantum: int,
    ) -> None:
        """Records without a key are appended to one of the `available` queues: their partitions
        have a leader and, with `partitioner_rack_aware`, one in the client's rack (KIP-1123). If
        `available` is empty, the records are appended to one of `queues`. After `quantum` bytes
        `switch` chooses a queue again.
        """
        self.queues = list(queues)
        self.by_number = {queue.partition.partition: queue for queue in queues}
        self.sizing = sizing
        self.sticky: PartitionQueue | None = None
        self._choices = list(available) or self.queues
        self._quantum = quantum
        self._left = 0

    def switch(self) -> PartitionQueue:
        """Choose the sticky partition again, and return its queue: of up to `_RIVALS + 1` random
        partitions, the one with the fewest undelivered bytes (KIP-794).

        So the partitions of a slow broker get fewer records until the broker has caught up. If only
        two partitions were compared, both might often belong to the slow broker. Finally the
        records for this broker would fill the buffer memory, and no broker would get records fast.
        Bytes are compared, not the number of batches, because the batches of a slow broker grow.
        """
        choices = self._choices
        count = len(choices)
        chance = random.random
        at = int(chance() * count)
        queue = choices[at]
        for _ in range(min(_RIVALS, count - 1)):
            # Compare all partitions if there are at most `_RIVALS + 1`.
            at = int(chance() * count) if count > _RIVALS + 1 else (at + 1) % count
            rival = choices[at]
            if rival.load < queue.load:
                queue = rival
            if not queue.load:
                break
        self.sticky = queue
        self._left = self._quantum
        return queue

    def for_key(self, key: bytes) -> PartitionQueue:
        """Return the queue of the partition that Java's client chooses for `key`."""
        return self.queues[(murmur2(key) & 0x7FFFFFFF) % len(self.queues)]


def _rack_of(cluster: ClusterMetadata, node_id: int) -> str | None:
    broker = cluster.broker_metadata(node_id)
    return None if broker is None else broker.rack


class MessageAccumulator:
    """Appends records to the open batches of their partitions, in one queue per partition.

    Owns: the queues, the partitions of each topic according to the last metadata, the batch sizes
    of each topic, whether records are accepted, and the bytes appended since the last iteration of
    the event loop. `memory` owns the free bytes and the calls that wait for them, `pending` owns
    the undelivered batches, and each queue owns the batches of its partition.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: AbstractEventLoop,
        *,
        hashes_keys: bool,
        sender: Sender,
        meter: ProducerMeter,
    ) -> None:
        """`hashes_keys`: whether the partitioner is the default. With another partitioner, `append`
        returns None for records without a partition.
        """
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.memory = BufferMemory(loop, config.buffer_memory)
        self.pending = PendingBatches(loop)
        self.is_accepting = False
        self.is_yielding = False
        """Whether `yield_to_loop` is suspended: its caller continues in this iteration of the
        event loop."""
        self._topics: dict[str, TopicQueues] = {}
        self._sizing: dict[str, BatchSizing] = {}
        self._yielded_at = 0
        """`memory.allocated` at the last yield to the event loop."""
        self._max_record_bytes = config.max_request_size
        self._hashes_keys = hashes_keys
        self._delivery_timeout = config.delivery_timeout
        self._sender = sender
        self._meter = meter
        self._config = config
        self._loop = loop
        self._last_stamp = 0
        self._stamp = 0
        self._busy_until = 0.0
        self._spare = SpareBuffers(min(_SPARE_BYTES, config.buffer_memory // _SPARE_SHARE))

    def accept(self, is_accepting: bool) -> None:
        """Set whether `append` accepts records."""
        self.is_accepting = is_accepting

    # -- topics

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, created on first use."""
        queue = self.queues.get(partition)
        if queue is None:
            client = self._config.client
            backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
            queue = self.queues[partition] = PartitionQueue(partition, backoff)
        return queue

    def sizing(self, topic: str) -> BatchSizing:
        """Return the BatchSizing of `topic`, created on first use."""
        sizing = self._sizing.get(topic)
        if sizing is None:
            sizing = self._sizing[topic] = BatchSizing(self._config, self._loop.time, self._spare)
        return sizing

    def topic_queues(self, topic: str, cluster: ClusterMetadata) -> TopicQueues | None:
        """Return the queues of `topic`; None if `cluster` does not know the topic."""
        found = self._topics.get(topic)
        if found is None:
            numbers = cluster.partition_ids(topic)
            if not numbers:
                return None
            queues = [self.queue(TopicPartition(topic, number)) for number in numbers]
            available = self._available(topic, cluster)
            found = self._topics[topic] = TopicQueues(
                queues,
                [queue for queue in queues if queue.partition.partition in available],
                self.sizing(topic),
                self._config.max_batch_size,
            )
        return found

    def _available(self, topic: str, cluster: ClusterMetadata) -> set[int]:
        """Return the partitions for records without a key: all partitions with a leader. With
        `partitioner_rack_aware`, only partitions with a leader in the rack of the client, if there
        are any (KIP-1123)."""
        available = set(cluster.available_partition_ids(topic))
        rack = self._config.client.client_rack
        if not (rack and self._config.partitioner_rack_aware):
            return available
        nodes = {node for node in cluster.node_ids if _rack_of(cluster, node) == rack}
        return {
            number
            for number in available
            if cluster.leader_for_partition(TopicPartition(topic, number)) in nodes
        } or available

    def clear_topics(self) -> None:
        """Clear the cached partitions of all topics: `append` returns None for records of a topic
        until `topic_queues` is called for the topic."""
        self._topics.clear()

    def forget_queues(
        self, cluster: ClusterMetadata, may_forget: Callable[[PartitionQueue], bool]
    ) -> list[PartitionQueue]:
        """Remove and return the idle queues of topics that are not in `cluster`.

        Args:
            may_forget: Returns whether an idle queue can be removed.
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

    # -- yielding to the event loop

    def note_yield(self) -> None:
        """Restart the count of appended bytes, because the event loop has run other callbacks."""
        self._yielded_at = self.memory.allocated

    @property
    def is_yield_due(self) -> bool:
        """Whether `append` accepts no records until the event loop has run other callbacks."""
        return self.memory.allocated - self._yielded_at > _YIELD_BYTES

    async def yield_to_loop(self) -> None:
        """Suspend the calling task for one iteration of the event loop."""
        self.is_yielding = True
        # `_end_yield` runs after the callbacks of the NodeSenders, which read `is_yielding`, and
        # before the caller continues.
        self._loop.call_soon(self._end_yield)
        await asyncio.sleep(0)
        # Restart the count of appended bytes only after the sleep: otherwise `append` would accept
        # records of another task during the sleep, and they would overtake the caller's record.
        self._yielded_at = self.memory.allocated
        self._busy_until = self._loop.time() + _BUSY_TIME

    def _end_yield(self) -> None:
        self.is_yielding = False

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
        """Append a record and return its future, which is an asyncio.Future if `is_awaited`: the
        caller awaits it at once.

        Returns None, without appending, for a record that has to wait, or needs checks or
        conversions.
        """
        memory = self.memory
        if not self.is_accepting:
            return None
        # After `_YIELD_BYTES` return None: the caller then yields to the event loop. A caller that
        # awaits the future yields anyway, but must not overtake a call that is suspended in
        # `yield_to_loop`.
        if memory.allocated - self._yielded_at > _YIELD_BYTES and (
            not is_awaited or self.is_yielding
        ):
            return None
        topic_queues = self._topics.get(topic)
        if topic_queues is None:
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
        # While calls wait for memory, `allocatable` is zero unless this task has a grant.
        if need > memory.allocatable or need > self._max_record_bytes:
            return None
        if timestamp is None:
            timestamp = self._now()
        elif type(timestamp) is float and 0 <= timestamp < _LATE:
            timestamp = int(timestamp)
        elif type(timestamp) is not int or not 0 <= timestamp < _LATE:
            return None
        if partition is not None:
            if type(partition) is not int:
                return None
            queue = topic_queues.by_number.get(partition)
            if queue is None:
                return None
        elif not self._hashes_keys:
            return None
        elif key is None:
            return self.append_sticky(topic_queues, timestamp, value, headers, is_awaited)
        else:
            queue = topic_queues.for_key(key)
        return self.append_to(topic_queues, queue, timestamp, key, value, headers, is_awaited)

    def _now(self) -> int:
        """Return the milliseconds since 1970, as the same int object within a millisecond."""
        seconds = _clock.wall_time()
        stamp = int(seconds * 1000)
        if stamp != self._last_stamp:
            self._last_stamp = stamp
            self._stamp = stamp
        return self._stamp

    def append_to(
        self,
        topic_queues: TopicQueues,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: _Headers,
        is_awaited: bool = False,
    ) -> Future[Any]:
        """Append a record to the open batch of `queue`, even if there is too little memory; return
        its future."""
        batch = queue.open
        if batch is not None:
            before = batch.reserved
            future = batch.add(timestamp, key, value, headers, is_awaited)
            if future is None and self._grow(topic_queues, queue, batch):
                future = batch.add(timestamp, key, value, headers, is_awaited)
            if future is not None:
                self._allocate(batch.reserved - before)
                return future
            queue.seal()
        return self._open_batch(topic_queues, queue, timestamp, key, value, headers, is_awaited)

    def append_sticky(
        self,
        topic_queues: TopicQueues,
        timestamp: int,
        value: bytes | None,
        headers: _Headers,
        is_awaited: bool = False,
    ) -> Future[Any]:
        """Append a record without a key to the sticky partition, and return its future. First
        switch to another partition

        - if the open batch of the sticky partition is full, or
        - if the quantum is used up, unless there is an open batch that has not grown.
        """
        queue = topic_queues.sticky
        # Fill the open batch even if the quantum is used up: larger batches compress better. But a
        # batch that has grown is filled one quantum at a time: otherwise its partition would get up
        # to `BatchSizing.largest` bytes at once; a partition with a slow broker would get the most.
        if queue is None or (
            topic_queues._left <= 0 and (queue.open is None or queue.open.has_grown)
        ):
            queue = self._switch(topic_queues)
        batch = queue.open
        if batch is not None:
            before = batch.reserved
            future = batch.add(timestamp, None, value, headers, is_awaited)
            is_busy = topic_queues._left > topic_queues._quantum
            if future is None and is_busy and self._grow(topic_queues, queue, batch):
                future = batch.add(timestamp, None, value, headers, is_awaited)
            if future is not None:
                topic_queues._left -= batch.reserved - before - _PER_RECORD
                self._allocate(batch.reserved - before)
                return future
            # The batch is full. Switch even if a part of the quantum is left: another batch of this
            # partition would get only the rest of the quantum, and would be small.
            if not self._grow(topic_queues, queue, batch):
                queue.seal()
                self._notify_sender(queue)
            queue = self._switch(topic_queues)
        return self.append_to(topic_queues, queue, timestamp, None, value, headers, is_awaited)

    def _switch(self, topic_queues: TopicQueues) -> PartitionQueue:
        """Switch the sticky partition. If the application sends without a break, the quantum of the
        partition exceeds `max_batch_size`, so that its open batch grows."""
        queue = topic_queues.switch()
        if self._loop.time() < self._busy_until:
            topic_queues._left = max(topic_queues._left, topic_queues.sizing.largest // _BUSY_SHARE)
        return queue

    def _allocate(self, size: int) -> None:
        """Allocate `size` bytes for a record, and count them toward `_YIELD_BYTES`."""
        self.memory.allocate(size)
        if size > _SMALL:
            self._yielded_at += (size - _SMALL) * 3 // 4

    def _open_batch(
        self,
        topic_queues: TopicQueues,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: _Headers,
        is_awaited: bool,
    ) -> Future[Any]:
        """Open a batch of `queue` with this record; return its future. Raises IllegalStateError in
        another event loop than the producer's."""
        # Checked once per batch: for each record the check would cost too much.
        if asyncio._get_running_loop() is not self._loop:
            refuse_other_loop(self._loop, "AIOKafkaProducer")
        builder = topic_queues.sizing.new_builder()
        now = self._loop.time()
        deadline = now + self._delivery_timeout
        batch = ProducerBatch(queue.partition, builder, now, deadline, self._loop)
        batch.reserve(BATCH_OVERHEAD)
        if value is not None and len(value) >= builder.size_limit:
            # Grow the batch before its first record, so that the builder allocates memory for more
            # records at once, and need not copy this record.
            self._grow(topic_queues, queue, batch, len(value))
        future = batch.add(timestamp, key, value, headers, is_awaited)
        if future is None:
            raise RuntimeError("an empty batch has no room for its first record")
        if queue is topic_queues.sticky:
            topic_queues._left -= batch.reserved - BATCH_OVERHEAD - _PER_RECORD
        is_full = batch.builder.size >= batch.builder.size_limit
        if is_full and not self._grow(topic_queues, queue, batch):
            batch.transition(BatchState.SEALED)  # a full batch does not linger
        self._enqueue(queue, batch, is_awaited)
        return future

    def _grow(
        self,
        topic_queues: TopicQueues,
        queue: PartitionQueue,
        batch: ProducerBatch,
        size: int = 0,
    ) -> bool:
        """Raise the size limit of the full open batch of `queue`, or of a new batch whose first
        record has `size` bytes; return whether the limit was raised.

        Fewer and larger batches have a higher throughput, because each batch and each request costs
        time in brokers and in `NodeSender`. Growing does not delay the batch, which grows only in
        one of two cases:

        1. Other batches of the partition wait before this batch, so it cannot be sent yet.
        2. The batch is the next one to be sent. From its first growth on, it counts as ready
           (`ProducerBatch.is_filling`), and its sender is notified, as after sealing a batch. The
           batch accepts records until the sender seals it, usually in the next iteration of the
           event loop. (Such a batch does not grow with gzip or with a `compression_level`:
           compressing it could block the event loop for too long.)

        A batch grows for `_GROWTH_TIME` seconds, up to `BatchSizing.largest` bytes, and up to the
        bytes that the leader acknowledges in good time (`InFlightRequests.window`).
        """
        sizing = topic_queues.sizing
        limit = max(batch.builder.size_limit, batch.builder.size, size)
        largest = sizing.largest
        if queue.node is not None:
            largest = min(largest, queue.node.requests.window)
        if limit >= largest:
            return False
        is_next = not queue.waiting or queue.waiting[0] is batch
        if is_next and not sizing.is_fast:
            return False
        # All records of a batch have the deadline of the first one, so records that are added late
        # would have little time.
        if self._loop.time() - batch.created > _GROWTH_TIME:
            return False
        becomes_ready = batch.is_filling and queue.open is batch
        batch.grow(min(_GROWTH * limit, largest))
        if is_next and becomes_ready:
            self._notify_sender(queue)
        return True

    def _enqueue(
        self, queue: PartitionQueue, batch: ProducerBatch, is_awaited: bool = False
    ) -> None:
        queue.append(batch)
        self.pending.add(batch, queue)
        self._allocate(batch.reserved - BATCH_OVERHEAD)
        self.memory.allocate(BATCH_OVERHEAD)
        self._yielded_at += BATCH_OVERHEAD  # `_YIELD_BYTES` limits the bytes of records only
        self._notify_sender(queue, is_awaited)

    def _notify_sender(self, queue: PartitionQueue, is_awaited: bool = False) -> None:
        """Notify the NodeSender of `queue` of an opened or sealed batch; without a NodeSender,
        route the queue."""
        node = queue.node
        if node is None:
            self._sender.route_new(queue)
        else:
            node.add(queue, is_awaited)

    async def wait_for_memory(
        self, need: int, deadline: float, topic: str = "", partition: int | None = None
    ) -> float:
        """Wait until `need` bytes of memory are free for the caller, which must append before it
        awaits anything else. Return the seconds for which too little memory was free.

        Raises MessageSizeTooLargeError if `need` exceeds `buffer_memory`, KafkaTimeoutError at
        `deadline` (loop time). A call that raises or is cancelled has no effect.
        """
        self.memory.check_size(need)
        # Wait for as many bytes as `append` requires: otherwise it would return None for the next
        # record of the caller.
        need = min(need + BATCH_OVERHEAD + RECORD_OVERHEAD, self.memory.size)
        # Yield before checking the memory: during the yield an earlier call may allocate or begin
        # to wait, and this call must not overtake it.
        if self.is_yield_due:
            await self.yield_to_loop()
        if need <= self.memory.allocatable:
            return 0.0
        if self._config.linger and not self.memory.has_waiters:
            # Lingering batches hold memory. Notify their senders, because batches do not linger
            # while calls wait for memory (`NodeSender._lingered`). The batches are not sealed here:
            # they can accept records while their connection is busy.
            for batch, queue in self.pending.entries():
                if batch is queue.open:
                    self._notify_sender(queue)
        with self._meter.waiting_for_memory(topic, partition) as wait:
            await self.memory.wait(need, deadline)
        self.note_yield()
        self._busy_until = self._loop.time() + _BUSY_TIME
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
        """Append one record and return its future, for programs that call this method of aiokafka
        0.14.

        `send` does not call this method. `timeout` limits the wait for memory, in seconds.
        """
        timestamp = self._now() if timestamp_ms is None else timestamp_ms
        need = record_bound(key, value, headers)
        await self.wait_for_memory(need, self._loop.time() + timeout)
        queue = self.queue(tp)
        sizing = self.sizing(tp.topic)
        topic_queues = TopicQueues([queue], [queue], sizing, self._config.max_batch_size)
        return self.append_to(topic_queues, queue, timestamp, key, value, headers)

    def submit(
        self, partition: TopicPartition, builder: BatchBuilder
    ) -> asyncio.Future[RecordMetadata]:
        """Queue a batch that the user has filled, and return its future. A batch that the user has
        not closed accepts records from `send`.
        """
        queue = self.queue(partition)
        # Records that were sent before this call come before the batch in the partition.
        queue.seal()
        is_open = not builder.closed()
        now = self._loop.time()
        deadline = now + self._delivery_timeout
        batch = ProducerBatch(partition, builder.release(), now, deadline, self._loop)
        batch.reserve(BATCH_OVERHEAD + builder.size())
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch.set_user_future(future, builder.first_timestamp)
        if not is_open:
            batch.transition(BatchState.SEALED)
        self._enqueue(queue, batch)
        return future

    # -- flush

    def seal_all(self) -> None:
        """Seal every open batch, so that it is sent without lingering."""
        for batch, queue in self.pending.entries():
            if batch is queue.open:
                queue.seal()
                self._notify_sender(queue)

    async def flush(self, deadline: float | None) -> None:
        """Send all batches, and wait until all records that were sent before the call are delivered
        or have failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        self.seal_all()
        await self.pending.wait(deadline)
