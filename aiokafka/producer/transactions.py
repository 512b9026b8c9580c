"""What the transaction calls of a producer do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout_at
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    ProducerFenced,
    TransactionStateError,
)
from aiokafka.producer.fencing import PAST, Fencing
from aiokafka.producer.producer_id import ProducerIdentity
from aiokafka.producer.transaction_contents import TransactionContents
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.producer.transaction_requests import TransactionRequests
from aiokafka.producer.transaction_state import Transaction, TransactionState

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.sender import Sender

__all__ = ["Transactions"]

_COMMIT = "commit_transaction"
_ABORT = "abort_transaction"


class _Ending:
    """A commit or an abort that is under way."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.over = asyncio.Event()
        self.is_done = False
        """Whether it has reached what it was called for."""


class Transactions:
    """Owns the `Transaction` of a producer and takes it from state to state.

    Every call is bounded by `max_block_ms`. One that ran out of time or was cancelled can be made
    again and goes on where it was; nothing else is possible meanwhile. Of calls that end a
    transaction one is carried out at a time: a second of the same kind waits for the first and has
    its result, one of the other kind is refused.
    """

    def __init__(
        self, client: AIOKafkaClient, config: ProducerConfig, sender: Sender, transactional_id: str
    ) -> None:
        self.transaction = Transaction(transactional_id, self._stop_accepting)
        self.manager = TransactionManager(self.transaction)
        self._config = config
        self._sender = sender
        self._requests = TransactionRequests(client, transactional_id)
        self._fencing = Fencing(config, self._requests, self.manager)
        self.contents = TransactionContents(
            client, config, sender, self.transaction, self._requests, self._fencing
        )
        self._errands = self.contents.errands
        self._loop = asyncio.get_running_loop()
        self._ending: _Ending | None = None
        self._is_closed = False

    def _stop_accepting(self) -> None:
        self._sender.accumulator.accept(False)
        if self.transaction.error is not None:
            # Not now: this is called while batches are being settled.
            self._loop.call_soon(self._drop_waiting)

    def _drop_waiting(self) -> None:
        """What has not been sent never will be."""
        error = self.transaction.error
        if error is not None and not self.transaction.takes_records:
            self._sender.drop_waiting(error)

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    # -- the calls

    async def start(self, deadline: float) -> None:
        """Take over the transactional id. Raises KafkaTimeoutError at `deadline` (loop time)."""
        identity = await self._requests.init(self._config.transaction_timeout, None, deadline)
        self.manager.set_producer_id(*identity)
        self.transaction.end()

    async def begin(self) -> None:
        """Start a transaction, after an abort that is not finished."""
        transaction = self.transaction
        transaction.raise_failure()
        transaction.check_may_begin()
        if transaction.state is TransactionState.ABORTING:
            await self.abort()
        is_version_2 = await self._requests.is_version_2(self._deadline())
        if self._is_closed:
            raise ProducerClosed("the producer was stopped; make a new one")
        transaction.raise_failure()
        transaction.begin(is_version_2)
        self._fencing.begin()
        self._sender.accumulator.accept(True)

    async def commit(self) -> None:
        """Deliver everything, then commit."""
        deadline = self._deadline()
        self.transaction.raise_failure()
        async with self._alone(_COMMIT, deadline) as ending:
            if ending.is_done:
                return
            self.transaction.raise_failure()
            self.transaction.begin_commit()
            await self._sender.accumulator.flush(deadline)
            await self._errands.finish(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=True, deadline=deadline)
            ending.is_done = True

    async def abort(self) -> None:
        """Drop what was not sent, then abort."""
        deadline = self._deadline()
        async with self._alone(_ABORT, deadline) as ending:
            if ending.is_done:
                return
            self.transaction.begin_abort()
            self._sender.drop_waiting(KafkaError("not sent: the transaction was aborted"))
            await self._sender.accumulator.flush(deadline)
            await self._errands.recall(deadline)
            self.transaction.raise_failure()
            await self._end(is_commit=False, deadline=deadline)
            ending.is_done = True

    async def close(self) -> None:
        """End what is open: a commit that the coordinator may have been told is finished, the rest
        is aborted.

        What another task has begun is waited for.
        """
        self._is_closed = True
        while self._ending is not None:
            await self._ending.over.wait()
        if self.transaction.is_undecided:
            await self.abort()
        elif self.transaction.state is TransactionState.COMMITTING:
            await self.commit()

    # -- one at a time

    @asynccontextmanager
    async def _alone(self, call: str, deadline: float) -> AsyncIterator[_Ending]:
        """Keep others from ending the transaction.

        What another task has done meanwhile, at the same call, `is_done`.
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
        transaction = self.transaction
        if transaction.has_effects and not transaction.is_ended:
            await self._tell_end(is_commit, deadline)
        if transaction.needs_new_epoch:
            await self._fencing.renew(deadline)
        transaction.end()

    async def _tell_end(self, is_commit: bool, deadline: float) -> None:
        """Tell the coordinator."""
        transaction = self.transaction
        before = self._fencing.identity
        identity: ProducerIdentity | None = before
        transaction.is_ending = is_commit
        try:
            identity = await self._requests.end(
                before, is_commit, transaction.is_version_2, deadline
            )
        except PAST as error:
            if is_commit:
                raise await self._fencing.explain(error, deadline) from error
            await self._abort_what_is_past(error, deadline)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            transaction.fail(error)
            if not is_commit:
                transaction.fail_for_good(error)
            raise
        # From here on a call that is made again has no end to tell.
        transaction.is_ended = True
        if identity is None:
            transaction.needs_new_epoch = True
        elif identity != before:
            transaction.needs_new_epoch = False
            self.manager.set_producer_id(*identity)

    async def _abort_what_is_past(self, error: KafkaError, deadline: float) -> None:
        """The coordinator knows of no such transaction: see whether that is as good as an abort."""
        transaction = self.transaction
        can_renew = await self._requests.can_renew(deadline)
        if isinstance(error, ProducerFenced):
            may_go_on = can_renew  # whether it was the time-out or another, shows with the renewal
        else:
            # There is nothing to abort: what was to enter something was cancelled or refused.
            # Should it come late, it is of an old epoch.
            may_go_on = not transaction.partitions and not transaction.groups
        if not may_go_on:
            transaction.fail_for_good(error)
            raise error
        transaction.needs_new_epoch |= can_renew

    # -- what it holds

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Make offsets of a group part of the transaction."""
        await self.contents.send_offsets(given, group)


async def _wait(event: asyncio.Event, deadline: float, text: str) -> None:
    try:
        async with timeout_at(deadline):
            await event.wait()
    except asyncio.TimeoutError:
        raise KafkaTimeoutError(text) from None
