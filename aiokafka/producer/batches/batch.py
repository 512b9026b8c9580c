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
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_SEQUENCE", "RECORD_OVERHEAD", "BatchState", "ProducerBatch"]

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
