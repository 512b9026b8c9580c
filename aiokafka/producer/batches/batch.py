"""One batch: its records, what their futures wait for, and its life.

Compiled when possible, see batch.pxd: `add` runs once per record.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from aiokafka.errors import (
    KafkaConnectionError,
    KafkaProtocolError,
    NodeNotReadyError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.batches.record_future import BatchOutcome
from aiokafka.record.batch import RecordBatchBuilder, RecordReader
from aiokafka.record.compression import codec_id
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka._config.producer import ProducerConfig

__all__ = [
    "NO_SEQUENCE",
    "RECORD_OVERHEAD",
    "BatchSizing",
    "BatchState",
    "PartitionSequence",
    "ProducerBatch",
    "advance",
    "split_batch",
]


# -- What a producer knows of one partition's sequence numbers (KIP-98, KIP-360)


def advance(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`: 0 follows 2**31 - 1 (KIP-98)."""
    return (sequence + count) & 0x7FFFFFFF


class PartitionSequence:
    """The sequence numbers of one partition. Only the `Sequencer` writes to it."""

    __slots__ = (
        "epoch",
        "expected",
        "generation",
        "has_gap",
        "is_uncertain",
        "is_unresolved",
        "known_by",
        "known_id",
        "next",
        "producer_id",
        "topic_id",
        "used_at",
    )

    def __init__(self) -> None:
        self.generation = -1
        """Which producer id the partition uses, by the sequencer's count of them."""
        self.producer_id = -1
        self.epoch = -1
        self.next = 0
        """The first sequence number of the next new batch."""
        self.expected = 0
        """What the leader expects next, as far as its responses tell."""
        self.is_uncertain = False
        """A batch was given up after it may have been sent: `expected` may never reach `next`."""
        self.is_unresolved = False
        """A batch was given up, and nothing tells whether it will still be written."""
        self.has_gap = False
        """The leader reported that records before the oldest batch are missing."""
        self.known_id = -1
        """The producer id that the leader is known to know, under whatever epoch."""
        self.known_by = -1
        """The node id of that leader."""
        self.used_at = 0.0
        """When a batch was last about to be sent (loop time)."""
        self.topic_id: bytes | None = None
        """The id of the topic, as the metadata had it last; None before Kafka 2.8."""


# -- Estimate how many bytes of records fill a batch of a topic, once it is compressed


_MARGIN = 1.05
"""A batch that turns out a little less compressible than those before should still fit."""

_MOST_GROWTH = 16
"""How many times `max_batch_size` a batch may have before it is compressed."""

_MEMORY = 0.8
"""Share of the old estimate that a new observation leaves in place."""

_LARGEST = 1_000_000
"""Bytes up to which a batch grows behind others. Topics take 1,048,588 by default."""

_LARGEST_COMPRESSED = 262_144
"""... of records that are compressed: in one step, while the event loop stands still."""

_SHARE = 16
"""... and at most one part in so many of `buffer_memory`: while a batch is in flight, others need
memory to grow in."""

_TRUST = 600.0
"""Seconds for which a limit counts that brokers have shown: it may be raised again."""


class BatchSizing:
    """Learns from each batch of a topic how well it compresses, and from refusals how large a
    batch brokers take.

    Owns: the estimated ratio, the limit learnt from the topic's brokers, and when that was.
    """

    def __init__(self, config: ProducerConfig, clock: Callable[[], float]) -> None:
        """Begin with what is configured. `clock()` gives the time in seconds."""
        self._codec = codec_id(config.compression_type)
        self._level = config.compression_level
        self._most = self._full = config.max_batch_size
        largest = _LARGEST_COMPRESSED if self._codec else _LARGEST
        largest = min(largest, config.max_request_size, config.buffer_memory // _SHARE)
        self._largest = 0 if config.is_given("max_batch_size") else largest
        self._may_grow = True
        self._ratio = 1.0
        self._clock = clock
        self._refused_at = 0.0

    def new_builder(self) -> RecordBatchBuilder:
        """Return an empty batch that takes as many bytes as fill it once they are compressed."""
        if self._refused_at and self._clock() - self._refused_at > _TRUST:
            self._full = self._most
            self._may_grow = True
            self._refused_at = 0.0
        limit = self._full
        if self._codec:
            growth = max(1.0, 1 / (self._ratio * _MARGIN))
            limit = int(limit * min(growth, _MOST_GROWTH))
        return self.builder(limit)

    @property
    def largest(self) -> int:
        """Bytes up to which a batch may grow while it waits behind others, before compression; 0 if
        it may not: `max_batch_size` was set, or a broker has refused a batch that had grown."""
        return self._largest if self._may_grow else 0

    @property
    def limit(self) -> int:
        """Bytes that a batch may have on the wire."""
        return self._full

    def builder(self, limit: int) -> RecordBatchBuilder:
        """Return an empty batch that takes `limit` bytes before compression."""
        return RecordBatchBuilder(compression=self._codec, level=self._level, size_limit=limit)

    def learn(self, size: int, compressed_size: int) -> None:
        """Learn from a batch of `size` bytes that was compressed."""
        if 2 * size < self._full:
            return  # a few records compress worse than a full batch does
        ratio = compressed_size / size
        if ratio > self._ratio:
            # At once: too large a batch costs a refusal, too small a one only a little efficiency.
            self._ratio = ratio
        else:
            self._ratio = self._ratio * _MEMORY + ratio * (1 - _MEMORY)

    def refuse(self, size: int) -> None:
        """Learn that a broker found a batch of `size` compressed bytes too large (KIP-126)."""
        self._ratio = 1.0
        self._may_grow = False
        self._full = max(1, min(self._full, size // 2))
        self._refused_at = self._clock()


NO_SEQUENCE = -1

RECORD_OVERHEAD = 160
"""Bytes of buffer memory counted for a record besides its own: its future and timestamp."""

_OVERHEAD = RECORD_OVERHEAD  # as a C number where this is compiled

# After these the batch may be written: there was no response, or none that says that it is not.
# (A session that cannot be renewed ends its connection with what was in flight.)
_OPEN = (
    KafkaConnectionError,
    KafkaProtocolError,
    NodeNotReadyError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
    *REFUSALS,
)

_new_tuple: Callable[..., Any] = tuple.__new__


class BatchState(IntEnum):
    """What a batch waits for."""

    OPEN = 0
    """It takes records, and is the last of its partition's queue."""
    SEALED = 1
    """It waits in its partition's queue, to be sent for the first time or again."""
    IN_FLIGHT = 2
    """It is part of a request that has not been answered."""
    ABANDONED = 3
    """Its time was up while in flight: the futures have failed, the response is still to come."""
    SETTLED = 4
    """The futures have their results."""


_TRANSITIONS: Mapping[int, frozenset[BatchState]] = {
    BatchState.OPEN: frozenset({BatchState.SEALED, BatchState.SETTLED}),
    BatchState.SEALED: frozenset({BatchState.IN_FLIGHT, BatchState.SETTLED}),
    BatchState.IN_FLIGHT: frozenset({BatchState.SEALED, BatchState.ABANDONED, BatchState.SETTLED}),
    BatchState.ABANDONED: frozenset({BatchState.SETTLED}),
    BatchState.SETTLED: frozenset(),
}


class ProducerBatch:
    """Records of one partition that travel together.

    Owns every field; each change is a method here. The builder has the bytes; the outcome serves
    the futures of the records, and there is one for the whole of a batch that the user made.

    What triggers the steps between the states: `PartitionQueue.seal` (full, due, or flushed),
    `take` (put into a request) and `put_back` (its request failed, it is sent again), and in
    `Delivery` a response, a split, or the end of its time.
    """

    def __init__(
        self,
        partition: TopicPartition,
        builder: RecordBatchBuilder,
        created: float,
        deadline: float,
        loop: AbstractEventLoop,
    ) -> None:
        """Begin with no records. `created` and `deadline` are times of `loop`: when the first
        record came, and when the delivery timeout ends.
        """
        self.partition = partition
        self.builder = builder
        self.created = created
        self.deadline = deadline
        self.state = BatchState.OPEN
        self.reserved = 0
        """Bytes of buffer memory that it holds."""
        self.attempts = 0
        """How many times it was put into a request."""
        self.has_grown = False
        """It was full, but takes records as long as batches before it wait: it need not linger."""
        self.is_doubtful = False
        """A part of a batch that may have been written whole: see `split_batch`."""
        self.is_unanswered = False
        """A request with it got no response, or one that leaves open whether it is written."""
        self.goes_alone = False
        """It was sent before, or is a part of a batch that may have been written."""
        self.error: BaseException | None = None
        """What the last attempt failed with, or what keeps it from being sent."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.whole: Future[Any] | None = None
        """The future of a batch that the user made."""
        self.whole_timestamp = -1
        self.outcome = BatchOutcome(partition, loop)

    def __repr__(self) -> str:
        topic, number = self.partition
        return (
            f"<ProducerBatch {topic}-{number} {BatchState(self.state).name} "
            f"records={self.record_count} sequence={self.base_sequence} attempts={self.attempts}>"
        )

    @property
    def record_count(self) -> int:
        """How many records the batch holds."""
        return self.builder.record_count

    @property
    def has_identity(self) -> bool:
        """Whether the batch has a sequence number, so that a broker may know it."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def is_done(self) -> bool:
        """Whether its futures have results."""
        return self.state >= BatchState.ABANDONED

    # -- its life

    def transition(self, state: BatchState) -> None:
        """Enter `state`. Raises RuntimeError for a step that the table does not have."""
        if state not in _TRANSITIONS[self.state]:
            raise RuntimeError(f"{self!r} cannot become {state.name}")
        self.state = state

    def grow(self, size_limit: int) -> None:
        """Take records up to `size_limit` bytes."""
        self.has_grown = True
        self.builder.raise_limit(size_limit)

    def depart(self) -> None:
        """Enter a request, and count the attempt."""
        self.transition(BatchState.IN_FLIGHT)
        self.attempts += 1

    def come_back(self, error: BaseException) -> None:
        """Wait again, the last attempt having failed with `error`."""
        self.error = error
        if isinstance(error, _OPEN):
            self.is_unanswered = True
        self.goes_alone = True
        self.transition(BatchState.SEALED)

    def note_append(self) -> None:
        """Note that a leader has written the batch, but lost the partition while it waited for
        the other replicas. The one that leads now may have the batch.
        """
        self.is_unanswered = True

    def note_error(self, error: BaseException) -> None:
        """Keep what prevents the batch from being sent."""
        self.error = error

    def set_number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Take its place in the sequence of the partition."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def forget_number(self) -> None:
        """Give up its place in the sequence: it gets another one, under another epoch."""
        self.base_sequence = NO_SEQUENCE

    def reserve(self, size: int) -> None:
        """Hold `size` more bytes of buffer memory."""
        self.reserved += size

    def release(self) -> int:
        """Hold no memory any longer; return how many bytes it held."""
        held = self.reserved
        self.reserved = 0
        return held

    # -- its records

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        is_awaited: bool = False,
    ) -> Future[Any] | None:
        """Append a record and return its future; return None if the batch has no room for it."""
        size = self.builder.size
        if self.builder.append(timestamp, key, value, headers) < 0:
            return None
        self.reserved += self.builder.size - size + _OVERHEAD
        if is_awaited:
            return self.outcome.promise_awaited(timestamp)
        return self.outcome.promise(timestamp)

    def serve_whole(self, future: Future[Any], timestamp: int) -> None:
        """Resolve `future` for the records that the user put into the batch; `timestamp` is that of
        the first.
        """
        self.whole = future
        self.whole_timestamp = timestamp

    @property
    def _first_sent(self) -> int:
        """The place in the batch of the first record of `send`: behind those of the user."""
        return self.builder.record_count - len(self.outcome.timestamps)

    def part(self, builder: RecordBatchBuilder) -> ProducerBatch:
        """Return a batch for some of these records, with the same times and the same past."""
        loop = self.outcome.loop
        part = ProducerBatch(self.partition, builder, self.created, self.deadline, loop)
        part.attempts = self.attempts
        # It may be in the log whole, where the leader would not recognise a part of it
        # (`split_batch`).
        part.is_doubtful = self.is_doubtful or (self.has_identity and self.is_unanswered)
        part.is_unanswered = self.is_unanswered
        # No broker has seen the parts of others: they are sent one behind the other, as new ones.
        # One at a time, the parts of large batches would take longer than their records have.
        part.goes_alone = part.is_doubtful
        part.error = self.error
        return part

    def succeed(self, base_offset: int, log_append_time: int, log_start_offset: int | None) -> None:
        """Give every record its metadata. `log_append_time` is -1 when the records keep their own
        times.
        """
        if self.whole is not None:
            topic, number = self.partition
            stamp, kind = self.whole_timestamp, 0
            if log_append_time >= 0:
                stamp, kind = log_append_time, 1
            fields = (topic, number, self.partition, base_offset, stamp, kind, log_start_offset)
            _resolve(self.whole, _new_tuple(RecordMetadata, fields))
            if base_offset >= 0:
                base_offset += self._first_sent
        self.outcome.write(base_offset, log_append_time, log_start_offset)

    def succeed_unacknowledged(self) -> None:
        """Give every future the result None: with acks=0 the broker sends no response."""
        if self.whole is not None:
            _resolve(self.whole, None)
        self.outcome.leave_unacknowledged()

    def fail(self, make_error: Callable[[int], BaseException]) -> None:
        """Fail every future with `make_error(index of the record)`, which makes a new object each
        time.
        """
        if self.whole is None:
            self.outcome.fail(make_error)
            return
        if not self.whole.done():
            self.whole.set_exception(make_error(0))
        first = self._first_sent
        self.outcome.fail(lambda number: make_error(first + number))

    def mark_seen(self) -> None:
        """Keep asyncio from logging failures that were not looked at: they are raised elsewhere."""
        if self.whole is not None and self.whole.done() and not self.whole.cancelled():
            self.whole.exception()
        self.outcome.mark_seen()


def _resolve(future: Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


# -- Make several batches of one that a broker finds too large (KIP-126)


def split_batch(batch: ProducerBatch, sizing: BatchSizing) -> list[ProducerBatch]:
    """Split `batch` into batches of at most half its size; return them, [] if that is impossible.

    The parts take over the futures of the records, and keep the sequence numbers of the whole, so
    nothing is missing between them. A batch that the user made stays whole, as its future promises
    one base offset: it is the first part, and records of `send` that came behind it are in others.

    The parts of a batch are doubtful if it may be written (`ProducerBatch.is_unanswered`):

    1. The batch is written, and the response is lost.
    2. The topic's limit becomes smaller.
    3. The batch is sent again. Leaders look at the size first, so it is refused, and split.
    4. The first part is refused for its sequence number: the leader has that already, but as part
       of a batch that ends elsewhere.

    This is not the gap that a new epoch mends: under one the records would be written again. So the
    doubtful part fails, and its error says that it may have been written.
    """
    timestamps = batch.outcome.timestamps
    if batch.record_count < 2 or not timestamps:
        return []
    limit = max(1, min(sizing.limit, batch.builder.size // 2))
    sequence = batch.base_sequence
    # The records are kept in the batch alone, so they are read back from its bytes.
    records = RecordReader(batch.builder.build(), *batch.partition, position=0, check_crcs=False)
    own: list[ProducerBatch] = []
    if batch.whole is not None:
        part = batch.part(sizing.builder(batch.builder.size))
        part.serve_whole(batch.whole, batch.whole_timestamp)
        for _ in range(batch.record_count - len(timestamps)):
            part.builder.append(*_fields_of_next(records))
        own.append(part)
    parts: list[ProducerBatch] = []
    firsts: list[int] = []
    for number, timestamp in enumerate(timestamps):
        fields = _fields_of_next(records)
        if not parts or parts[-1].builder.append(*fields) < 0:
            part = batch.part(sizing.builder(limit))
            part.builder.append(*fields)
            parts.append(part)
            firsts.append(number)
        parts[-1].outcome.adopt(timestamp)
    batch.outcome.divide(firsts, [part.outcome for part in parts])
    parts = own + parts
    for part in parts:
        part.transition(BatchState.SEALED)
        if batch.has_identity:
            part.set_number(batch.producer_id, batch.producer_epoch, sequence)
            sequence = advance(sequence, part.record_count)
    return parts


def _fields_of_next(records: RecordReader) -> tuple[Any, ...]:
    record = records.next()
    if record is None:
        raise RuntimeError("a batch lacks records")
    return record.timestamp, record.key, record.value, record.headers
