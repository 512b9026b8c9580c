"""The state of a transaction, with its pending and unanswered requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from enum import Enum

from aiokafka._tasks import TaskOwner
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    FencedInstanceId,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProducerClosed,
    ProducerFenced,
    RequestTimedOutError,
    TransactionalIdAuthorizationFailed,
    TransactionStateError,
    UnsupportedVersionError,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.structs import TopicPartition

__all__ = ["UNANSWERED", "Errand", "Errands", "Strays", "Transaction", "TransactionState"]


# -- Know which requests of a transaction got no response, and may be carried out after its end


# A session that cannot be renewed ends its connection with what was in flight.
UNANSWERED = (
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
    *REFUSALS,
    asyncio.TimeoutError,
    asyncio.CancelledError,
)


class Strays:
    """Owns what brokers may still be asked by requests of the transaction that got no response.

    One that was sent again counts as well, whatever became of the repetition.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        """Where records may still be written."""
        self.groups: set[str] = set()
        """Whose offsets may still be stored."""
        self.of_coordinator = False
        """Whether the transaction may still be changed or ended at its coordinator."""
        self.of_commit = False
        """Whether a request to commit it got no response that says what became of it: it may be
        committed, whatever a later request is told."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.groups or self.of_coordinator)

    def note_records(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a Produce request with records of these partitions got no response."""
        self.partitions.update(partitions)

    @contextmanager
    def watch_offsets(self, group_id: str) -> Iterator[None]:
        """Guard a request that stores offsets of a group."""
        try:
            yield
        except UNANSWERED:
            self.groups.add(group_id)
            raise

    @contextmanager
    def watch_coordinator(self) -> Iterator[None]:
        """Guard a request that changes or ends the transaction at its coordinator."""
        try:
            yield
        except UNANSWERED:
            self.of_coordinator = True
            raise

    @contextmanager
    def watch_commit(self) -> Iterator[None]:
        """Guard a request that commits the transaction."""
        try:
            with self.watch_coordinator():
                yield
        except BaseException:
            self.of_commit = True
            raise

    def note_end(self, is_commit: bool) -> None:
        """Note that a request to end the transaction may have been stored by a coordinator that was
        not able to say so."""
        self.of_commit |= is_commit

    def forget_records(self) -> None:
        """Drop the partitions: every record of the transaction was acknowledged, so leaders know
        what comes once more by its sequence number."""
        self.partitions.clear()

    def take(self) -> Strays:
        """Return what was noted, and begin again with nothing."""
        taken = Strays()
        taken.partitions, self.partitions = self.partitions, set()
        taken.groups, self.groups = self.groups, set()
        taken.of_coordinator, self.of_coordinator = self.of_coordinator, False
        taken.of_commit, self.of_commit = self.of_commit, False
        return taken


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


# -- Requests that belong to one transaction, and that its end waits for


# What they mean is found out by the errand, or by the end of the transaction if it was recalled.
_LEFT_TO_THE_END = (ProducerFenced, InvalidTxnState)


class _RecalledError(Exception):
    """The errand was recalled, so its next request is not wanted."""


class Errand:
    """A dialogue with a coordinator: requests, pauses and look-ups until the work is done.

    Between two requests it can be recalled at any time. A request is always waited for.
    """

    def __init__(self, name: str, transaction: Transaction) -> None:
        self.name = name
        self.number = transaction.number
        self.task: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self.is_on_wire = False
        """Whether a request was sent that has not been answered."""
        self.is_recalled = False
        self.is_left = False
        """Whether its caller waits for it no longer."""
        self.must_finish = False
        """Whether it is not to be recalled any more."""
        self._transaction = transaction
        self._has_begun = False

    @contextmanager
    def on_wire(self) -> Iterator[None]:
        """Guard a request: the errand waits for it even if it is recalled, and the coordinator may
        know of the transaction from now on."""
        if self.is_recalled:
            raise _RecalledError
        self._transaction.note_effects()
        self.is_on_wire = True
        try:
            yield
        finally:
            self.is_on_wire = False
            self._look_after_answer()

    def _look_after_answer(self) -> None:
        if self.is_recalled:
            # Not at once: the response is to be read first.
            asyncio.get_running_loop().call_soon(self.recall)

    def recall(self) -> None:
        """End it as soon as no request is waited for."""
        if not self.must_finish:
            self.is_recalled = True
            if not self.is_on_wire:
                self._cancel()

    def drop(self) -> None:
        """End it now, whatever becomes of its request."""
        if not self.must_finish:
            self.is_recalled = True
            self._cancel()

    def _cancel(self) -> None:
        # A task that is cancelled before its first step does not even run to catch it.
        if self._has_begun and self.task is not None and not self.task.done():
            self.task.cancel()

    async def carry_out(self, work: Callable[[Errand], Awaitable[None]]) -> None:
        """Do `work`, and keep in `error` what it raises."""
        self._has_begun = True
        try:
            if not self.is_recalled:
                await work(self)
        except asyncio.CancelledError:
            # This is the root of a task. If it was not recalled, the producer is being closed.
            if not self.is_recalled:
                raise
        except _RecalledError:
            pass
        except Exception as error:
            self.error = error


class Errands:
    """Carries out errands, each in a task of its own. Owns those that are under way.

    Why a caller does not send these requests in its own task:

    1. A caller sends TxnOffsetCommit, or AddPartitionsToTxn, and is cancelled.
    2. The transaction is aborted. EndTxn goes to another broker and is answered at once.
    3. The next transaction begins, before Kafka 4.0 under the same epoch.
    4. Only now the first broker acts on the request of step 1: the offsets of the aborted
       transaction become part of the next one, and are committed with it.

    So the response of step 1 has to be awaited before step 2, by a task that a cancelled caller
    leaves behind. If none comes, `Fencing.shut_out` takes care of the request. In transactions of
    version 2 (KIP-890) every transaction has its own epoch: the late request is refused, so an
    abort need not wait for it.
    """

    def __init__(self, transaction: Transaction, owner: TaskOwner) -> None:
        self._transaction = transaction
        self._owner = owner
        self._running: dict[Errand, None] = {}

    async def run(
        self, name: str, work: Callable[[Errand], Awaitable[None]], deadline: float
    ) -> None:
        """Do `work` in a task; it ends by `deadline` (loop time) unless it waits for a response.

        Errands of one name are done one after the other. Raises what `work` raises,
        KafkaTimeoutError at the deadline, TransactionStateError if the transaction was ended
        meanwhile. Cancelled, it leaves the errand to the end of the transaction: a commit waits for
        it, and fails if it does, an abort recalls it.
        """
        # From here on it is under way: a commit waits for those that wait for their turn as well.
        before = [one for one in self._running if one.name == name]

        async def in_turn(errand: Errand) -> None:
            for other in before:
                await self._wait_for(other, deadline, f"{name}: not in time: waits for its turn")
            self._transaction.raise_failure()
            await work(errand)

        errand = Errand(name, self._transaction)
        errand.task = self._owner.start(self._carry_out(errand, in_turn), name=name)
        self._running[errand] = None
        try:
            await self._result(errand, deadline)
        except KafkaError:
            errand.recall()
            raise
        finally:
            errand.is_left = True

    async def _carry_out(self, errand: Errand, work: Callable[[Errand], Awaitable[None]]) -> None:
        try:
            await errand.carry_out(work)
        finally:
            self._running.pop(errand, None)
            self._judge(errand)

    def _judge(self, errand: Errand) -> None:
        """Apply to the transaction what an errand that is over means for it.

        Not left to the caller, which may be cancelled, and learns of it some turns of the loop
        later: a commit that waits for nothing else would send EndTxn in between, without what the
        errand was to add.
        """
        transaction = self._transaction
        # It was left behind by a transaction that has ended since.
        if errand.number != transaction.number:
            return
        error = errand.error
        # A wrong argument is its caller's affair, if it has one: nothing was sent.
        if not errand.is_left and not isinstance(error, KafkaError):
            return
        if error is not None and not isinstance(error, _LEFT_TO_THE_END):
            transaction.fail(error)

    async def _wait_for(self, errand: Errand, deadline: float | None, text: str) -> None:
        """Wait until `errand` is over. Raises KafkaTimeoutError at `deadline` (loop time)."""
        assert errand.task is not None
        limit = None
        if deadline is not None:
            limit = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait([errand.task], timeout=limit)
        if not errand.task.done():
            raise KafkaTimeoutError(text)
        self._running.pop(errand, None)

    async def _result(self, errand: Errand, deadline: float) -> None:
        text = f"{errand.name}: the broker has not answered in time"
        try:
            await self._wait_for(errand, deadline, text)
        except KafkaTimeoutError:
            if errand.is_on_wire:
                raise
            # It ends at the same time without help, and its error says what it waited for.
            await self._wait_for(errand, None, text)
        assert errand.task is not None
        if errand.error is not None:
            raise errand.error
        if errand.task.cancelled():
            raise ProducerClosed("the producer was stopped")
        if errand.is_recalled:
            raise _ended(errand.name)

    async def finish(self, deadline: float) -> None:
        """Wait until all are done. Raises KafkaTimeoutError at `deadline` (loop time)."""
        while self._running:
            errand = next(iter(self._running))
            await self._wait_for(errand, deadline, f"not in time: {errand.name} is under way")

    async def recall(self, deadline: float) -> None:
        """Recall all, and wait until none of them can add anything to the transaction.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        for errand in tuple(self._running):
            if self._transaction.is_version_2:
                # Its request is of an epoch that ends with the transaction (KIP-890).
                errand.drop()
            else:
                errand.recall()
        await self.finish(deadline)


def _ended(name: str) -> TransactionStateError:
    return TransactionStateError(f"{name}: the transaction was ended in the meantime")
