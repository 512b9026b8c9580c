"""The transactions of a producer: begin, commit, abort, and add partitions and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
"""Errors if the epoch is outdated, or if the transaction was ended by its coordinator or an
administrator."""


class Fencing:
    """Gets new epochs, makes brokers refuse the old ones, and finds out who fenced this producer.

    Owns: when the transaction began, and the partitions and groups whose brokers do not know the
    new epoch yet.
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
        """Partitions of the empty transaction of `fence_unanswered`; None unless it is needed."""
        self._groups: set[str] = set()
        """Groups of that transaction."""

    def begin(self) -> None:
        """Record that a transaction begins: its timeout runs from now on."""
        self._begun = self._loop.time()

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and the current epoch."""
        return ProducerIdentity(self._id_state.producer_id, self._id_state.producer_epoch)

    async def renew(self, deadline: float) -> None:
        """Get a new epoch, under which no sequence number was used (KIP-360).

        Can be called again after a KafkaTimeoutError; any other error is fatal for the producer.
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
        """Make brokers refuse requests of the ended transaction that got no response (before
        KIP-890).

        1. A request of the transaction gets no response, and is sent again or not. The transaction
           ends, with markers under its own epoch.
        2. The request arrives after all. Its epoch is the last one that the broker knows. So a
           leader writes its records, and a group coordinator stores its offsets, maybe over later
           ones.
        3. Only the marker of the next transaction ends these. If that is committed, they are
           committed, too: whether it is a transaction of this producer, or of another one that
           takes over the id. And if the request was EndTxn, it ends the next transaction early.
        4. So the producer gets another epoch. The coordinator knows it, and refuses the EndTxn.
        5. The other brokers do not know it yet. They learn it from the marker of an empty
           transaction, which is aborted. Records and offsets that have arrived before are aborted
           by it, later ones are refused. (But before Kafka 2.4 group coordinators accept offsets of
           any epoch, at any time.)

        Can be called again after a KafkaTimeoutError, and continues where it was: at a coordinator
        with an open transaction, step 4 would fence this producer. Any other error is fatal.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        if transaction.unanswered and self._partitions is None:
            await self.renew(deadline)
            transaction.note_new_epoch()
            unanswered = transaction.unanswered.take()
            if unanswered.partitions or unanswered.groups:
                self._partitions = RemainingPartitions(unanswered.partitions)
                self._groups = unanswered.groups
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
            # These are requests of step 5: only the coordinator could still carry them out.
            transaction.require_new_epoch()

    async def _check_owner(self, deadline: float) -> ProducerIdentity | None:
        """Raise ProducerFenced if another producer has the transactional id.

        `init` would harm that producer, although it is refused: a coordinator ends the open
        transaction and fences its owner before it checks the caller. (Before Kafka 2.5 it is not
        even refused.) An abort of our own or of an empty transaction has no effect on others, and
        its response shows whether the epoch is outdated. That means nothing if the coordinator may
        have given us the next epoch already (`may_have_epoch`): then `renew` calls `init` anyway.

        Returns the identity for the next transaction: another one in version 2, in which every
        abort increments the epoch. None if the response does not contain it.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        try:
            return await self._requests.end(
                self.identity, False, transaction.is_version_2, deadline
            )
        except InvalidTxnState:
            return None  # there is nothing to abort
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            # A coordinator forgets an id that was not used for days, and can give it again. If the
            # id belongs to another producer id, it refuses `init` at once.
            is_forgotten = isinstance(error, InvalidProducerIdMapping)
            if is_forgotten and await self._requests.can_renew(deadline):
                return None
            transaction.fail_for_good(error)
            raise

    async def _abort_empty(self, partitions: RemainingPartitions, deadline: float) -> None:
        """Abort an empty transaction with these partitions, and the groups in `_groups`.

        Removes those that were added, so that the next call continues with the others. Otherwise
        no call would finish if `max_block_ms` is too short for all of them.
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
            pass  # no partition and no group could be added

    async def explain(self, past: BaseException, deadline: float) -> BaseException:
        """Find out why a broker refused a request with `past`; return the error to raise.

        Brokers send the same error for two causes, and only one of them is fatal:

        1. Another producer with the transactional id has started. The coordinator has given it the
           next epoch, and refuses ours for ever.
        2. The transaction took longer than `transaction_timeout_ms`. The coordinator has aborted it
           under the next epoch, which it gives only to the former owner (KIP-588, KIP-360).

        So we request the next epoch with the current one: `renew` is refused in the first case. Old
        brokers cannot distinguish the cases, so both are fatal there.

        The transaction has failed afterwards, unless the result is a KafkaTimeoutError: then the
        cause is unknown, and the call can be repeated.
        """
        transaction = self._id_state.transaction
        assert transaction is not None
        # Another request was refused for the same reason, and has found it out.
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
    """A commit or an abort in progress."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.over = asyncio.Event()
        self.has_succeeded = False


class ProducerTransactions:
    """Begins, commits and aborts transactions, and adds partitions and offsets to them.

    Owns: the commit or abort in progress, and the transaction whose failed commit `begin` has
    raised. Every call is bounded by `max_block_ms`. A call that timed out or was cancelled can be
    repeated and continues where it was. No other call is possible meanwhile, except `begin`, which
    repeats it first. Only one call at a time ends a transaction: a second commit waits for the
    first and shares its result, an abort during a commit is refused, and vice versa.
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
        """The number of the transaction whose failed commit `begin` has raised."""
        self._is_closed = False

    def _stop_accepting(self) -> None:
        self._sender.accumulator.accept(False)
        if self.transaction.error is not None:
            # Not at once: the caller is completing batches.
            self._loop.call_soon(self._drop_waiting)

    def _drop_waiting(self) -> None:
        """Fail the waiting batches of a failed transaction."""
        error = self.transaction.error
        if error is not None and not self.transaction.accepts_records:
            self._sender.drop_waiting(error)

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    async def start(self, deadline: float) -> None:
        """Get a producer id and an epoch for the transactional id, and fence its former owner.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        identity = await self._requests.init(self._config.transaction_timeout, None, deadline)
        self.id_state.set_producer_id(*identity)
        self.transaction.end()

    async def begin(self) -> None:
        """Begin a transaction; first finish an abort or a commit that timed out or was cancelled.

        The first transaction of version 2 needs a new epoch (KAFKA-18227):

        1. The brokers are upgraded meanwhile. The last transaction was of version 1, so its end did
           not change the epoch. Its markers are still to be written.
        2. A record arrives under the same epoch. For the leader the last transaction is open, so it
           does not ask the coordinator whether the record may be written. In version 1 this client
           asks, and the coordinator responds that it has to wait for the markers.
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
        # Last: from here on `send` accepts records, which belong to the new transaction.
        self._sender.accumulator.accept(True)

    async def _finish_former(self) -> None:
        """Finish the last transaction, if its abort or commit timed out or was cancelled.

        A commit is a case of its own. At the end of an `async with` block no other call would
        continue it:

        1. The commit succeeds here, and then the next transaction can begin.
        2. Its outcome stays open: KafkaTimeoutError is raised, and the next call continues it.
        3. The commit is refused. That error is raised, and no transaction begins: the application
           has to know that its records are not committed. Only the next call, or `abort`, aborts.
        """
        transaction = self.transaction
        if self._is_committing:
            # A commit that was cancelled just before ends in this iteration of the event loop.
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
        """Whether another task commits now."""
        return self._ending is not None and self._ending.call == _COMMIT

    async def commit(self, deadline: float | None = None) -> None:
        """Deliver everything, then commit: within `max_block_ms`, or until `deadline`."""
        deadline = deadline or self._deadline()
        self.transaction.raise_failure()
        async with self._alone(_COMMIT, deadline) as ending:
            if ending.has_succeeded:
                return
            self.transaction.raise_failure()
            # This order makes the commit atomic:
            # 1. No more records are accepted, so the flush delivers all records of the transaction.
            # 2. Every batch is written, or has failed, which fails the transaction.
            # 3. The requests that add offsets and partitions are done, too: none may arrive after
            #    EndTxn.
            # 4. Any failure of these is raised here, before EndTxn would commit the rest.
            # 5. EndTxn.
            self.transaction.begin_commit()
            await self._sender.accumulator.flush(deadline)
            await self._pending.wait_for_all(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=True, deadline=deadline)
            ending.has_succeeded = True

    async def abort(self, deadline: float | None = None) -> None:
        """Drop the waiting records, then abort: within `max_block_ms`, or until `deadline`."""
        deadline = deadline or self._deadline()
        async with self._alone(_ABORT, deadline) as ending:
            if ending.has_succeeded:
                return
            self.transaction.begin_abort()
            # Wait for batches in flight: written after the abort marker, they would be part of the
            # next transaction.
            self._sender.drop_waiting(KafkaError("not sent: the transaction was aborted"))
            await self._sender.accumulator.flush(deadline)
            if not self.transaction.is_version_2:
                # Also for requests whose batches have exceeded `delivery_timeout_ms`. In version 2
                # their epoch ends with this transaction, so they would be refused.
                await self._sender.wait_for_responses(deadline)
            await self._pending.cancel_all(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=False, deadline=deadline)
            ending.has_succeeded = True

    async def close(self, deadline: float | None) -> None:
        """End an open transaction: finish a commit whose EndTxn may have been sent, abort any other
        transaction.

        Waits for a commit or an abort in another task. Takes until `deadline` (loop time). Without
        one it may take longer than `max_block_ms`, as the call is not repeated: up to the
        transaction timeout, after which the coordinator aborts by itself.
        """
        self._is_closed = True
        if deadline is None:
            limit = max(self._config.max_block, self._config.transaction_timeout)
            deadline = self._loop.time() + limit
        # A second end could contradict the one in progress, which has a deadline.
        while self._ending is not None:
            await self._ending.over.wait()
        if self.transaction.is_undecided:
            await self.abort(deadline)
        elif self.transaction.state is TransactionState.COMMITTING:
            await self.commit(deadline)
        elif self.transaction.state is TransactionState.COMMITTED:
            await self._finish_commit()

    @asynccontextmanager
    async def _alone(self, call: str, deadline: float) -> AsyncIterator[_Ending]:
        """Keep other calls from ending the transaction while the block runs.

        Yields an object that `has_succeeded` if another task has made the same `call` meanwhile.
        """
        number = self.transaction.number
        if self._is_at_another(call):
            # A commit that was cancelled just before ends in this iteration of the event loop.
            await asyncio.sleep(0)
        while (other := self._ending) is not None:
            if other.call != call:
                raise TransactionStateError(
                    f"{call}: the producer is {self.transaction.state.value}: {other.call} is "
                    "under way in another task"
                )
            await _wait(other.over, deadline, f"{call}: not in time: another task is at it")
            if other.has_succeeded:
                yield other
                return
        if self.transaction.number != number:
            raise TransactionStateError(f"{call}: another task has ended the transaction")
        ending = self._ending = _Ending(call)
        try:
            yield ending
        finally:
            self._ending = None
            ending.over.set()

    def _is_at_another(self, call: str) -> bool:
        return self._ending is not None and self._ending.call != call

    async def _end(self, *, is_commit: bool, deadline: float) -> None:
        """End the transaction at its coordinator, and prepare the next one.

        The call can be cancelled or time out at every step. The flags of the `Transaction` show
        where a repeated call continues:

        1. No request reached the coordinator (`has_effects` is not set): nothing has to be ended.
        2. EndTxn is sent. `is_ending` is set before, so that an abort is refused after a commit
           with an unknown outcome: consumers may have read the records.
        3. The response is lost. The repeated call sends EndTxn again, under the same epoch. The
           coordinator recognizes the repetition and sends the same response.
        4. The response comes, and `is_ended` is set. From now on EndTxn is not sent again: a
           coordinator that is ready for the next transaction would respond with an invalid state,
           which is fatal.
        5. The epoch of the next transaction. Version 1: it stays the same, unless batches have
           failed (`needs_new_epoch`), as leaders may expect other sequence numbers than ours; then
           InitProducerId gives the next. Version 2 (KIP-890): each response to EndTxn contains the
           next epoch, in which the sequences begin at 0. If the response lacks it, InitProducerId
           gives it.
        6. Version 1: `Fencing.fence_unanswered` prevents requests without a response from becoming
           part of the next transaction.
        7. `Transaction.end` clears all flags.

        After step 4 a commit has succeeded. If it times out afterwards, it returns all the same,
        and the next `begin` continues with the other steps.
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
            # The commit has succeeded. If the producer has failed for good, or still cannot finish
            # the steps, the next call raises an error.
            transaction.note_commit()

    async def _make_ready(self, deadline: float) -> None:
        """Prepare the next transaction, steps 5 to 7 of `_end`."""
        transaction = self.transaction
        if not transaction.is_version_2:
            await self._fencing.fence_unanswered(deadline)
        if transaction.needs_new_epoch:
            await self._fencing.renew(deadline)
        transaction.end()

    async def _finish_commit(self) -> None:
        """Prepare the next transaction, after a commit that had no time left for it."""
        deadline = self._deadline()
        async with self._alone(_COMMIT, deadline) as ending:
            if self.transaction.state is TransactionState.COMMITTED:
                await self._make_ready(deadline)
            ending.has_succeeded = True

    async def _send_end(self, is_commit: bool, deadline: float) -> None:
        """Send EndTxn, steps 2 to 4 of `_end`."""
        transaction = self.transaction
        before = self._fencing.identity
        identity: ProducerIdentity | None = before
        # Before the request, which may be cancelled at any time: an abort after a commit could
        # contradict that.
        transaction.begin_end(is_commit)
        try:
            identity = await self._requests.end(
                before, is_commit, transaction.is_version_2, deadline
            )
        except _PAST as error:
            if is_commit:
                raise await self._fencing.explain(error, deadline) from error
            await self._abort_unknown(error, deadline)
        # The outcome is unknown: the state stays, and the call can be repeated.
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
        """Fail the transaction, whose commit was refused with `error`, unless it may be committed:

        1. EndTxn is carried out, and its response is lost.
        2. It is sent again, and refused by a broker that has other problems.
        3. The application aborts and repeats its work. If the abort succeeded, or if the error said
           that the transaction can be aborted, every record would be committed twice.

        So if an EndTxn got no response, the coordinator is asked to abort. It does so only if it
        has not committed, and refuses a commit from then on. If it refuses to abort, or responds
        with another error, the producer has failed for good. Until it responds the commit stays
        open: a repeated commit gets the outcome in its response.

        Returns if an abort is possible, else raises.
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
        """Record that EndTxn of the identity `before` has succeeded; continue with `identity`."""
        transaction = self.transaction
        transaction.note_end()
        if identity is None:
            transaction.require_new_epoch()
        elif identity != before:
            transaction.note_new_epoch()
            self.id_state.set_producer_id(*identity)

    async def _abort_unknown(self, error: KafkaError, deadline: float) -> None:
        """Decide whether a transaction that the coordinator does not know counts as aborted.

        If not, raises `error`, with the producer failed for good.
        """
        transaction = self.transaction
        can_renew = await self._requests.can_renew(deadline)
        if isinstance(error, ProducerFenced):
            # If another producer has the id, the renewal is refused.
            counts_as_aborted = can_renew
        else:
            # The transaction is empty: all requests to add something were cancelled or refused. If
            # one of them arrives late, its epoch is outdated. In version 2 an abort of an empty
            # transaction succeeds, so there this error means that the transaction ended otherwise.
            is_empty = not transaction.partitions and not transaction.groups
            counts_as_aborted = is_empty and not transaction.is_version_2
        if not counts_as_aborted:
            transaction.fail_for_good(error)
            raise error
        if can_renew:
            transaction.require_new_epoch()

    # -- offsets

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Add offsets of a group to the transaction.

        Raises TypeError or ValueError for wrong arguments, CommitFailedError if partitions were
        revoked, and errors of the brokers. After an error the transaction has to be aborted.
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
        """Return which member commits which offsets, by the assignment of now."""
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
            # With version 2 as well: the groups decide whether an unknown transaction was empty
            # (`_abort_unknown`).
            transaction.add_group(group_id)
            while by_member:
                by_member = await self._commit_offsets(by_member, offsets, group, deadline, pending)
        except _PAST as error:
            if pending.is_cancelled:
                raise
            # It may change the epoch, so it must not be cancelled.
            pending.must_finish = True
            raise await self._fencing.explain(error, deadline) from error

    async def _commit_offsets(
        self,
        by_member: list[MemberOffsets],
        offsets: Offsets,
        group: Any,
        deadline: float,
        pending: PendingTxnRequest,
    ) -> list[MemberOffsets]:
        """Send the offsets; return those to send again with another generation.

        How offsets stay right although the group rebalances meanwhile:

        1. The application has processed records of partition 0 and commits offset 10. Its consumer
           is a member of generation 5; `offsets_by_member` has checked that partition 0 was not
           revoked since the records were returned.
        2. The group rebalances: generation 6. The consumer keeps partition 0.
        3. The coordinator refuses the offsets of generation 5 (KIP-447).
        4. `_by_member` reads the assignment again. If the consumer had lost the partition,
           `offsets_by_member` would raise CommitFailedError, as the next owner may have processed
           the same records. It has not, so the offset is sent again, with generation 6.
        5. If the consumer is still in generation 5, it does not know of the rebalance yet. A retry
           would be the same request, so the error is raised, and the application aborts.
        """
        try:
            for member, part in by_member:
                await self._requests.commit_offsets(
                    self._fencing.identity,
                    member,
                    part,
                    deadline,
                    pending,
                    is_version_2=self.transaction.is_version_2,
                )
        except _OLD_GENERATION:
            # Step 4.
            by_member_now = self._by_member(offsets, group)
            if by_member_now == by_member:
                raise
            return by_member_now
        return []

    # -- partitions

    async def serve_batches(self) -> None:
        """Send the requests to the coordinator that batches wait for, until cancelled."""
        wanted = self._sender.completion.coordinator_wanted
        while True:
            await wanted.wait()
            wanted.clear()
            transaction = self.transaction
            number = transaction.number
            # The batch belongs to a transaction that has failed, or is being aborted.
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
                # If the task has outlived its transaction, the next one does not fail.
                if transaction.number == number:
                    transaction.fail(error)

    async def _add_partitions(self, pending: PendingTxnRequest) -> None:
        """Add partitions before records are sent to them. Version 2 does not need it."""
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
        # Afterwards, because the senders check `Transaction.admits` at once.
        self._sender.resume(wanted)

    async def _explain_doubt(self, pending: PendingTxnRequest) -> None:
        """Ask the coordinator why a leader refused records."""
        transaction = self.transaction
        doubt = transaction.doubt
        assert doubt is not None
        deadline = self._deadline()
        if not transaction.is_version_2:
            # Before Kafka 4.0 a request for a new epoch would end an open transaction, and fence
            # this producer. Adding a partition again has no effect, unless the partition was
            # deleted. This one has a leader.
            assert transaction.doubtful is not None
            known = {transaction.doubtful}
            try:
                await self._requests.add_partitions(
                    self._fencing.identity, known, deadline, pending
                )
            except _PAST as error:
                doubt = error
            else:
                # The coordinator knows the transaction and can abort it, whatever the leader lacks.
                raise TransactionAbortable(str(doubt)) if isinstance(doubt, _PAST) else doubt
        pending.must_finish = True
        raise await self._fencing.explain(doubt, deadline) from doubt


async def _wait(event: asyncio.Event, deadline: float, text: str) -> None:
    try:
        async with timeout_at(deadline):
            await event.wait()
    except asyncio.TimeoutError:
        raise KafkaTimeoutError(text) from None
