"""A transaction as an `async with` block."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from aiokafka.errors import KafkaError
from aiokafka.producer.sending.sender import log

if TYPE_CHECKING:
    from typing_extensions import Self

    from aiokafka.producer.transactions.transactions import ProducerTransactions

__all__ = ["TransactionContext"]


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
