"""Find out why brokers refuse the requests of a transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka.errors import (
    BrokerResponseError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionAbortable,
    renewed,
)
from aiokafka.producer.sending.sender import ProducerIdentity
from aiokafka.producer.sending.sequencer import Sequencer
from aiokafka.producer.transactions.requests import Remaining, TransactionRequests

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig

__all__ = ["PAST", "Fencing"]

PAST = (ProducerFenced, InvalidTxnState)
"""Errors that mean: our epoch is stale, or another party has ended the transaction."""


@dataclass
class _Untold:
    """What has to be added to a transaction of nothing before it is aborted."""

    partitions: Remaining
    groups: set[str]


class Fencing:
    """Finds out what ended a transaction, gets new epochs, and has old ones refused.

    Owns: when the transaction began, and which brokers have not heard of a new epoch.
    """

    def __init__(
        self, config: ProducerConfig, requests: TransactionRequests, sequencer: Sequencer
    ) -> None:
        self._config = config
        self._requests = requests
        self._sequencer = sequencer
        self._loop = asyncio.get_running_loop()
        self._begun = 0.0
        self._untold: _Untold | None = None

    def begin(self) -> None:
        """Note that a transaction begins: its timeout runs from now on."""
        self._begun = self._loop.time()

    @property
    def identity(self) -> ProducerIdentity:
        """The id and epoch that brokers know the producer by."""
        return ProducerIdentity(self._sequencer.producer_id, self._sequencer.producer_epoch)

    async def renew(self, deadline: float) -> None:
        """Get a new epoch, under which no sequence number was used (KIP-360).

        Can be called again after a KafkaTimeoutError; any other error is fatal for the producer.
        """
        transaction = self._sequencer.transaction
        assert transaction is not None
        if not self._requests.may_have_epoch:
            told = await self._check_owner(deadline)
            if told is not None and told != self.identity:
                self._sequencer.set_producer_id(*told)
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
        self._sequencer.set_producer_id(*identity)

    async def shut_out(self, deadline: float) -> None:
        """Have brokers refuse what strays from a transaction that was ended (before KIP-890).

        1. A request of the transaction gets no response, and is given up or sent again. The
           transaction ends, and markers say so, under its own epoch.
        2. The request arrives after all. Its epoch is the last that the broker knows. So a leader
           writes its records, and a group coordinator stores its offsets, maybe over later ones.
        3. Nothing ends these but the marker of the next transaction. If that is committed, they
           are, too: whether it is a transaction of this producer, or of another that takes over
           the id. And if the request was EndTxn, it ends the next transaction in the middle.
        4. So the producer gets another epoch. The coordinator knows it, and refuses the EndTxn.
        5. The others do not know it yet. They learn it from the marker of a transaction of nothing,
           which is aborted. What has arrived before is aborted by it, the rest is refused. (But
           before Kafka 2.4 group coordinators take offsets of any epoch, at any time.)

        Can be called again after a KafkaTimeoutError, and goes on where it was: at a coordinator
        with an open transaction, step 4 would fence this producer. Any other error is fatal.
        """
        transaction = self._sequencer.transaction
        assert transaction is not None
        if transaction.strays and self._untold is None:
            await self.renew(deadline)
            transaction.note_new_epoch()
            strays = transaction.strays.take()
            if strays.partitions or strays.groups:
                self._untold = _Untold(Remaining(strays.partitions), strays.groups)
        if self._untold is not None:
            try:
                await self._tell(self._untold, deadline)
            except KafkaTimeoutError:
                raise
            except KafkaError as error:
                transaction.fail_for_good(error)
                raise
            self._untold = None
        if transaction.strays:
            # Of step 5: only the coordinator could still carry them out.
            transaction.require_new_epoch()

    async def _check_owner(self, deadline: float) -> ProducerIdentity | None:
        """Raise ProducerFenced if another producer has the transactional id.

        `init` would do harm to it, although it is refused: a coordinator ends the open transaction
        and fences its owner before it looks at who asks. (Before Kafka 2.5 it is not even refused.)
        An abort of what is ours, or of nothing, has no effect on others, and tells whether the
        epoch is past. That tells nothing if the next epoch may be ours already (`may_have_epoch`):
        then it is asked for all the same.

        Returns the identity for the next transaction: another one in version 2, in which every
        abort raises the epoch. None if it is not told.
        """
        transaction = self._sequencer.transaction
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
            # An id that was not used for days is forgotten, and can be had again. If another
            # producer id belongs to it, `init` is refused at once.
            is_forgotten = isinstance(error, InvalidProducerIdMapping)
            if is_forgotten and await self._requests.can_renew(deadline):
                return None
            transaction.fail_for_good(error)
            raise

    async def _tell(self, untold: _Untold, deadline: float) -> None:
        """Abort a transaction of nothing, with these partitions and groups.

        Takes from `untold` what was added: a call that goes on with it needs only the rest of the
        time. Otherwise no call would finish, if `max_block_ms` is not enough for all at once.
        """
        await self._requests.add_remaining(self.identity, untold.partitions, deadline)
        for group_id in sorted(untold.groups):
            try:
                await self._requests.add_group(self.identity, group_id, deadline)
            except BrokerResponseError as error:
                if isinstance(error, PAST):
                    raise
            untold.groups.discard(group_id)
        try:
            await self._requests.end(self.identity, False, False, deadline)
        except InvalidTxnState:
            pass  # nothing could be added

    async def explain(self, past: BaseException, deadline: float) -> BaseException:
        """Find out why a broker refused a request with `past`; return the error to raise.

        Brokers send the same error for two causes, and only one of them is fatal:

        1. Another producer with the transactional id has started. The coordinator has given it the
           next epoch, and refuses ours for ever.
        2. The transaction took longer than `transaction_timeout_ms`. The coordinator has aborted it
           under the next epoch, and gives that to its former owner, but to no other (KIP-588,
           KIP-360).

        To tell them apart we ask for the next epoch in the name of the current one: `renew` is
        refused in the first case. In version 1 of transactions brokers cannot tell, so that there
        both are fatal.

        The transaction has failed afterwards, unless the result is a KafkaTimeoutError: then
        nothing is known, and the call can be repeated.
        """
        transaction = self._sequencer.transaction
        assert transaction is not None
        # Two requests may have been refused for the same reason: the first has found it out.
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
