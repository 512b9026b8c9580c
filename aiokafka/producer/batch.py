"""One batch: its records, the futures of those who sent them, and its life.

Compiled when possible, see batch.pxd: `add` and `succeed` run once per record.
"""

from __future__ import annotations

from asyncio import Future, InvalidStateError
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_SEQUENCE", "RECORD_OVERHEAD", "BatchState", "ProducerBatch"]

NO_SEQUENCE = -1

RECORD_OVERHEAD = 160
"""Bytes of buffer memory counted for a record besides its own: its future and timestamp."""

_OVERHEAD = RECORD_OVERHEAD  # as a C number where this is compiled

_new_tuple: Callable[..., Any] = tuple.__new__


class BatchState(IntEnum):
    """Where a batch is in its life."""

    OPEN = 0
    """Takes records; the last of its partition's queue."""
    SEALED = 1
    """Waits in its partition's queue, for the first time or to be sent again."""
    IN_FLIGHT = 2
    """Part of a request that has not been answered."""
    ABANDONED = 3
    """Its time was up while in flight: the futures have failed, the answer is still to come."""
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

    Owns: the builder with the bytes, one future per record (or one for the whole batch, if the user
    made it), and the state. `reserved` is the buffer memory it holds. Who may change it: `Appender`
    while it is OPEN, then the `NodeSender` of its partition.
    """

    def __init__(
        self,
        partition: TopicPartition,
        builder: RecordBatchBuilder,
        created: float,
        deadline: float,
    ) -> None:
        """`created` and `deadline` are loop times: when the first record came, when the last chance
        ends.
        """
        self.partition = partition
        self.builder = builder
        self.created = created
        self.deadline = deadline
        self.state = BatchState.OPEN
        self.reserved = 0
        self.attempts = 0
        self.is_doubtful = False
        """A part of a batch that may have been written whole: see `split_batch`."""
        self.error: BaseException | None = None
        """What the last attempt failed with."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.whole: Future[Any] | None = None
        """The future of a batch that the user made."""
        self.whole_timestamp = -1
        self._futures: list[Future[Any]] = []
        self._timestamps: list[int] = []

    def __repr__(self) -> str:
        topic, number = self.partition
        return (
            f"<ProducerBatch {topic}-{number} {BatchState(self.state).name} "
            f"records={self.record_count} sequence={self.base_sequence} attempts={self.attempts}>"
        )

    @property
    def record_count(self) -> int:
        """How many records it holds."""
        return self.builder.record_count

    @property
    def has_identity(self) -> bool:
        """Whether it has a sequence number: it may have reached a broker under it."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def is_done(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.state >= BatchState.ABANDONED

    def transition(self, state: BatchState) -> None:
        """Enter `state`; raises RuntimeError for a step that the table does not have."""
        if state not in _TRANSITIONS[self.state]:
            raise RuntimeError(f"{self!r} cannot become {state.name}")
        self.state = state

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        loop: Any,
    ) -> Future[Any] | None:
        """Append a record and return its future; None if the batch has no room for it."""
        size = self.builder.size
        if self.builder.append(timestamp, key, value, headers) < 0:
            return None
        self.reserved += self.builder.size - size + _OVERHEAD
        future: Future[Any] = Future(loop=loop)
        self._futures.append(future)
        self._timestamps.append(timestamp)
        return future

    def adopt(self, future: Future[Any], timestamp: int) -> None:
        """Take over the future of a record that was already appended to `builder` (a split)."""
        self._futures.append(future)
        self._timestamps.append(timestamp)

    def waiting(self) -> list[tuple[Future[Any], int]]:
        """The futures of the records with their timestamps; empty for a user's own batch."""
        return list(zip(self._futures, self._timestamps, strict=True))

    def succeed(self, base_offset: int, log_append_time: int, log_start_offset: int | None) -> None:
        """Give every record its metadata. `log_append_time` is -1 when the records keep their own
        times.
        """
        topic, number = self.partition
        kind = 0 if log_append_time < 0 else 1
        offset = base_offset
        step = 0 if base_offset < 0 else 1
        futures = self._futures
        timestamps = self._timestamps
        if self.whole is not None:
            stamp: object = self.whole_timestamp if kind == 0 else log_append_time
            fields = (topic, number, self.partition, offset, stamp, kind, log_start_offset)
            _resolve(self.whole, _new_tuple(RecordMetadata, fields))
            offset += step * (self.builder.record_count - len(futures))
        for index in range(len(futures)):
            stamp = timestamps[index] if kind == 0 else log_append_time
            fields = (topic, number, self.partition, offset, stamp, kind, log_start_offset)
            offset += step
            try:
                futures[index].set_result(_new_tuple(RecordMetadata, fields))
            except InvalidStateError:
                pass  # cancelled by its owner

    def succeed_unacknowledged(self) -> None:
        """Give every future the result None: acks=0, the broker tells nothing."""
        if self.whole is not None:
            _resolve(self.whole, None)
        for future in self._futures:
            _resolve(future, None)

    def fail(self, make_error: Callable[[int], BaseException]) -> None:
        """Fail every future with `make_error(index of the record)`, which makes a new object each
        time.
        """
        if self.whole is not None and not self.whole.done():
            self.whole.set_exception(make_error(0))
        for index, future in enumerate(self._futures):
            if not future.done():
                future.set_exception(make_error(index))

    def mark_seen(self) -> None:
        """Keep asyncio from logging failures that nobody looked at: they are told elsewhere."""
        for future in self._futures if self.whole is None else (self.whole, *self._futures):
            if future.done() and not future.cancelled():
                future.exception()


def _resolve(future: Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
