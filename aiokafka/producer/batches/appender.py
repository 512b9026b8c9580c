"""Put records into the open batches of their partitions: what `send` does for every record.

Compiled when possible, see appender.pxd. Nothing here waits for a broker or for memory.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import AbstractEventLoop, Future
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka import _clock
from aiokafka._compat import timeout_at
from aiokafka._retry import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka.partitioner import murmur2
from aiokafka.producer.batches.batch import (
    RECORD_OVERHEAD,
    BatchSizing,
    BatchState,
    PartitionSequence,
    ProducerBatch,
)
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import TopicPartition

__all__ = [
    "BATCH_OVERHEAD",
    "Appender",
    "BufferMemory",
    "PartitionQueue",
    "PendingBatches",
    "QueueSender",
    "TopicLanes",
    "headers_bound",
]


# -- The bytes of `buffer_memory`, and the calls that wait for some of them

# Compiled when possible, see buffer_memory.pxd: the appender reads it for every record.


_QUANTUM = 65_536
"""Bytes that a waiter may allocate in its turn while others wait. To wait costs as much CPU time as
to append some twenty small records; a quantum has room for more than two hundred."""

_ROUND = 1.0
"""Seconds after which a waiter gets less: a fourth after twice as long, and so on. So many others
wait, or the brokers are so slow, that with whole quanta a next turn may come after `max_block_ms`.
"""

_PER_TURN = 262_144
"""Bytes that are granted in one turn of the event loop, which would stand still otherwise."""


class _Waiter:
    """A call that waits for memory since loop time `since`: for `need` bytes at once, and up to
    `quantum` in the same turn (0: not known before its turn)."""

    __slots__ = ("future", "grant", "need", "quantum", "since")

    def __init__(self, need: int, quantum: int, since: float, future: asyncio.Future[None]) -> None:
        self.need = need
        self.quantum = quantum
        self.since = since
        self.future = future
        self.grant = 0
        """Bytes that were granted to it, `need` at least."""


class BufferMemory:
    """Counts the free bytes of `buffer_memory`, and grants them to waiters in FIFO order.

    Owns `free`, `room` and the queue of waiters. Without waiters `room` is `free`, and any call
    allocates. With waiters `room` is what the task that runs now may still allocate of its grant,
    and is zero for all other tasks. So waiters have equal shares of the memory, and a task goes on
    at full speed within its share.

    How waiters get memory, and why not more directly:

    1. `send` A finds too little room. It joins the queue, and `room` becomes zero: `send` B, though
       its record would fit, joins behind A.
    2. A batch is written. `give_back` adds its bytes to `free` and calls `_serve`, which takes
       waiters from the front of the queue while `free` suffices, and sets their results. Each is
       granted `_QUANTUM` bytes, or fewer if it has waited for more than `_ROUND`, and the last one
       of the queue all that is left.
    3. The tasks of these waiters run next, one behind the other, and behind them `_end_turn`, as
       `_serve` calls for all of them in one step. A task that runs sets `room` to its grant before
       it allocates. Its further sends allocate from the grant, until it awaits something else.
       Nothing is counted before it is allocated. So nothing has to be given back by a task that was
       cancelled after step 2, or whose deadline came in the same turn, or that sends no more.
    4. `_end_turn` looks at `free` again: the unused grants are in it, and what `give_back` added
       during the turn. It grants them to the next waiters, or lets any call allocate if there are
       none.
    5. A needs more than its grant, or than was left in step 2. It joins the queue again: at the end
       after a whole quantum, at the front with the rest of its quantum otherwise. With every waiter
       at the end, those whose turn comes with the last few free bytes would get fewer in each round
       if their number divides that of the waiters.
    6. A waiter that leaves the queue without a grant (cancelled, timed out, refused) may have been
       too large for what is free. `_leave` calls `_serve` for those behind it. A deadline in the
       turn of the grant is ignored: the call goes on with step 3.
    7. `stop()` refuses the waiters in the queue, and those that come to it later: they gave the
       event loop a turn when it was called. Those of step 3 find the producer closed when they run,
       and allocate nothing.
    8. Memory is counted by `take`, in the step that appends, and given back once, by whoever
       releases the batch: a batch has nothing to release the second time.

    Tasks that did not wait run before the waiters of step 3 or behind `_end_turn`, and a task that
    joins the queue (also one that a task of step 3 has started eagerly) ends the grant of the task
    that runs: a call never overtakes an earlier one of the same task.
    """

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self.size = size
        self.free = size
        """Bytes that are left; below zero when the headers of split batches need more."""
        self.room = size
        """Bytes that the running task may allocate without waiting."""
        self.taken = 0
        """Bytes that were ever taken."""
        self.is_contended = False
        """Whether calls wait, or were granted memory in this turn."""
        self._is_granting = False
        self._rest = 0
        """What the running task has not got of its quantum, as memory was short."""
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._refusal: Callable[[], BaseException] | None = None
        self._loop = loop

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for memory, so that nothing may linger in it."""
        return bool(self._waiters)

    def take(self, size: int) -> None:
        """Count `size` bytes as used, whether they are free or not."""
        self.free -= size
        self.room -= size
        self.taken += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again, and grant them to waiters."""
        self.free += size
        if not self.is_contended:
            self.room = self.free
        elif not self._is_granting:
            self._serve()

    def check(self, need: int) -> None:
        """Raise MessageSizeTooLargeError for more than there is in all."""
        if need > self.size:
            raise MessageSizeTooLargeError(
                f"{need} bytes can never fit into buffer_memory={self.size}"
            )

    async def wait(self, need: int, deadline: float) -> None:
        """Wait until `need` bytes are granted to the caller, which must allocate in the same step.

        Raises KafkaTimeoutError at `deadline` (loop time). Then, or cancelled, nothing has
        changed.
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
                    f"no room for {need} bytes within max_block_ms: {self.free} of buffer_memory="
                    f"{self.size} bytes are free; the brokers take records more slowly than they "
                    "are sent, or do not answer"
                ) from None
            # In the same turn: the program has stood still.
            waiter.future.result()
        finally:
            self._leave(waiter)
        self._begin(waiter)

    def _join(self, need: int) -> _Waiter:
        """Put the running task into the queue, and end its grant."""
        is_first = self._rest > 0
        waiter = _Waiter(need, self._rest, self._loop.time(), self._loop.create_future())
        self._waiters[waiter] = None
        if is_first:
            self._waiters.move_to_end(waiter, last=False)
        self.room = self._rest = 0
        self.is_contended = True
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that got no grant."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            if not self._is_granting:
                self._serve()

    def _begin(self, waiter: _Waiter) -> None:
        """Let the running task allocate what was granted to it."""
        if self._is_granting:
            self.room = waiter.grant
            self._rest = max(0, waiter.quantum - waiter.grant)

    def _serve(self) -> None:
        """Grant free bytes to waiters from the front of the queue (step 2)."""
        left = self.free
        granted = 0
        now = self._loop.time()
        while self._waiters and granted < _PER_TURN:
            waiter = next(iter(self._waiters))
            if not waiter.future.done():
                # Smaller needs must not be served before this one again and again.
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
            self.room = self.free

    def _end_turn(self) -> None:
        """End the grants of this turn, and grant what is free to the next waiters (step 4)."""
        self._is_granting = False
        self.room = self._rest = 0
        self._serve()

    def refuse_waiters(self, make_error: Callable[[], BaseException]) -> None:
        """Fail every call that waits, now or later, each with an exception object of its own."""
        self._refusal = make_error
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(make_error())


# -- The batches of one partition between `send` and the leader's response

# Compiled when possible, see partition_queue.pxd.


class QueueSender(Protocol):
    """What a queue knows of the `NodeSender` that sends its batches."""

    node_id: int

    def add(self, queue: PartitionQueue) -> None:
        """Look after `queue`: its oldest batch is new, sealed, or back from a failure."""

    def discard(self, queue: PartitionQueue) -> None:
        """Look after `queue` no longer."""


class PartitionQueue:
    """The batches of one partition that have not been delivered, oldest first.

    Owns every field. Others read them; each change is a method here, named after the step of a
    batch's life that it is:

        append() -> seal() -> take() -> end_flight()
                      ^         |
                      +---- put_back()

    `drop()` and `replace()` leave this path early. Who calls: `Appender` appends, the `NodeSender`
    in `node` seals and takes, `Delivery` does the rest, `Sender` assigns the node.
    """

    def __init__(self, partition: TopicPartition, backoff: Backoff) -> None:
        """Begin empty, without a node. `backoff` gives the pauses after failures."""
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        """Sealed batches, and the open one at the end."""
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        """The batch that takes records, if there is one."""
        self.node: QueueSender | None = None
        """The sender of the partition's leader; None while the leader is unknown."""
        self.in_flight_from: QueueSender | None = None
        """The sender whose responses `in_flight` waits for."""
        self.retry_at = 0.0
        """Loop time before which nothing is sent: the pause after a failure."""
        self.sequence = PartitionSequence()
        self._backoff = backoff

    @property
    def load(self) -> int:
        """How many batches have not been delivered."""
        return len(self.waiting) + len(self.in_flight)

    def append(self, batch: ProducerBatch) -> None:
        """Put a new batch at the end; it takes records for as long as it is OPEN."""
        self.waiting.append(batch)
        if batch.state == BatchState.OPEN:
            self.open = batch

    def seal(self) -> None:
        """Close the open batch, if there is one: it takes no more records."""
        batch = self.open
        if batch is not None:
            self.open = None
            batch.transition(BatchState.SEALED)

    def assign(self, node: QueueSender | None) -> None:
        """Hand the queue to the sender of another leader; None while there is no leader. The pause
        after a failure was for the metadata to change: it ends."""
        if self.node is not node:
            if self.node is not None:
                # Both would send from it otherwise. What is in flight from the old one stays there.
                self.node.discard(self)
            self.node = node
            is_another = node is not None and node is not self.in_flight_from
            if is_another and self.waiting and self.waiting[0].attempts <= MOST_PROMPT_ATTEMPTS:
                self.retry_at = 0.0

    def take(self, node: QueueSender) -> None:
        """Move the oldest batch into flight, in a request of `node`."""
        batch = self.waiting.popleft()
        batch.depart()
        self.in_flight.append(batch)
        self.in_flight_from = node

    def end_flight(self, batch: ProducerBatch) -> None:
        """Remove a batch whose request was answered, or has failed."""
        self.in_flight.remove(batch)

    def put_back(self, batch: ProducerBatch, error: BaseException) -> None:
        """Return a batch in flight to those that wait, to be sent again after `error`.

        Its place is the one of its sequence number. The end of the queue, or the front, would be
        wrong:

        1. Batches 1, 2 and 3 are in flight. Batch 4 waits and has no number yet.
        2. Batch 1 is written. Batch 2 fails ("not leader"), and comes back to the front: 2 4.
        3. Batch 3, in the next request, fails for the same reason. At the front it would be sent
           before batch 2, and the leader would refuse it as a gap. At the end it would stand
           behind batch 4, which is about to get the number after it.
        4. By its number it goes between the two: 2 3 4.

        Batches that have no number are new, so all of them are behind. Without idempotence no
        batch has a number, but then only one is ever in flight: it goes to the front.
        """
        self.in_flight.remove(batch)
        batch.come_back(error)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        position = 0
        for other in self.waiting:
            if other.base_sequence == -1 or _is_before(batch.base_sequence, other.base_sequence):
                break
            position += 1
        self.waiting.insert(position, batch)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put `parts` in the place of `batch`, which waits or is in flight, and was split."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        batch.transition(BatchState.SETTLED)
        # The parts have the numbers of the whole, and go by them: others may have been put back
        # meanwhile.
        if batch.has_identity:
            for part in parts:
                self._insert(part)
        else:
            self.waiting.extendleft(reversed(parts))

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch that waits, because it has failed for good."""
        if batch is self.open:
            self.open = None
        self.waiting.remove(batch)
        if self.node is not None and not self.waiting:
            self.node.discard(self)

    def forget_numbers(self) -> None:
        """Take the sequence numbers from all batches that wait: the sequence begins again at 0."""
        for batch in self.waiting:
            batch.forget_number()

    def note_error(self, error: BaseException) -> None:
        """Note for the oldest batch why it cannot be sent; its expiry tells."""
        if self.waiting:
            self.waiting[0].note_error(error)

    # -- pauses after failures

    def pause(self, now: float) -> None:
        """Send nothing for the next pause of the backoff, unless a pause is on already."""
        if self.retry_at <= now:
            self.retry_at = now + self._backoff.next()

    def end_pause(self) -> None:
        """Begin with the shortest pause again: a batch was written."""
        self.retry_at = 0.0
        self._backoff.reset()


def _is_before(sequence: int, other: int) -> bool:
    # Sequences wrap at 2**31, and no two batches in one queue are ever half of that apart.
    return 0 < (other - sequence) & 0x7FFFFFFF < 0x40000000


# -- The batches whose futures have no result, and the calls that wait for all of them


class _Flush(NamedTuple):
    pending: set[ProducerBatch]
    future: asyncio.Future[None]


class PendingBatches:
    """Every batch whose futures have no result, in the order of making.

    Owns that list and the flushes that wait for parts of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queues: dict[ProducerBatch, PartitionQueue] = {}
        self._flushes: list[_Flush] = []
        self._loop = loop

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._queues)

    def entries(self) -> tuple[tuple[ProducerBatch, PartitionQueue], ...]:
        """Return the batches with their queues, as they are now: they may end meanwhile."""
        return tuple(self._queues.items())

    def add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        """Count in a new batch."""
        self._queues[batch] = queue

    def finish(self, batch: ProducerBatch) -> None:
        """Count out a batch whose futures have results, and end the flushes that it was the last
        of.
        """
        self._queues.pop(batch, None)
        # A flush waits for the batches of its beginning only, or it would never end under load.
        for flush in self._flushes:
            flush.pending.discard(batch)
            if not flush.pending and not flush.future.done():
                flush.future.set_result(None)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Count `parts` in the place of `batch`, which was split; flushes wait for all of them."""
        queue = self._queues.pop(batch)
        for part in parts:
            self._queues[part] = queue
        for flush in self._flushes:
            if batch in flush.pending:
                flush.pending.discard(batch)
                flush.pending.update(parts)

    async def wait(self, deadline: float | None) -> None:
        """Wait until every batch of this moment is delivered or has failed.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        pending = set(self._queues)
        if not pending:
            return
        flush = _Flush(pending, self._loop.create_future())
        self._flushes.append(flush)
        try:
            async with timeout_at(deadline):
                await flush.future
        except asyncio.TimeoutError:
            if not flush.pending:
                return  # in the same turn: the program has stood still
            raise KafkaTimeoutError(
                f"{len(flush.pending)} batches were not delivered within the timeout of the flush"
            ) from None
        finally:
            self._flushes.remove(flush)


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
        seconds = _clock.wall_time()
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
