"""One transaction of a session: its records, and where it is between taken and over."""

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
    from aiokafka.producer.batches.batch_builder import BatchBuilder
    from aiokafka.session.session import TransactionalSession
else:
    TransactionalSession = later("aiokafka.session.session.TransactionalSession")
    BatchBuilder = later("aiokafka.producer.batches.batch_builder.BatchBuilder")

__all__ = ["ENDING", "OVER", "SessionPhase", "SessionTransaction"]

Records = list[ConsumerRecord[Any, Any]]


class SessionRecords(Records):
    """The records of a transaction: a list that knows how far it was read.

    Python does not tell a block that is left by `break`, `return` or `continue` from one that ran
    to its end. What shows is that a loop over the records stopped before the last of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._iterators = 0
        self._furthest = 0

    @property
    def is_left_over(self) -> bool:
        """Whether a loop over the records has begun, and none has reached the last."""
        return self._iterators > 0 and self._furthest < len(self)

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        self._iterators += 1
        at = 0
        while at < len(self):
            yield list.__getitem__(self, at)
            # Only now is the application done with it.
            at += 1
            self._furthest = max(self._furthest, at)

    def __reversed__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        # Backwards, the first is the last.
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
    """Where a transaction of a session is."""

    TAKEN = "its records are taken"
    ACTIVE = "in progress"
    SENDING_OFFSETS = "sending offsets"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"


_P = SessionPhase

# What triggers the steps:
#   ACTIVE            the block is entered
#   SENDING_OFFSETS   the block has ended without an error
#   COMMITTING        the offsets are part of the transaction
#   COMMITTED         the commit has succeeded, in the block or in a later step of the session
#   ABORTING          the block has raised, partitions were revoked, or a step has failed
#   ABORTED           the consumer is back at the first records, the transaction aborted
_TRANSITIONS = {
    _P.TAKEN: {_P.ACTIVE, _P.ABORTED},
    _P.ACTIVE: {_P.SENDING_OFFSETS, _P.ABORTING},
    _P.SENDING_OFFSETS: {_P.COMMITTING, _P.ABORTING},
    _P.COMMITTING: {_P.COMMITTED, _P.ABORTING},
    _P.ABORTING: {_P.ABORTED},
    _P.COMMITTED: set(),
    _P.ABORTED: set(),
}
# An abort does not count: whatever becomes of it, no offset is committed.
ENDING = (_P.SENDING_OFFSETS, _P.COMMITTING)
OVER = (_P.COMMITTED, _P.ABORTED)


class SessionTransaction(Generic[KT, VT, KeySent, ValueSent]):
    """One transaction of a session: `async with transaction as records`.

    The end of the block commits what was sent in it and the positions after `records` together. If
    the block raises, everything is aborted, the consumer goes back to the first of `records`, and
    the exception is re-raised. The same happens without an exception when partitions of `records`
    are revoked meanwhile, after errors that a retry may mend, and when a loop over `records` ended
    before the last of them, such as by `break` or `return`: the session returns the records again
    if the partitions are still assigned to its consumer. `records.clear()` says that the rest is
    not wanted: then everything is committed.

    Owns every field; the session and its listener call the methods.
    """

    def __init__(self, session: TransactionalSession) -> None:
        self._session = session
        self._phase = _P.TAKEN
        self.records = SessionRecords()
        """The records to process: those of each partition in order, one partition after the other.
        The list notices when a loop over it ends before the last record."""
        self.failure: KafkaError | None = None
        """The error that the consumer raised behind `records`."""
        self.first: dict[TopicPartition, int] = {}
        """By partition the offset to go back to, as long as the partition was not revoked."""
        self.next: dict[TopicPartition, int] = {}
        """By partition the offset to commit."""
        self.is_void = False
        """Whether partitions were revoked, so that it cannot be committed any more."""
        self._over = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SessionTransaction {self._phase.value}, {len(self.records)} records>"

    @property
    def is_committed(self) -> bool:
        """Whether it was committed. If not, after the block, its records are read again, by this
        consumer or by another one."""
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
        """Send a record as part of the transaction; everything else is as in `producer.send`.

        The futures need not be awaited: the end of the block does that. Raises CommitFailedError
        when partitions were revoked, so that there is no use in going on, IllegalStateError outside
        the block.
        """
        if self.is_void or self._phase is not _P.ACTIVE:
            raise self._refusal()
        producer = self._session.producer
        return producer.send(topic, value, key, partition, timestamp_ms, headers)

    def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> Awaitable[asyncio.Future[RecordMetadata]]:
        """Send a batch as part of the transaction; everything else is as in `producer.send_batch`.

        Raises what `send` raises.
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
        """Where it is."""
        return self._phase

    async def wait_over(self) -> None:
        """Wait until it is committed, or is to be aborted."""
        await self._over.wait()

    def take(self, batches: dict[TopicPartition, Records]) -> None:
        """Make these records part of it."""
        for tp, records in batches.items():
            if records:  # else an interceptor has left out all of them
                # Lower than what was taken before, if the topic was made again since.
                offset = records[0].offset
                self.first[tp] = min(self.first.get(tp, offset), offset)
                self.records.extend(records)

    def add_position(self, partition: TopicPartition, offset: int) -> None:
        """Commit `offset` of `partition` with it."""
        self.next[partition] = offset

    def keep_failure(self, error: KafkaError) -> None:
        """Keep an error of the consumer, to be raised when the records before it are committed."""
        self.failure = error

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Make it void if it has records of `partitions`, which were revoked: they are neither
        committed nor read again. Of those without any only the position is not committed.
        """
        for tp in partitions:
            if self.first.pop(tp, None) is not None:
                self.is_void = True
            else:
                self.next.pop(tp, None)

    def enter(self, phase: SessionPhase) -> None:
        """Enter the next phase. Raises IllegalStateError if there is no such step."""
        if phase not in _TRANSITIONS[self._phase]:
            raise IllegalStateError(f"a transaction that is {self._phase.value} cannot be used")
        self._phase = phase
        if phase in OVER or phase is _P.ABORTING:
            # A rebalance may be held up until now: see `TransactionalSession._commit`.
            self._over.set()
