"""What programs for aiokafka read of a producer's identity and transaction, at `_txn_manager`."""

from __future__ import annotations

from aiokafka.producer.sending.sequencer import Sequencer
from aiokafka.producer.transactions.state import TransactionState

__all__ = ["TransactionView"]


class TransactionView:
    """The state of an idempotent producer by aiokafka's names. It owns nothing."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer

    @classmethod
    def of(cls, sequencer: Sequencer | None, *, is_demanded: bool) -> TransactionView | None:
        """Return the view of a producer. One that insists on idempotence has it from the
        constructor on, another one with its producer id."""
        if sequencer is None and not is_demanded:
            return None
        return cls(sequencer or Sequencer())

    @property
    def transactional_id(self) -> str | None:
        """The id; None for a producer without transactions."""
        transaction = self._sequencer.transaction
        return None if transaction is None else transaction.transactional_id

    @property
    def producer_id(self) -> int:
        """The producer id; -1 before there is one."""
        return self._sequencer.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the producer id; -1 before there is one."""
        return self._sequencer.producer_epoch

    @property
    def state(self) -> TransactionState:
        """The state of the transaction; without transactions UNINITIALIZED."""
        transaction = self._sequencer.transaction
        return TransactionState.UNINITIALIZED if transaction is None else transaction.state

    def has_pid(self) -> bool:
        """Say whether there is a producer id."""
        return self.producer_id != -1

    def is_in_transaction(self) -> bool:
        """Say whether a transaction is open and has not failed."""
        return self.state is TransactionState.IN_TRANSACTION

    def is_fatal_error(self) -> bool:
        """Say whether the producer has failed for good, so that nothing can be aborted."""
        return self.state is TransactionState.FATAL
