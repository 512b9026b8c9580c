"""Why the brokers do not take a transaction's requests any more."""

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
from aiokafka.producer.producer_id import ProducerIdentity
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.producer.transaction_requests import TransactionRequests

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig

__all__ = ["PAST", "Fencing"]

PAST = (ProducerFenced, InvalidTxnState)
"""The epoch is, or the transaction of that epoch was ended by somebody else."""


class Fencing:
    """Finds out who ended a transaction, and gets new epochs."""

    def __init__(
        self, config: ProducerConfig, requests: TransactionRequests, manager: TransactionManager
    ) -> None:
        self._config = config
        self._requests = requests
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._begun = 0.0

    def begin(self) -> None:
        """A transaction begins: its time runs."""
        self._begun = self._loop.time()

    @property
    def identity(self) -> ProducerIdentity:
        """Who the producer is to the brokers."""
        return ProducerIdentity(self._manager.producer_id, self._manager.producer_epoch)

    async def renew(self, deadline: float) -> None:
        """Get a new epoch, under which no sequence number was used (KIP-360).

        After a KafkaTimeoutError it can be called again; another error is the end of the producer.
        """
        transaction = self._manager.transaction
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
        self._manager.set_producer_id(*identity)

    async def explain(self, past: BaseException, deadline: float) -> BaseException:
        """What has become of the transaction, the brokers saying (`past`) that it is over.

        Another producer with the transactional id is one cause. The other is a transaction that
        took too long: its coordinator has aborted it under the next epoch, and gives that to its
        former owner, but to nobody else (KIP-588, KIP-360). The transaction has failed afterwards,
        unless the result is a KafkaTimeoutError: then nothing is known.
        """
        transaction = self._manager.transaction
        assert transaction is not None
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
        transaction.fail(late)
        transaction.has_effects = transaction.needs_new_epoch = False
        return renewed(late)

    def _reason(self) -> str:
        limit = self._config.transaction_timeout
        if self._loop.time() - self._begun < limit:
            return "the transaction was ended by its coordinator or an administrator"
        return (
            f"the transaction took longer than transaction_timeout_ms={limit * 1000:g}, so its "
            "coordinator has aborted it"
        )
