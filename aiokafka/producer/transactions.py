"""The transactions of a producer: begin, commit, abort, and add partitions and offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout_at
from aiokafka._group_members import readers
from aiokafka.errors import (
    BrokerResponseError,
    IllegalGenerationError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    ProducerFenced,
    StaleMemberEpoch,
    TransactionAbortable,
    TransactionStateError,
    renewed,
)
from aiokafka.producer.sender import ProducerIdentity
from aiokafka.producer.transaction_manager import (
    ProducerIdState,
    Transaction,
    TransactionState,
)
from aiokafka.producer.transaction_requests import (
    MemberOffsets,
    Offsets,
    PendingTxnRequest,
    PendingTxnRequests,
    RemainingPartitions,
    TransactionRequests,
    as_group,
    as_offsets,
    offsets_by_member,
    with_epochs,
)

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.sender import Sender

__all__ = ["Fencing", "ProducerTransactions"]


# -- Epochs


_PAST = (ProducerFenced, InvalidTxnState)
"""Errors of requests with an outdated epoch, or for a transaction that the coordinator has
ended."""


class Fencing:
    """Gets new epochs, makes brokers refuse requests with earlier epochs, and finds out why this
    producer was fenced.

    Owns: the time at which the transaction began, and the partitions and groups whose brokers do
    not know the new epoch yet.
    """

    def __init__(
        self, config: ProducerConfig, requests: TransactionRequests, id_state: ProducerIdState
    ) -> None:
        self._config = config
        self._requests = requests
        self._id_state = id_state
        self._loop = asyncio.get_running_loop()
        self._begun = 0.0
        self._partitions: RemainingPartitions | None = None
        """Partitions of the empty transaction of `fence_unanswered`; None without one."""
        self._groups: set[str] = set()
        """Groups of the empty transaction of `fence_unanswered`."""

    def begin(self) -> None:
        """Record the time at which a transaction begins, from which its timeout counts."""
        self._begun = self._loop.time()

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and the current epoch."""
        return ProducerIdentity(self._id_state.producer_id, self._id_state.producer_epoch)

    async def renew(self, deadline: float) -> None:
        """Get a new epoch, so that sequence numbers restart at 0 (KIP-360).

        After a KafkaTimeoutError `renew` can be called again; any other KafkaError fails the
        producer for good.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        if not self._requests.may_have_epoch:
            given = await self._check_owner(deadline)
            if given is not None and given != self.identity:
                self._id_state.set_producer_id(*given)
                return
        try:
            identity = await self._requests.init(
                self._config.transaction_timeout, self.identity, deadline
            )
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            transaction.fail_for_good(error)
            raise
        self._id_state.set_producer_id(*identity)

    async def fence_unanswered(self, deadline: float) -> None:
        """Make brokers refuse requests of the ended transaction that got no response (version 1,
        without KIP-890). What could happen if brokers accepted these requests:

        1. A request of the transaction gets no response. The transaction ends, with markers that
           have the same epoch.
        2. The broker processes the request late. The epoch of the request is the last epoch that
           the broker knows. So a leader writes the records, and a group coordinator stores the
           offsets, and may overwrite later ones.
        3. These records and offsets belong to the next transaction under this transactional id, of
           this producer or of another producer, and are committed with it. If the request was
           EndTxn, it ends the next transaction early.

        So this method does the following:

        1. The producer gets another epoch. The coordinator knows the new epoch, and refuses the
           late EndTxn.
        2. The producer aborts an empty transaction with these partitions and groups. The markers
           show the new epoch to the other brokers, and abort the records and offsets that have
           arrived before; brokers refuse later ones. (But group coordinators before Kafka 2.4
           accept offsets of any epoch.)

        After a KafkaTimeoutError the method can be called again, and continues where it stopped. It
        does not call `renew` a second time: while the empty transaction is open, that would fence
        this producer. Any other KafkaError fails the producer for good.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        if transaction.unanswered and self._partitions is None:
            await self.renew(deadline)
            transaction.note_new_epoch()
            unanswered = transaction.unanswered
            if unanswered.partitions or unanswered.groups:
                self._partitions = RemainingPartitions(unanswered.partitions)
                self._groups = set(unanswered.groups)
            unanswered.clear()
        if self._partitions is not None:
            try:
                await self._abort_empty(self._partitions, deadline)
            except KafkaTimeoutError:
                raise
            except KafkaError as error:
                transaction.fail_for_good(error)
                raise
            self._partitions = None
        if transaction.unanswered:
            # A request of the empty transaction (AddPartitionsToTxn, AddOffsetsToTxn or EndTxn) got
            # no response. Only the coordinator can still process it, so another epoch suffices to
            # fence it.
            transaction.require_new_epoch()

    async def _check_owner(self, deadline: float) -> ProducerIdentity | None:
        """Raise ProducerFenced if another producer has the transactional id now.

        InitProducerId would harm that producer even if it is refused: a coordinator aborts the open
        transaction and fences its owner before it checks the sender. (Before Kafka 2.5 the request
        is not even refused.) So send an abort first, which has no effect on other producers, and
        whose response shows whether the epoch of this producer is outdated. `renew` skips this
        check if the coordinator may already have allocated the next epoch to this producer
        (`may_have_epoch`).

        Returns the identity for the next transaction, with a new epoch in version 2, where every
        abort increments the epoch. Returns None if the response has no identity, or if the
        coordinator has no transaction to abort or no longer knows the transactional id.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        try:
            return await self._requests.end(
                self.identity, False, transaction.is_version_2, deadline
            )
        except InvalidTxnState:
            return None  # the coordinator has no transaction to abort
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            # A coordinator forgets a transactional id that was not used for days. Then
            # InitProducerId can allocate a new producer id. If the transactional id has another
            # producer id instead, InitProducerId is refused without harm.
            is_forgotten = isinstance(error, InvalidProducerIdMapping)
            if is_forgotten and await self._requests.can_renew(deadline):
                return None
            transaction.fail_for_good(error)
            raise

    async def _abort_empty(self, partitions: RemainingPartitions, deadline: float) -> None:
        """Add `partitions` and the groups in `_groups` to a transaction without records, and abort
        it.

        Removes the added partitions and groups from these collections, so that the next call
        continues with the rest of them: `max_block_ms` may be too short for all in one call.
        """
        await self._requests.add_remaining(self.identity, partitions, deadline)
        for group_id in sorted(self._groups):
            try:
                await self._requests.add_group(self.identity, group_id, deadline)
            except BrokerResponseError as error:
                if isinstance(error, _PAST):
                    raise
            self._groups.discard(group_id)
        try:
            await self._requests.end(self.identity, False, False, deadline)
        except InvalidTxnState:
            pass  # the coordinator has added no partition and no group

    async def explain(self, past: BaseException, deadline: float) -> BaseException:
        """Find out why a broker refused a request with the error `past`, fail the transaction, and
        return the error to raise.

        Brokers respond with the same error in two cases, of which only the first is fatal:

        1. Another producer with the transactional id has started. The coordinator has allocated the
           next epoch to that producer, and refuses the epoch of this producer for ever.
        2. The transaction exceeded `transaction_timeout_ms`. The coordinator has aborted it with
           the next epoch, and allocates that epoch only to the previous owner (KIP-588, KIP-360).

        So `renew` requests another epoch, with the present epoch in the request. In the first case
        the coordinator refuses the request. Brokers before KIP-360 cannot distinguish the cases, so
        with these brokers both cases are fatal.

        If the result is a KafkaTimeoutError, the cause is unknown, the transaction has not failed,
        and the call can be repeated.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        # An earlier call of this method, for another refused request, may have found the cause.
        if transaction.error is not None:
            return renewed(transaction.error)
        try:
            if not await self._requests.can_renew(deadline):
                if isinstance(past, InvalidProducerEpoch):
                    past = ProducerFenced()
                transaction.fail_for_good(past)
                return renewed(past)
            await self.renew(deadline)
        except KafkaTimeoutError as error:
            return error
        except KafkaError as error:
            transaction.fail_for_good(error)
            return renewed(error)
        late = TransactionAbortable(self._reason())
        transaction.fail_late(late)
        return renewed(late)

    def _reason(self) -> str:
        limit = self._config.transaction_timeout
        if self._loop.time() - self._begun < limit:
            return "the transaction was ended by its coordinator or an administrator"
        return (
            f"the transaction took longer than transaction_timeout_ms={limit * 1000:g}, so its "
            "coordinator has aborted it"
        )


# -- The transactions


_OLD_GENERATION = (IllegalGenerationError, StaleMemberEpoch)

_COMMIT = "commit_transaction"
_ABORT = "abort_transaction"
_COMMITTED = (
    "the transaction cannot be aborted: it was committed by a request that got no response; "
    "another one was refused with: {}"
)


class _Ending:
    """A commit or an abort in progress. `call`: the name of the method; `over`: an event that is
    set when the call ends; `has_succeeded`: whether the call has ended without an error.

    As a context manager, sets `over` at the end of the block.
    """

    def __init__(self, call: str, transactions: ProducerTransactions) -> None:
        self.call = call
        self.over = asyncio.Event()
        self.has_succeeded = False
        self._transactions = transactions

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._transactions.on_end(self)


class ProducerTransactions:
    """Begins, commits and aborts transactions, and adds partitions and offsets to them.

    `max_block_ms` limits every call. A commit or abort that timed out or was cancelled continues
    when the call is repeated. `begin` repeats an abort, and a commit whose EndTxn may have been
    sent. After a commit whose EndTxn was not sent, `begin` raises TransactionStateError: the
    application has to decide between commit and abort. Only one call at a time ends a transaction:
    a second commit waits for the first commit and shares its result, an abort during a commit
    raises TransactionStateError, and vice versa.

    Owns: the commit or abort in progress, and the number of the last transaction for which `begin`
    has raised the error of a failed commit.
    """

    def __init__(
        self, client: AIOKafkaClient, config: ProducerConfig, sender: Sender, transactional_id: str
    ) -> None:
        self.transaction = Transaction(transactional_id, self._stop_accepting)
        self.id_state = ProducerIdState(self.transaction)
        self._client = client
        self._config = config
        self._sender = sender
        unanswered = self.transaction.unanswered
        self._requests = TransactionRequests(client, transactional_id, unanswered)
        self._fencing = Fencing(config, self._requests, self.id_state)
        self._pending = PendingTxnRequests(self.transaction, sender.owner)
        self._loop = asyncio.get_running_loop()
        self._ending: _Ending | None = None
        self._raised_for = 0
        """The number of the last transaction whose failed commit led to an error of `begin`."""
        self._is_closed = False

    def _stop_accepting(self) -> None:
        self._sender.accumulator.accept(False)
        if self.transaction.error is not None:
            # Drop the batches in a callback, because the caller is completing batches now.
            self._loop.call_soon(self._drop_waiting)

    def _drop_waiting(self) -> None:
        """Fail the waiting batches of a failed transaction."""
        error = self.transaction.error
        if error is not None and not self.transaction.accepts_records:
            self._sender.drop_waiting(error)

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    async def start(self, deadline: float) -> None:
        """Get a producer id and an epoch for the transactional id, and fence its previous owner.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        identity = await self._requests.init(self._config.transaction_timeout, None, deadline)
        self.id_state.set_producer_id(*identity)
        self.transaction.end()

    async def begin(self) -> None:
        """Begin a transaction; first finish an abort or a commit that timed out or was cancelled.
        Raises the errors of `_finish_former()`, ProducerClosed, and the error of a failed producer.

        The first transaction of version 2 needs a new epoch (KAFKA-18227). With the old epoch:

        1. The last transaction was of version 1, so its end did not change the epoch. Its markers
           are not written yet. Now the cluster switches to version 2.
        2. A record with the same epoch arrives. For the leader the last transaction is still open,
           so it sends the coordinator no request to add the partition. (In version 1 this client
           sends AddPartitionsToTxn, and the coordinator refuses it until the markers are written.)
        3. The record becomes part of the last transaction, and is committed or aborted with it.
        """
        transaction = self.transaction
        await self._finish_former()
        is_version_2 = await self._requests.is_version_2(self._deadline())
        if is_version_2 and transaction.number and not transaction.is_version_2:
            await self._fencing.renew(self._deadline())
        # The producer may have been stopped, or have failed, during the requests above.
        if self._is_closed:
            raise ProducerClosed("the producer was stopped; make a new one")
        self._sender.owner.check()
        transaction.raise_failure()
        transaction.begin(is_version_2)
        self._fencing.begin()
        # This is the last step: from now on `send` accepts records for the new transaction.
        self._sender.accumulator.accept(True)

    async def _finish_former(self) -> None:
        """Finish the last transaction, if its abort or commit timed out or was cancelled.

        After an `async with` block, only `begin` can continue the commit of that block:

        1. If the commit succeeds, the next transaction can begin.
        2. If its outcome stays unknown, raise KafkaTimeoutError; the next `begin` tries again.
        3. If the commit is refused, raise the error and begin no transaction: the application has
           to know that its records are not committed. The next `begin` or `abort` aborts the
           transaction.
        """
        transaction = self.transaction
        if self._is_committing:
            # If the commit of the other task was just cancelled, it ends in this iteration of the
            # event loop.
            await asyncio.sleep(0)
        if (
            transaction.state is TransactionState.ABORTABLE
            and self._raised_for == transaction.number
        ):
            await self.abort()
        transaction.raise_failure()
        transaction.check_may_begin(is_committing=self._is_committing)
        if transaction.state is TransactionState.COMMITTING:
            try:
                await self.commit()
            except KafkaError:
                if transaction.error is not None:
                    self._raised_for = transaction.number
                raise
        if transaction.state is TransactionState.ABORTING:
            await self.abort()
        elif transaction.state is TransactionState.COMMITTED:
            await self._finish_commit()

    @property
    def _is_committing(self) -> bool:
        """Whether another task is committing now."""
        return self._ending is not None and self._ending.call == _COMMIT

    async def commit(self, deadline: float | None = None) -> None:
        """Deliver all records of the transaction, then commit it. Raises KafkaTimeoutError at
        `deadline` (loop time), by default after `max_block_ms`."""
        deadline = deadline or self._deadline()
        self.transaction.raise_failure()
        ending = await self._begin_end(_COMMIT, deadline)
        if ending.has_succeeded:
            return
        with ending:
            self.transaction.raise_failure()
            # This order makes the commit atomic:
            # 1. Accept no more records, so that the flush delivers all records of the transaction.
            # 2. Flush: every batch is written, or fails and thereby fails the transaction.
            # 3. Wait for the requests that add offsets and partitions: no such request may arrive
            #    after EndTxn.
            # 4. Raise any failure of steps 2 and 3: EndTxn would commit only a part of the records
            #    and offsets.
            # 5. Send EndTxn.
            self.transaction.begin_commit()
            await self._sender.accumulator.flush(deadline)
            await self._pending.wait_for_all(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=True, deadline=deadline)
            ending.has_succeeded = True

    async def abort(self, deadline: float | None = None) -> None:
        """Drop the waiting records, then abort the transaction. Raises KafkaTimeoutError at
        `deadline` (loop time), by default after `max_block_ms`."""
        deadline = deadline or self._deadline()
        ending = await self._begin_end(_ABORT, deadline)
        if ending.has_succeeded:
            return
        with ending:
            self.transaction.begin_abort()
            # Wait for in-flight batches, so that the futures of all records have results when the
            # call returns.
            self._sender.drop_waiting(KafkaError("not sent: the transaction was aborted"))
            await self._sender.accumulator.flush(deadline)
            if not self.transaction.is_version_2:
                # Wait also for requests whose batches have exceeded `delivery_timeout_ms`: if a
                # leader wrote them after the abort marker, they would become part of the next
                # transaction. (In version 2 leaders refuse these batches after the end of the
                # transaction, because their epoch is outdated.)
                await self._sender.wait_for_responses(deadline)
            await self._pending.cancel_all(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=False, deadline=deadline)
            ending.has_succeeded = True

    async def close(self, deadline: float | None) -> None:
        """End an open transaction: finish a commit whose EndTxn may have been sent, abort any other
        transaction.

        First waits for a commit or an abort in another task. `deadline` (loop time) limits the
        call; None: the longer one of `max_block_ms` and `transaction_timeout_ms`, after which the
        coordinator itself aborts the transaction.
        """
        self._is_closed = True
        if deadline is None:
            limit = max(self._config.max_block, self._config.transaction_timeout)
            deadline = self._loop.time() + limit
        # A second commit or abort could contradict the call in progress, which has its own
        # deadline.
        while self._ending is not None:
            await self._ending.over.wait()
        if self.transaction.is_undecided:
            await self.abort(deadline)
        elif self.transaction.state is TransactionState.COMMITTING:
            await self.commit(deadline)
        elif self.transaction.state is TransactionState.COMMITTED:
            await self._finish_commit()

    async def _begin_end(self, call: str, deadline: float) -> _Ending:
        """Prevent other tasks from ending the transaction, until the end of the `with` block of the
        returned _Ending.

        If another task runs the same `call`, wait for that task. If that task succeeds, return its
        _Ending, which has `has_succeeded` set: then the caller has nothing to do.

        Raises TransactionStateError if another task runs the opposite call (an abort instead of a
        commit, or vice versa), or has ended the transaction meanwhile; KafkaTimeoutError at
        `deadline` (loop time).
        """
        number = self.transaction.number
        if self._is_in_other_call(call):
            # If the call of the other task was just cancelled, it ends in this iteration of the
            # event loop.
            await asyncio.sleep(0)
        while (other := self._ending) is not None:
            if other.call != call:
                raise TransactionStateError(
                    f"{call}: the producer is {self.transaction.state.value}: {other.call} is "
                    "in progress in another task"
                )
            await _wait(
                other.over, deadline, f"{call}: timed out: another task is still executing it"
            )
            if other.has_succeeded:
                return other
        if self.transaction.number != number:
            raise TransactionStateError(f"{call}: another task has ended the transaction")
        ending = self._ending = _Ending(call, self)
        return ending

    def on_end(self, ending: _Ending) -> None:
        """Allow other tasks to end a transaction: the `with` block of `ending` is over."""
        if self._ending is ending:
            self._ending = None

    def _is_in_other_call(self, call: str) -> bool:
        return self._ending is not None and self._ending.call != call

    async def _end(self, *, is_commit: bool, deadline: float) -> None:
        """End the transaction at its coordinator, and prepare the next transaction.

        The call can be cancelled or time out at every step. The flags of the `Transaction` show
        where a repeated call continues:

        1. If no request was sent to the coordinator (`has_effects` is not set), EndTxn is not
           needed.
        2. EndTxn is sent. `is_ending` is set before, so that an abort is refused after a commit
           with an unknown outcome: consumers may have read the records.
        3. If the response is lost, the repeated call sends EndTxn again, with the same epoch. The
           coordinator recognizes the retry, and sends the same response.
        4. The response arrives, and `is_ended` is set. EndTxn must not be sent again: a coordinator
           that is ready for the next transaction would respond with INVALID_TXN_STATE, which is
           fatal.
        5. The next transaction may need another epoch. In version 1 the epoch stays the same unless
           batches have failed (`needs_new_epoch`): then leaders may expect other sequence numbers
           than this producer has, and InitProducerId returns a new epoch. In version 2 (KIP-890)
           each response to EndTxn has the next epoch, whose sequences begin at 0; if the response
           lacks the epoch, InitProducerId returns it.
        6. In version 1, `Fencing.fence_unanswered` prevents requests without a response from
           becoming part of the next transaction.
        7. `Transaction.end` clears all flags.

        A commit has succeeded after step 4. If a later step times out, the call returns without an
        error, and the next `begin` continues with the remaining steps.
        """
        transaction = self.transaction
        if transaction.has_effects and not transaction.is_ended:
            await self._send_end(is_commit, deadline)
        if is_commit:
            transaction.unanswered.forget_records()
        try:
            await self._make_ready(deadline)
        except KafkaError:
            if not is_commit:
                raise
            # The commit has succeeded, so raise nothing. If the producer has failed for good, or
            # cannot finish the remaining steps, the next call raises an error.
            transaction.note_commit()

    async def _make_ready(self, deadline: float) -> None:
        """Prepare the next transaction (steps 5 to 7 of `_end`)."""
        transaction = self.transaction
        if not transaction.is_version_2:
            await self._fencing.fence_unanswered(deadline)
        if transaction.needs_new_epoch:
            await self._fencing.renew(deadline)
        transaction.end()

    async def _finish_commit(self) -> None:
        """Prepare the next transaction if the last commit has succeeded, but timed out or was
        cancelled during this preparation."""
        deadline = self._deadline()
        ending = await self._begin_end(_COMMIT, deadline)
        with ending:
            if self.transaction.state is TransactionState.COMMITTED:
                await self._make_ready(deadline)
            ending.has_succeeded = True

    async def _send_end(self, is_commit: bool, deadline: float) -> None:
        """Send EndTxn (steps 2 to 4 of `_end`)."""
        transaction = self.transaction
        before = self._fencing.identity
        identity: ProducerIdentity | None = before
        # Set `is_ending` before the request, which may be cancelled at any time: an abort could
        # contradict a commit that was sent.
        transaction.begin_end(is_commit)
        try:
            identity = await self._requests.end(
                before, is_commit, transaction.is_version_2, deadline
            )
        except _PAST as error:
            if is_commit:
                raise await self._fencing.explain(error, deadline) from error
            await self._abort_unknown(error, deadline)
        # The outcome is unknown: keep the state, so that the call can be repeated.
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            if is_commit:
                await self._fail_commit(error, deadline)
            else:
                transaction.fail_for_good(error)
            raise
        self._note_end(before, identity)

    async def _fail_commit(self, error: KafkaError, deadline: float) -> None:
        """Fail the transaction after its commit was refused with `error`, so that an abort is
        possible. Raise instead if an earlier EndTxn may have committed the transaction:

        1. The coordinator processes EndTxn, and its response is lost.
        2. EndTxn is sent again, and refused for an unrelated reason.
        3. The application aborts and repeats its work: every record is committed twice.

        So if the outcome of an EndTxn is unknown, send an abort to the coordinator:

        - The coordinator aborts only if it has not committed, and then refuses any later commit.
        - If it refuses the abort, or responds with another error, the producer has failed for good.
        - If there is no response, raise KafkaTimeoutError: the response to a repeated commit will
          show the outcome.
        """
        transaction = self.transaction
        if transaction.unanswered.of_commit:
            before = self._fencing.identity
            try:
                identity = await self._requests.end(
                    before, False, transaction.is_version_2, deadline
                )
            except KafkaTimeoutError:
                raise
            except ProducerFenced as refusal:
                raise await self._fencing.explain(refusal, deadline) from refusal
            except KafkaError as refusal:
                if isinstance(refusal, InvalidTxnState):
                    refusal = InvalidTxnState(_COMMITTED.format(error))
                transaction.fail_for_good(refusal)
                raise refusal from error
            self._note_end(before, identity)
        transaction.note_refusal()
        transaction.fail(error)

    def _note_end(self, before: ProducerIdentity, identity: ProducerIdentity | None) -> None:
        """Record that EndTxn, sent with the identity `before`, has succeeded. `identity` is the
        identity for the next transaction; None if a new epoch has to be requested."""
        transaction = self.transaction
        transaction.note_end(self._loop.time())
        if identity is None:
            transaction.require_new_epoch()
        elif identity != before:
            transaction.note_new_epoch()
            self.id_state.set_producer_id(*identity)

    async def _abort_unknown(self, error: KafkaError, deadline: float) -> None:
        """Decide whether a transaction counts as aborted although the coordinator refused the abort
        with `error`. If it does not count as aborted, fail the producer for good and raise `error`.
        """
        transaction = self.transaction
        can_renew = await self._requests.can_renew(deadline)
        if isinstance(error, ProducerFenced):
            # The epoch is outdated. Treat the transaction as aborted, because the next step is
            # `renew`, which is refused if another producer has the transactional id.
            counts_as_aborted = can_renew
        else:
            # The coordinator knows no open transaction. That is normal in version 1 if no partition
            # and no group was added: all such requests were cancelled or refused. (Brokers refuse a
            # late request, because its epoch is outdated.) In version 2 the abort of an empty
            # transaction succeeds, so this error means that an administrator or another producer
            # has ended the transaction.
            is_empty = not transaction.partitions and not transaction.groups
            counts_as_aborted = is_empty and not transaction.is_version_2
        if not counts_as_aborted:
            transaction.fail_for_good(error)
            raise error
        if can_renew:
            transaction.require_new_epoch()

    # -- offsets

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Add offsets of a group to the transaction, by `max_block_ms`.

        Raises TypeError or ValueError for wrong arguments, TransactionStateError if no transaction
        is open, CommitFailedError if partitions were revoked, and errors of the brokers. Every
        KafkaError except TransactionStateError fails the transaction.
        """
        offsets = as_offsets(given)
        transaction = self.transaction
        transaction.check("send_offsets_to_transaction")
        number = transaction.number
        deadline = self._deadline()
        try:
            by_member = self._by_member(offsets, group)
            if not offsets:
                return

            async def work(pending: PendingTxnRequest) -> None:
                await self._send_offsets(by_member, offsets, group, deadline, pending)

            await self._pending.run("send_offsets_to_transaction", work, deadline)
        except KafkaError as error:
            if transaction.number == number:
                transaction.fail(error)
            raise

    def _by_member(self, offsets: Offsets, group: Any) -> list[MemberOffsets]:
        """Return the offsets, grouped by the member that commits them in the present assignment."""
        member = as_group(group)
        group_id = member if isinstance(member, str) else member.group_id
        found = readers(self._loop, self._client.cluster.cluster_id, group_id)
        return offsets_by_member(with_epochs(offsets, found), member, found)

    async def _send_offsets(
        self,
        by_member: list[MemberOffsets],
        offsets: Offsets,
        group: Any,
        deadline: float,
        pending: PendingTxnRequest,
    ) -> None:
        transaction = self.transaction
        group_id = by_member[0][0].group_id
        try:
            if not transaction.is_version_2 and group_id not in transaction.groups:
                identity = self._fencing.identity
                await self._requests.add_group(identity, group_id, deadline, pending)
            await self._pause()
            # In version 2 there is no AddOffsetsToTxn: TxnOffsetCommit, sent below, adds the group.
            transaction.add_group(group_id)
            while by_member:
                by_member = await self._commit_offsets(by_member, offsets, group, deadline, pending)
        except _PAST as error:
            if pending.is_cancelled:
                raise
            # `explain` may change the epoch, so the task must not be cancelled now.
            pending.must_finish = True
            raise await self._fencing.explain(error, deadline) from error

    async def _pause(self) -> None:
        """Wait for the end of the `MarkerPause`."""
        left = self.transaction.marker_pause.until - self._loop.time()
        if left > 0:
            await asyncio.sleep(left)

    async def _commit_offsets(
        self,
        by_member: list[MemberOffsets],
        offsets: Offsets,
        group: Any,
        deadline: float,
        pending: PendingTxnRequest,
    ) -> list[MemberOffsets]:
        """Send the offsets. Return [], or, if the generation of a member was outdated, the offsets
        to send again with the present generation.

        How offsets stay correct if the group rebalances meanwhile:

        1. The application has processed records of partition 0 and commits offset 10. Its consumer
           is a member of generation 5; `offsets_by_member` has checked that partition 0 was not
           revoked since the records were returned.
        2. The group rebalances: generation 6. The consumer keeps partition 0.
        3. The coordinator refuses the offsets of generation 5 (KIP-447).
        4. `_by_member` reads the assignment again. If the consumer had lost the partition,
           `offsets_by_member` would raise CommitFailedError, because the next owner may have
           processed the same records. The consumer still owns the partition, so the offset is sent
           again with generation 6.
        5. If the consumer does not know of the rebalance yet, it is still in generation 5. A retry
           would send the same request, so raise the error: the application has to abort.
        """
        try:
            for member, part, topic_ids in by_member:
                await self._requests.commit_offsets(
                    self._fencing.identity,
                    member,
                    part,
                    topic_ids,
                    deadline,
                    pending,
                    is_version_2=self.transaction.is_version_2,
                )
        except _OLD_GENERATION:
            # Step 4 of the docstring; `raise` is step 5.
            by_member_now = self._by_member(offsets, group)
            if by_member_now == by_member:
                raise
            return by_member_now
        return []

    # -- partitions

    async def serve_batches(self) -> None:
        """Send to the coordinator the requests that batches wait for: AddPartitionsToTxn or, after
        a leader has refused records, the requests by which `_explain_doubt` finds the reason. Runs
        until cancelled."""
        wanted = self._sender.completion.coordinator_wanted
        while True:
            await wanted.wait()
            wanted.clear()
            transaction = self.transaction
            number = transaction.number
            # If the transaction has failed or is being aborted, its waiting batches need no
            # request.
            if not transaction.accepts_records:
                continue
            try:
                if transaction.doubt is not None:
                    await self._pending.run("fencing", self._explain_doubt, self._deadline())
                elif transaction.wanted:
                    await self._pending.run(
                        "AddPartitionsToTxn", self._add_partitions, self._deadline()
                    )
            except KafkaError as error:
                # An error of an earlier transaction must not fail the current transaction.
                if transaction.number == number:
                    transaction.fail(error)

    async def _add_partitions(self, pending: PendingTxnRequest) -> None:
        """Add the partitions in `wanted` before their records are sent (version 1 only)."""
        transaction = self.transaction
        wanted = set(transaction.wanted)
        deadline = self._deadline()
        try:
            await self._requests.add_partitions(self._fencing.identity, wanted, deadline, pending)
        except _PAST as error:
            if pending.is_cancelled:
                raise
            pending.must_finish = True
            raise await self._fencing.explain(error, deadline) from error
        transaction.add_partitions(wanted)
        # Call `resume` after `add_partitions`: the senders call `Transaction.admits` at once.
        self._sender.resume(wanted)

    async def _explain_doubt(self, pending: PendingTxnRequest) -> None:
        """Find out from the coordinator why a leader refused records, and raise the error."""
        transaction = self.transaction
        doubt = transaction.doubt
        assert doubt is not None
        deadline = self._deadline()
        if not transaction.is_version_2:
            # In version 1 a request for a new epoch would abort an open transaction. So add the
            # partition of the error again. That has no effect, but the response shows whether the
            # epoch of this producer is outdated. (Do not add another partition, which may have been
            # deleted.)
            assert transaction.doubtful is not None
            known = {transaction.doubtful}
            try:
                await self._requests.add_partitions(
                    self._fencing.identity, known, deadline, pending
                )
            except _PAST as error:
                doubt = error
            else:
                # The epoch is valid, and the coordinator can abort the transaction, whatever the
                # reason for the leader's error.
                raise TransactionAbortable(str(doubt)) if isinstance(doubt, _PAST) else doubt
        pending.must_finish = True
        raise await self._fencing.explain(doubt, deadline) from doubt


async def _wait(event: asyncio.Event, deadline: float, text: str) -> None:
    try:
        async with timeout_at(deadline):
            await event.wait()
    except asyncio.TimeoutError:
        raise KafkaTimeoutError(text) from None
