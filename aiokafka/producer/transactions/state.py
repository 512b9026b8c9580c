"""The state of a transactional producer and of its transaction. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Set
from enum import Enum

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    FencedInstanceId,
    InvalidProducerEpoch,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    TransactionStateError,
    UnsupportedVersionError,
    renewed,
)
from aiokafka.producer.transactions.strays import Strays
from aiokafka.structs import TopicPartition

__all__ = ["Transaction", "TransactionState"]


class TransactionState(Enum):
    """What may be done next."""

    UNINITIALIZED = "not started"
    READY = "ready to begin"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    COMMITTED = "almost ready to begin"
    ABORTING = "aborting"
    ABORTABLE = "failed: only abort_transaction() is possible"
    FATAL = "failed for good"


_S = TransactionState

# What triggers the steps:
#   READY             InitProducerId has succeeded, or the coordinator has ended the transaction
#   IN_TRANSACTION    begin_transaction()
#   COMMITTING        commit_transaction()
#   COMMITTED         it is stored, but there was no time left to get ready for the next one
#   ABORTING          abort_transaction(), or stop()
#   ABORTABLE         records or offsets have failed, or the coordinator has aborted it
#   FATAL             the producer was fenced or may not go on: an error of _FATAL_ERRORS
_TRANSITIONS = {
    _S.UNINITIALIZED: {_S.READY, _S.FATAL},
    _S.READY: {_S.IN_TRANSACTION, _S.FATAL},
    _S.IN_TRANSACTION: {_S.COMMITTING, _S.ABORTING, _S.ABORTABLE, _S.FATAL},
    _S.COMMITTING: {_S.READY, _S.COMMITTED, _S.ABORTING, _S.ABORTABLE, _S.FATAL},
    _S.COMMITTED: {_S.READY, _S.FATAL},
    _S.ABORTABLE: {_S.ABORTING, _S.FATAL},
    _S.ABORTING: {_S.READY, _S.FATAL},
    _S.FATAL: set(),
}

# Programs for aiokafka match these words at the beginning of a message; the reason follows.
_NO_RECORDS = "Can't send messages while not in transaction"
_OPENINGS = {
    "send": _NO_RECORDS,
    "send_batch": _NO_RECORDS,
    "send_offsets_to_transaction": "Not in the middle of a transaction",
}

_FATAL_ERRORS = (
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailedError,
    UnsupportedVersionError,
)


class Transaction:
    """Owns the state, the error that caused it, and what the coordinator knows of the transaction.

    Others read the fields; each change is a method here.
    """

    def __init__(self, transactional_id: str, on_closed: Callable[[], None]) -> None:
        """Set the state to UNINITIALIZED. `on_closed()` is called when records are not accepted any
        longer.
        """
        self.transactional_id = transactional_id
        self.state = _S.UNINITIALIZED
        self.number = 0
        """Counts the transactions: work that outlives one must not touch the next."""
        self.error: BaseException | None = None
        self.doubt: BaseException | None = None
        """The error of a leader which may mean that the producer was fenced. Nothing is sent until
        the coordinator has been asked."""
        self.doubtful: TopicPartition | None = None
        """The partition that it leads."""
        self.is_version_2 = False
        """Whether brokers enter partitions themselves, and every end bumps the epoch (KIP-890)."""
        self.needs_new_epoch = False
        """Whether it is unknown which sequence numbers the brokers expect, so that the next
        transaction needs another epoch."""
        self.has_effects = False
        """Whether the coordinator may know of the transaction, so that it has to be ended there."""
        self.is_ending = False
        """Whether EndTxn with a commit may have been sent: nothing else is possible then."""
        self.is_ended = False
        """Whether EndTxn has succeeded: all that may be left is a new epoch."""
        self.partitions: set[TopicPartition] = set()
        """Partitions that the coordinator has added to the transaction."""
        self.wanted: set[TopicPartition] = set()
        """Partitions with records that wait to be added."""
        self.groups: set[str] = set()
        """Groups that the coordinator has added to the transaction."""
        self.strays = Strays()
        """Requests of it that may still be carried out when it is over."""
        self._on_closed = on_closed

    def begin(self, is_version_2: bool) -> None:
        """Start a transaction."""
        self._enter(_S.IN_TRANSACTION, "begin_transaction")
        self.number += 1
        self.is_version_2 = is_version_2

    def check_may_begin(self, *, is_committing: bool) -> None:
        """Raise unless a transaction can be begun now, or after the last one was finished.

        A commit that may have been sent can be finished, if it is not `is_committing` right now.
        """
        is_left = self.state is _S.COMMITTING and self.is_ending and not is_committing
        if not is_left and self.state not in (_S.READY, _S.COMMITTED, _S.ABORTING):
            raise self._refusal("begin_transaction")

    def begin_commit(self) -> None:
        """Start to commit, or go on with it after a timeout or a cancellation."""
        if self.state is not _S.COMMITTING:
            self._enter(_S.COMMITTING, "commit_transaction")
        self._on_closed()

    def begin_abort(self) -> None:
        """Start to abort, or go on with it after a timeout or a cancellation.

        Raises TransactionStateError when a commit may have been sent.
        """
        # Its outcome is open. An abort might tell the application the opposite of what readers see.
        if self.state is _S.COMMITTING and self.is_ending:
            raise self._refusal("abort_transaction")
        if self.state is not _S.ABORTING:
            self._enter(_S.ABORTING, "abort_transaction")
        self._on_closed()

    def end(self) -> None:
        """Finish the transaction, or the start of the producer: the next one can begin."""
        self._enter(_S.READY, "end")
        self.partitions.clear()
        self.wanted.clear()
        self.groups.clear()
        self.strays.take()
        self.error = self.doubt = None
        self.has_effects = self.is_ending = self.is_ended = self.needs_new_epoch = False

    # -- what the brokers know

    def note_effects(self) -> None:
        """Note that a request goes out by which the coordinator learns of the transaction."""
        self.has_effects = True

    def add_partitions(self, partitions: Set[TopicPartition]) -> None:
        """Note that the coordinator has added these partitions: their records may be sent."""
        self.wanted -= partitions
        self.partitions |= partitions

    def add_group(self, group_id: str) -> None:
        """Note that the coordinator has added this group: its offsets may be sent."""
        self.groups.add(group_id)

    def note_doubt(self, partition: TopicPartition, error: BaseException) -> None:
        """Send no more records until the coordinator has told what this error of the leader of
        `partition` means.
        """
        self.doubtful = partition
        self.doubt = error

    def require_new_epoch(self) -> None:
        """Require another epoch for the next transaction, under which sequences begin at 0."""
        self.needs_new_epoch = True

    def note_new_epoch(self) -> None:
        """Note that the coordinator has given another epoch."""
        self.needs_new_epoch = False

    def begin_end(self, is_commit: bool) -> None:
        """Note that EndTxn goes out. If it `is_commit`, an abort is not possible any more."""
        self.is_ending = is_commit

    def note_refusal(self) -> None:
        """Note that the coordinator has refused to commit: an abort is possible again."""
        self.is_ending = False

    def note_end(self) -> None:
        """Note that the coordinator has ended the transaction: EndTxn must not be sent again."""
        self.is_ended = True

    def note_commit(self) -> None:
        """Note that the commit is over for its caller, although the next one cannot begin yet."""
        if self.state is not _S.FATAL:
            self._enter(_S.COMMITTED, "commit_transaction")

    @property
    def takes_records(self) -> bool:
        """Whether records that were given to the producer may still become part of it."""
        return self.state in (_S.IN_TRANSACTION, _S.COMMITTING)

    @property
    def is_undecided(self) -> bool:
        """Whether it is open, and an abort is still possible."""
        if self.state is _S.COMMITTING:
            return not self.is_ending
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE, _S.ABORTING)

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` may be sent now.

        If only the coordinator has to add it first, the partition is in `wanted` afterwards.
        """
        if not self.takes_records or self.doubt is not None:
            return False
        if self.is_version_2:
            self.has_effects = True
        elif partition not in self.partitions:
            # The sender asks the coordinator for all of these at once.
            self.wanted.add(partition)
            return False
        return True

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` wait for the coordinator."""
        return self.doubt is not None or partition in self.wanted

    def fail(self, error: BaseException) -> None:
        """Note that a part has failed: only an abort is possible.

        Nothing is after a fatal error, nor while a commit may have been sent, which an abort could
        not take back.
        """
        if isinstance(error, _FATAL_ERRORS) or self.is_ending:
            self.fail_for_good(error)
        elif self.takes_records:
            if isinstance(error, KafkaTimeoutError):
                # After others of that class a commit is to be repeated.
                vars(error)["requires_abort"] = True
            if isinstance(error, FencedInstanceId):
                # The consumer whose offsets were sent is at its end, but not this producer.
                vars(error)["is_fatal"] = False
            self._enter(_S.ABORTABLE, "fail")
            self.error = error
            # A leader knows a later epoch than ours: only another one leads on.
            self.needs_new_epoch |= isinstance(error, InvalidProducerEpoch)
            self._on_closed()

    def fail_late(self, error: BaseException) -> None:
        """Note that its coordinator has aborted it and given another epoch already: the abort has
        nothing left to send. Its markers were of a later epoch, so what strays is refused.
        """
        self.is_ending = False
        self.fail(error)
        self.strays.take()
        self.has_effects = self.needs_new_epoch = False

    def fail_for_good(self, error: BaseException) -> None:
        """Note that the producer cannot go on: every call raises `error` from now on."""
        if self.state is not _S.FATAL:
            # Whatever errors of its class say: programs go by this, and would abort without end.
            vars(error).update(is_fatal=True, requires_abort=False)
            self._enter(_S.FATAL, "fail")
            self.error = error
            self._on_closed()

    def check(self, call: str) -> None:
        """Raise unless records and offsets may be added by `call` now."""
        if self.state is not _S.IN_TRANSACTION:
            raise self._refusal(call)

    def raise_failure(self) -> None:
        """Raise the error of a transaction that has failed, if it has."""
        if self.state in (_S.ABORTABLE, _S.FATAL) and self.error is not None:
            raise renewed(self.error) from self.error

    def _enter(self, state: TransactionState, call: str) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise self._refusal(call)
        self.state = state

    def _refusal(self, call: str) -> BaseException:
        if self.state is _S.FATAL and self.error is not None:
            refusal = renewed(self.error)
            refusal.__cause__ = self.error
            return refusal
        opening = _OPENINGS.get(call, call)
        text = f"{opening}: the producer is {self.state.value}"
        if self.state is _S.ABORTABLE:
            refusal = TransactionStateError(f"{text}, because of: {self.error}")
            refusal.__cause__ = self.error
            return refusal
        if self.state in (_S.READY, _S.COMMITTED):
            text = (
                f"{opening}: no transaction is open, the producer is {self.state.value} one: use "
                "`async with producer.transaction()`, or call begin_transaction() first"
            )
        elif self.state is _S.COMMITTING:
            text += "; if that call ended with an error, call commit_transaction() again"
        return TransactionStateError(text)
