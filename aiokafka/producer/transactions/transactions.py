"""Begin, commit and abort the transactions of a producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka._compat import timeout_at
from aiokafka._group_members import readers
from aiokafka.errors import (
    IllegalGenerationError,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    ProducerFenced,
    StaleMemberEpoch,
    TransactionAbortable,
    TransactionStateError,
)
from aiokafka.producer.sending.sender import ProducerIdentity, log
from aiokafka.producer.sending.sequencer import Sequencer
from aiokafka.producer.transactions.fencing import PAST, Fencing
from aiokafka.producer.transactions.requests import (
    Offsets,
    Share,
    TransactionRequests,
    as_group,
    as_offsets,
    share_out,
    with_epochs,
)
from aiokafka.producer.transactions.state import Errand, Errands, Transaction, TransactionState

if TYPE_CHECKING:
    from typing_extensions import Self

    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.sending.sender import Sender

__all__ = ["ProducerTransactions", "TransactionContents", "TransactionContext"]


# -- A transaction as an `async with` block


class _Transactional(Protocol):
    """What a block calls of a producer."""

    async def begin_transaction(self) -> None: ...

    async def commit_transaction(self) -> None: ...

    async def abort_transaction(self) -> None: ...


class TransactionContext:
    """A transaction as an `async with` block. Made by `AIOKafkaProducer.transaction`."""

    def __init__(
        self,
        producer: _Transactional,
        transactions: ProducerTransactions | None,
        is_closed: Callable[[], bool],
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._is_closed = is_closed

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._transactions is None:
            return
        try:
            if exc is None:
                await self._producer.commit_transaction()
        finally:
            # Nothing else would end a transaction that has failed, or a commit that was left.
            if self._transactions.transaction.is_undecided and not self._is_closed():
                await self._abort()

    async def _abort(self) -> None:
        try:
            await self._producer.abort_transaction()
        except KafkaError as error:
            # The error that led to it says more. The next transaction begins with this abort.
            log.warning("%s: the transaction is not aborted yet: %s", self._producer, error)


# -- Add partitions and offsets to a transaction


_OLD_GENERATION = (IllegalGenerationError, StaleMemberEpoch)


class TransactionContents:
    """Sends the requests that add partitions and offsets to the transaction."""

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        sender: Sender,
        transaction: Transaction,
        requests: TransactionRequests,
        fencing: Fencing,
    ) -> None:
        self.errands = Errands(transaction, sender.owner)
        self._client = client
        self._config = config
        self._sender = sender
        self._transaction = transaction
        self._requests = requests
        self._fencing = fencing
        self._loop = asyncio.get_running_loop()

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    # -- offsets

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Add offsets of a group to the transaction.

        Raises TypeError or ValueError for wrong arguments, CommitFailedError if partitions were
        taken away, errors of the brokers. After an error the transaction has to be aborted.
        """
        offsets = as_offsets(given)
        transaction = self._transaction
        transaction.check("send_offsets_to_transaction")
        number = transaction.number
        deadline = self._deadline()
        try:
            shares = self._shares(offsets, group)
            if not offsets:
                return

            async def work(errand: Errand) -> None:
                await self._send_shares(shares, offsets, group, deadline, errand)

            await self.errands.run("send_offsets_to_transaction", work, deadline)
        except KafkaError as error:
            if transaction.number == number:
                transaction.fail(error)
            raise

    def _shares(self, offsets: Offsets, group: Any) -> list[Share]:
        """Return which member commits which offsets, as the group is now."""
        member = as_group(group)
        found = readers(self._loop, self._client.cluster.cluster_id, _name_of(group))
        return share_out(with_epochs(offsets, found), member, found)

    async def _send_shares(
        self,
        shares: list[Share],
        offsets: Offsets,
        group: Any,
        deadline: float,
        errand: Errand,
    ) -> None:
        transaction = self._transaction
        group_id = shares[0][0].group_id
        try:
            if not transaction.is_version_2 and group_id not in transaction.groups:
                identity = self._fencing.identity
                await self._requests.add_group(identity, group_id, deadline, errand)
            # Noted with version 2 as well: what was added decides whether an unknown transaction
            # was empty (`ProducerTransactions._abort_what_is_past`).
            transaction.add_group(group_id)
            while shares:
                shares = await self._commit_offsets(shares, offsets, group, deadline, errand)
        except PAST as error:
            if errand.is_recalled:
                raise
            # It may change the epoch, so it has to come to an end.
            errand.must_finish = True
            raise await self._fencing.explain(error, deadline) from error

    async def _commit_offsets(
        self,
        shares: list[Share],
        offsets: Offsets,
        group: Any,
        deadline: float,
        errand: Errand,
    ) -> list[Share]:
        """Send the offsets; return those to send again in the name of another generation.

        How offsets stay right although the group rebalances meanwhile:

        1. The application has processed records of partition 0 and asks to commit offset 10. Its
           consumer is a member of generation 5; `share_out` has checked that partition 0 was not
           revoked since the records were returned.
        2. The group rebalances: generation 6. The consumer keeps partition 0.
        3. The coordinator refuses the offsets of generation 5 (KIP-447).
        4. We look at the consumers again. If one had lost the partition, `share_out` would raise
           CommitFailedError, as its next owner may have processed the same records. It has not, so
           the offset is sent again, as generation 6.
        5. If the consumer is still in generation 5, it does not know of the rebalance yet. There is
           nothing else to send, so the error is raised, and the application aborts.
        """
        try:
            for member, part in shares:
                await self._requests.commit_offsets(
                    self._fencing.identity,
                    member,
                    part,
                    deadline,
                    errand,
                    is_version_2=self._transaction.is_version_2,
                )
        except _OLD_GENERATION:
            # Step 4.
            renewed_shares = self._shares(offsets, group)
            if renewed_shares == shares:
                raise
            return renewed_shares
        return []

    # -- partitions

    async def attend(self) -> None:
        """Ask the coordinator for what batches need before they are sent, until cancelled."""
        wanted = self._sender.delivery.coordinator_wanted
        while True:
            await wanted.wait()
            wanted.clear()
            transaction = self._transaction
            number = transaction.number
            # Asked for by a batch of a transaction that has failed, or is being aborted.
            if not transaction.takes_records:
                continue
            try:
                if transaction.doubt is not None:
                    await self.errands.run("fencing", self._clear_up, self._deadline())
                elif transaction.wanted:
                    await self.errands.run(
                        "AddPartitionsToTxn", self._enter_partitions, self._deadline()
                    )
            except KafkaError as error:
                # The errand may have outlived its transaction, and the next one has nothing to do
                # with the error.
                if transaction.number == number:
                    transaction.fail(error)

    async def _enter_partitions(self, errand: Errand) -> None:
        """Add partitions before records go to them; not needed in transactions of version 2."""
        transaction = self._transaction
        wanted = set(transaction.wanted)
        deadline = self._deadline()
        try:
            await self._requests.add_partitions(self._fencing.identity, wanted, deadline, errand)
        except PAST as error:
            if errand.is_recalled:
                raise
            errand.must_finish = True
            raise await self._fencing.explain(error, deadline) from error
        transaction.add_partitions(wanted)
        # In this order: the senders look at once whether the partitions are admitted.
        self._sender.resume(wanted)

    async def _clear_up(self, errand: Errand) -> None:
        """Ask the coordinator what the error of a leader means that refused records."""
        transaction = self._transaction
        doubt = transaction.doubt
        assert doubt is not None
        deadline = self._deadline()
        if not transaction.is_version_2:
            # To ask for a new epoch would end an open transaction before Kafka 4.0, and fence this
            # producer. A partition that was added can be added again without any effect, though not
            # one that is gone. This one has a leader.
            assert transaction.doubtful is not None
            known = {transaction.doubtful}
            try:
                await self._requests.add_partitions(self._fencing.identity, known, deadline, errand)
            except PAST as error:
                doubt = error
            else:
                # Whatever the leader lacks, the coordinator can abort it.
                raise TransactionAbortable(str(doubt)) if isinstance(doubt, PAST) else doubt
        errand.must_finish = True
        raise await self._fencing.explain(doubt, deadline) from doubt


def _name_of(group: Any) -> str:
    member = as_group(group)
    return member if isinstance(member, str) else member.group_id


_COMMIT = "commit_transaction"
_ABORT = "abort_transaction"
_COMMITTED = (
    "the transaction cannot be aborted: it was committed by a request that got no response; "
    "another one was refused with: {}"
)


class _Ending:
    """A commit or an abort that is under way."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.over = asyncio.Event()
        self.is_done = False
        """Whether it has succeeded."""


class ProducerTransactions:
    """Takes the `Transaction` of a producer from state to state.

    Owns: the commit or abort that is under way, and whose failure `begin` has told. Every call is
    bounded by `max_block_ms`. One that ran out of time or was cancelled can be repeated and goes on
    where it was; nothing else is possible meanwhile, but that `begin` repeats it first. Only one
    call that ends a transaction is carried out at a time: a second one of the same kind waits for
    the first and shares its result, one of the other kind is refused.
    """

    def __init__(
        self, client: AIOKafkaClient, config: ProducerConfig, sender: Sender, transactional_id: str
    ) -> None:
        self.transaction = Transaction(transactional_id, self._stop_accepting)
        self.sequencer = Sequencer(self.transaction)
        self._config = config
        self._sender = sender
        strays = self.transaction.strays
        self._requests = TransactionRequests(client, transactional_id, strays)
        self._fencing = Fencing(config, self._requests, self.sequencer)
        self.contents = TransactionContents(
            client, config, sender, self.transaction, self._requests, self._fencing
        )
        self._errands = self.contents.errands
        self._loop = asyncio.get_running_loop()
        self._ending: _Ending | None = None
        self._told = 0
        """The number of the transaction of which `begin` has said that its commit has failed."""
        self._is_closed = False

    def _stop_accepting(self) -> None:
        self._sender.accumulator.appender.accept(False)
        if self.transaction.error is not None:
            # Not at once: this is called while batches are being settled.
            self._loop.call_soon(self._drop_waiting)

    def _drop_waiting(self) -> None:
        """Fail the batches of a failed transaction that were not sent."""
        error = self.transaction.error
        if error is not None and not self.transaction.takes_records:
            self._sender.drop_waiting(error)

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    # -- the calls

    async def start(self, deadline: float) -> None:
        """Take over the transactional id. Raises KafkaTimeoutError at `deadline` (loop time)."""
        identity = await self._requests.init(self._config.transaction_timeout, None, deadline)
        self.sequencer.set_producer_id(*identity)
        self.transaction.end()

    async def begin(self) -> None:
        """Start a transaction; first finish what an abort or a commit has left.

        The first one of version 2 needs an epoch of its own (KAFKA-18227):

        1. The brokers are upgraded meanwhile. The transaction before was of version 1, and its end
           has left the epoch as it is. The markers are still to be written.
        2. A record comes under the same epoch. To the leader the transaction before is open, so it
           does not ask the coordinator whether the record may be written. In version 1 we did, and
           were told to wait for the markers.
        3. The record is part of the transaction before, and committed or aborted with that.
        """
        transaction = self.transaction
        await self._finish_former()
        is_version_2 = await self._requests.is_version_2(self._deadline())
        if is_version_2 and transaction.number and not transaction.is_version_2:
            await self._fencing.renew(self._deadline())
        # It was stopped, or has failed, during the requests above.
        if self._is_closed:
            raise ProducerClosed("the producer was stopped; make a new one")
        self._sender.owner.check()
        transaction.raise_failure()
        transaction.begin(is_version_2)
        self._fencing.begin()
        # Last: from here on `send` takes records, and they have to find the new transaction.
        self._sender.accumulator.appender.accept(True)

    async def _finish_former(self) -> None:
        """Finish the transaction before, if an abort or a commit has left it.

        A commit that was cancelled, or had no time left, is a case of its own, as at the end of an
        `async with` block no other call would go on with it:

        1. It is committed here, and then the next one can begin.
        2. Its outcome stays open: KafkaTimeoutError, and the next call goes on.
        3. It is refused. That error is raised, in place of a transaction that begins: the
           application has to know that what it sent before does not count. Only the next call, or
           `abort`, aborts.
        """
        transaction = self.transaction
        if self._is_committing:
            # One that was cancelled right before ends in this turn of the loop.
            await asyncio.sleep(0)
        if transaction.state is TransactionState.ABORTABLE and self._told == transaction.number:
            await self.abort()
        transaction.raise_failure()
        transaction.check_may_begin(is_committing=self._is_committing)
        if transaction.state is TransactionState.COMMITTING:
            try:
                await self.commit()
            except KafkaError:
                if transaction.error is not None:
                    self._told = transaction.number
                raise
        if transaction.state is TransactionState.ABORTING:
            await self.abort()
        elif transaction.state is TransactionState.COMMITTED:
            await self._finish_commit()

    @property
    def _is_committing(self) -> bool:
        """Whether a commit is under way in another task."""
        return self._ending is not None and self._ending.call == _COMMIT

    async def commit(self, deadline: float | None = None) -> None:
        """Deliver everything, then commit: within `max_block_ms`, or until `deadline`."""
        deadline = deadline or self._deadline()
        self.transaction.raise_failure()
        async with self._alone(_COMMIT, deadline) as ending:
            if ending.is_done:
                return
            self.transaction.raise_failure()
            # The order is what makes it all or nothing:
            # 1. No record is taken any more, so what is flushed is all that belongs to the
            #    transaction.
            # 2. Every batch is written, or has failed, which fails the transaction.
            # 3. The requests that enter offsets and partitions are over, too: none may arrive
            #    behind the end.
            # 4. Whatever has failed on the way is raised here, before EndTxn: a commit of a part
            #    must not go out.
            # 5. EndTxn.
            self.transaction.begin_commit()
            await self._sender.accumulator.flush(deadline)
            await self._errands.finish(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=True, deadline=deadline)
            ending.is_done = True

    async def abort(self, deadline: float | None = None) -> None:
        """Drop what was not sent, then abort: within `max_block_ms`, or until `deadline`."""
        deadline = deadline or self._deadline()
        async with self._alone(_ABORT, deadline) as ending:
            if ending.is_done:
                return
            self.transaction.begin_abort()
            # What is in flight cannot be called back, and is waited for: written behind the abort
            # marker it would be part of the next transaction.
            self._sender.drop_waiting(KafkaError("not sent: the transaction was aborted"))
            await self._sender.accumulator.flush(deadline)
            if not self.transaction.is_version_2:
                # Also what `delivery_timeout_ms` has given up since it was sent. In version 2 it
                # would come under the epoch of this transaction, and be refused.
                await self._sender.land(deadline)
            await self._errands.recall(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=False, deadline=deadline)
            ending.is_done = True

    async def close(self, deadline: float | None) -> None:
        """End an open transaction: finish a commit for which EndTxn may have been sent, abort any
        other.

        Waits for a commit or an abort that is under way in another task. Takes until `deadline`
        (loop time). Without one it takes longer than `max_block_ms` if need be, as nobody repeats
        the call: up to the transaction timeout, after which the coordinator aborts by itself.
        """
        self._is_closed = True
        if deadline is None:
            limit = max(self._config.max_block, self._config.transaction_timeout)
            deadline = self._loop.time() + limit
        # Two ends at once would contradict each other; the one under way has a deadline.
        while self._ending is not None:
            await self._ending.over.wait()
        if self.transaction.is_undecided:
            await self.abort(deadline)
        elif self.transaction.state is TransactionState.COMMITTING:
            await self.commit(deadline)
        elif self.transaction.state is TransactionState.COMMITTED:
            await self._finish_commit()

    # -- one at a time

    @asynccontextmanager
    async def _alone(self, call: str, deadline: float) -> AsyncIterator[_Ending]:
        """Keep other calls from ending the transaction while the block runs.

        If another task has made the same `call` with success meanwhile, what this yields `is_done`.
        """
        number = self.transaction.number
        if self._is_at_another(call):
            # One that was cancelled right before ends in this turn of the loop.
            await asyncio.sleep(0)
        while (other := self._ending) is not None:
            if other.call != call:
                raise TransactionStateError(
                    f"{call}: the producer is {self.transaction.state.value}: {other.call} is "
                    "under way in another task"
                )
            await _wait(other.over, deadline, f"{call}: not in time: another task is at it")
            if other.is_done:
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
        """End the transaction at its coordinator, and get ready for the next one.

        Every step can be the last of this call: it is cancelled, or its time is up. The flags of
        the `Transaction` say where a repeated call goes on:

        1. Nothing reached the coordinator (`has_effects` is not set): there is nothing to end.
        2. EndTxn is sent. `is_ending` is set before, so that after a commit with an unknown outcome
           an abort is refused: readers may have seen the records.
        3. The response is lost. The repeated call sends EndTxn again, under the same epoch. The
           coordinator recognizes it as a repetition and responds as it did, or would have done.
        4. The response comes, and `is_ended` is set. From now on EndTxn is not sent again: a
           coordinator that is ready for the next transaction would call it an invalid state, which
           is fatal.
        5. The epoch of the next transaction. Version 1: it is the same one, unless batches were
           given up (`needs_new_epoch`), as leaders may expect other sequence numbers than ours;
           then InitProducerId gives the next. Version 2 (KIP-890): each EndTxn gives the next
           epoch in its response, and the sequences begin at 0 in any case. If the response lacks
           it, InitProducerId gives it.
        6. Version 1: what got no response is shut out (`Fencing.shut_out`), so that it cannot
           become part of the next transaction.
        7. `Transaction.end` clears all flags.

        A commit is over with step 4. If there is no time left for the others, it returns all the
        same, and the next `begin` goes on with them.
        """
        transaction = self.transaction
        if transaction.has_effects and not transaction.is_ended:
            await self._tell_end(is_commit, deadline)
        if is_commit:
            transaction.strays.forget_records()
        try:
            await self._make_ready(deadline)
        except KafkaError:
            if not is_commit:
                raise
            # What was committed stays so. If the producer is at its end, or if it is still not
            # ready then, the next call will say so.
            transaction.note_commit()

    async def _make_ready(self, deadline: float) -> None:
        """Get ready for the next transaction, steps 5 to 7 of `_end`."""
        transaction = self.transaction
        if not transaction.is_version_2:
            await self._fencing.shut_out(deadline)
        if transaction.needs_new_epoch:
            await self._fencing.renew(deadline)
        transaction.end()

    async def _finish_commit(self) -> None:
        """Get ready for the next transaction, for which a commit had no time left."""
        deadline = self._deadline()
        async with self._alone(_COMMIT, deadline) as ending:
            if self.transaction.state is TransactionState.COMMITTED:
                await self._make_ready(deadline)
            ending.is_done = True

    async def _tell_end(self, is_commit: bool, deadline: float) -> None:
        """Send EndTxn, steps 2 to 4 of `_end`."""
        transaction = self.transaction
        before = self._fencing.identity
        identity: ProducerIdentity | None = before
        # Before the request, which may be cancelled at any time: from here on an abort could
        # contradict it.
        transaction.begin_end(is_commit)
        try:
            identity = await self._requests.end(
                before, is_commit, transaction.is_version_2, deadline
            )
        except PAST as error:
            if is_commit:
                raise await self._fencing.explain(error, deadline) from error
            await self._abort_what_is_past(error, deadline)
        # Nothing is known: the state stays, and the call can be repeated.
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            if is_commit:
                await self._settle_refusal(error, deadline)
            else:
                transaction.fail_for_good(error)
            raise
        self._note_end(before, identity)

    async def _settle_refusal(self, error: KafkaError, deadline: float) -> None:
        """Note that a commit was refused with `error`; first make sure that it is not carried out.

        1. EndTxn is carried out, and its response is lost.
        2. It is sent again, and refused by a broker that is in trouble itself.
        3. The application aborts, and does it all again. If the abort succeeded, or if the error
           said that the transaction can be aborted, every record would count twice.

        So if a request got no response, the coordinator is asked to abort. It does so only if it
        has not committed, and takes no commit from then on. If it refuses, or that cannot be found
        out, the producer is at its end. Until there is a response the commit stays open: repeated,
        it is told how the transaction has ended.

        Returns if an abort is possible, else raises.
        """
        transaction = self.transaction
        if transaction.strays.of_commit:
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
        """Note that EndTxn of the identity `before` has succeeded; go on as `identity`."""
        transaction = self.transaction
        transaction.note_end()
        if identity is None:
            transaction.require_new_epoch()
        elif identity != before:
            transaction.note_new_epoch()
            self.sequencer.set_producer_id(*identity)

    async def _abort_what_is_past(self, error: KafkaError, deadline: float) -> None:
        """Decide whether a transaction that the coordinator does not know is as good as aborted.

        Raises `error`, and makes the producer fatal, if it is not.
        """
        transaction = self.transaction
        can_renew = await self._requests.can_renew(deadline)
        if isinstance(error, ProducerFenced):
            # If another producer has the id, the renewal is refused.
            may_go_on = can_renew
        else:
            # There is nothing to abort: the requests that would have added something were cancelled
            # or refused. Should one arrive late, it carries an old epoch. In version 2 an abort of
            # nothing succeeds, and so this says that the transaction has ended in another way.
            is_empty = not transaction.partitions and not transaction.groups
            may_go_on = is_empty and not transaction.is_version_2
        if not may_go_on:
            transaction.fail_for_good(error)
            raise error
        if can_renew:
            transaction.require_new_epoch()

    # -- what it holds

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Add offsets of a group to the transaction."""
        await self.contents.send_offsets(given, group)


async def _wait(event: asyncio.Event, deadline: float, text: str) -> None:
    try:
        async with timeout_at(deadline):
            await event.wait()
    except asyncio.TimeoutError:
        raise KafkaTimeoutError(text) from None
