"""One transaction of a session: its records, its offsets and its phase."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from aiokafka._typing import KT, VT, KeySent, ValueSent, later
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.producer.batch_builder import BatchBuilder
    from aiokafka.session.session import TransactionalSession
else:
    TransactionalSession = later("aiokafka.session.session.TransactionalSession")
    BatchBuilder = later("aiokafka.producer.batch_builder.BatchBuilder")

__all__ = ["ENDING", "OVER", "SessionPhase", "SessionTransaction"]

Records = list[ConsumerRecord[Any, Any]]


class SessionRecords(Records):
    """The records of a transaction: a list that remembers the last record that was read from it.

    `async with` cannot detect that its block is left by `break`, `return` or `continue`. This list
    shows whether a loop over the records ended before the last record.
    """

    def __init__(self) -> None:
        super().__init__()
        self._iterators = 0
        self._furthest = 0

    @property
    def is_left_over(self) -> bool:
        """Whether a loop over the records has begun, but neither a loop nor an index has reached
        the last record."""
        return self._iterators > 0 and self._furthest < len(self)

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        self._iterators += 1
        at = 0
        while at < len(self):
            yield list.__getitem__(self, at)
            # The application has finished this record when it requests the next record.
            at += 1
            self._furthest = max(self._furthest, at)

    def __reversed__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        # `list(self)` marks all records as read, even if the reversed loop ends early.
        yield from list(self)[::-1]

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            end = index.indices(len(self))[1]
        else:
            end = index + 1 if index >= 0 else len(self) + index + 1
        self._furthest = max(self._furthest, end)
        return found


class SessionPhase(Enum):
    """The phases of a SessionTransaction; `_TRANSITIONS` has the permitted changes."""

    TAKEN = "its records are taken"
    ACTIVE = "in progress"
    SENDING_OFFSETS = "sending offsets"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


_P = SessionPhase

# A phase begins when:
#   TAKEN             the session begins to read the first records
#   ACTIVE            the application's `async with` block is entered
#   SENDING_OFFSETS   the block has ended without an error
#   COMMITTING        the broker has accepted the offsets (TxnOffsetCommit)
#   COMMITTED         the commit has succeeded, in the block or in `_complete_interrupted()`
#   ABORTING          the block has raised, partitions were revoked, or a request has failed
#   ABORTED           the transaction is aborted, and the consumer's positions are again those of
#                     the transaction's first records
_TRANSITIONS = {
    _P.TAKEN: {_P.ACTIVE, _P.ABORTED},
    _P.ACTIVE: {_P.SENDING_OFFSETS, _P.ABORTING},
    _P.SENDING_OFFSETS: {_P.COMMITTING, _P.ABORTING},
    _P.COMMITTING: {_P.COMMITTED, _P.ABORTING},
    _P.ABORTING: {_P.ABORTED},
    _P.COMMITTED: set(),
    _P.ABORTED: set(),
}
# A revocation waits while a transaction is in these phases. It does not wait for an abort, because
# an abort commits no offsets.
ENDING = (_P.SENDING_OFFSETS, _P.COMMITTING)
OVER = (_P.COMMITTED, _P.ABORTED)


class SessionTransaction(Generic[KT, VT, KeySent, ValueSent]):
    """One transaction of a session: `async with transaction as records`.

    The end of the block commits the sent records and the offsets after `records` together. The
    transaction is aborted instead if:

    - The block raises. The exception is re-raised, except for two errors: a recoverable KafkaError
      (see `retries` of the session), and the CommitFailedError of `send()` after a revocation.
    - Partitions of `records` were revoked.
    - The commit fails with a recoverable error.
    - A loop over `records` ended before the last record, for example by `break` or `return`. To
      commit after such a loop, call `records.clear()` in the block.

    After an abort, the consumer seeks to the first of `records`. The session returns the records
    again if their partitions are still assigned to its consumer.

    Owns all its fields; the session and its listener call the methods.
    """

    def __init__(self, session: TransactionalSession) -> None:
        self._session = session
        self._phase = _P.TAKEN
        self.records = SessionRecords()
        """The records to process: one partition after the other, each in the order of offsets."""
        self.failure: KafkaError | None = None
        """The error that the consumer raised after returning `records`; None without one."""
        self.first: dict[TopicPartition, int] = {}
        """For each partition that was not revoked: the offset to seek to after an abort."""
        self.next: dict[TopicPartition, int] = {}
        """For each partition: the offset to commit."""
        self.is_void = False
        """Whether partitions of `records` were revoked, so that the transaction must be aborted."""
        self._over = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SessionTransaction {self._phase.value}, {len(self.records)} records>"

    @property
    def is_committed(self) -> bool:
        """Whether the transaction was committed. If the block ends without a commit, this or
        another consumer reads the records again.
        """
        return self._phase is _P.COMMITTED

    async def __aenter__(self) -> list[ConsumerRecord[KT, VT]]:
        await self._session.begin(self)
        return self.records

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return await self._session.end(self, exc)

    def send(
        self,
        topic: str,
        value: ValueSent | None = None,
        key: KeySent | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> Awaitable[asyncio.Future[RecordMetadata]]:
        """Send a record as part of the transaction; arguments and result are as in `producer.send`.

        The end of the block awaits the futures. Raises CommitFailedError if partitions were
        revoked, so that the transaction cannot be committed; IllegalStateError outside the block.
        """
        if self.is_void or self._phase is not _P.ACTIVE:
            raise self._refusal()
        producer = self._session.producer
        return producer.send(topic, value, key, partition, timestamp_ms, headers)

    def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> Awaitable[asyncio.Future[RecordMetadata]]:
        """Send a batch as part of the transaction; arguments and result are as in
        `producer.send_batch`.

        Raises the same errors as `send`.
        """
        if self.is_void or self._phase is not _P.ACTIVE:
            raise self._refusal()
        return self._session.producer.send_batch(batch, topic, partition=partition)

    def _refusal(self) -> KafkaError:
        if self.is_void:
            return CommitFailedError("partitions were revoked during the transaction")
        return IllegalStateError(f"the transaction is not open: {self._phase.value}")

    # -- for the session

    @property
    def phase(self) -> SessionPhase:
        """The current phase; `enter()` changes it."""
        return self._phase

    async def wait_over(self) -> None:
        """Wait until the transaction is committed, or its abort begins."""
        await self._over.wait()

    def take(self, batches: dict[TopicPartition, Records]) -> None:
        """Add records, and for each partition the offset to seek to after an abort."""
        for tp, records in batches.items():
            if records:  # an interceptor may have removed all records of a partition
                # If the topic was recreated during the transaction, a later `getmany()` may return
                # lower offsets.
                offset = records[0].offset
                self.first[tp] = min(self.first.get(tp, offset), offset)
                self.records.extend(records)

    def add_position(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset to commit for a partition."""
        self.next[partition] = offset

    def keep_failure(self, error: KafkaError) -> None:
        """Store the error that the consumer raised after these records. The session raises it after
        their commit."""
        self.failure = error

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove revoked partitions, so that the session neither commits their offsets nor seeks in
        them. If the transaction has records of these partitions, set `is_void`: it must be aborted.
        """
        for tp in partitions:
            if self.first.pop(tp, None) is not None:
                self.is_void = True
            else:
                self.next.pop(tp, None)

    def enter(self, phase: SessionPhase) -> None:
        """Enter the next phase. Raises IllegalStateError for a wrong transition."""
        if phase not in _TRANSITIONS[self._phase]:
            raise IllegalStateError(f"a transaction that is {self._phase.value} cannot be used")
        self._phase = phase
        if phase in OVER or phase is _P.ABORTING:
            # A revocation may be waiting for this event: see `TransactionalSession._commit`.
            self._over.set()
