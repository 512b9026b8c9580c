"""Find out why brokers refuse the requests of a transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionAbortable,
    renewed,
)
from aiokafka.producer.sending.producer_id import ProducerIdentity
from aiokafka.producer.sending.sequencer import Sequencer
from aiokafka.producer.transactions.requests import TransactionRequests

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig

__all__ = ["PAST", "Fencing"]

PAST = (ProducerFenced, InvalidTxnState)
"""Errors that mean: our epoch is stale, or another party has ended the transaction."""


class Fencing:
    """Finds out what ended a transaction, and gets new epochs. Owns when the transaction began."""

    def __init__(
        self, config: ProducerConfig, requests: TransactionRequests, sequencer: Sequencer
    ) -> None:
        self._config = config
        self._requests = requests
        self._sequencer = sequencer
        self._loop = asyncio.get_running_loop()
        self._begun = 0.0

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

    async def explain(self, past: BaseException, deadline: float) -> BaseException:
        """Find out why a broker refused a request with `past`; return the error to raise.

        Brokers send the same error for two causes, and only one of them is fatal:

        1. Another producer with the transactional id has started. The coordinator has given it the
           next epoch, and refuses ours for ever.
        2. The transaction took longer than `transaction_timeout_ms`. The coordinator has aborted it
           under the next epoch, and gives that to its former owner, but to no other (KIP-588,
           KIP-360).

        To tell them apart we ask for the next epoch in the name of the current one: it is refused
        in the first case. Brokers before 2.5 cannot tell, so with them both are fatal.

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
