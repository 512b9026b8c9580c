"""Requests that belong to one transaction, and that its end waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiokafka._tasks import TaskOwner
from aiokafka.errors import (
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    ProducerFenced,
    TransactionStateError,
)
from aiokafka.producer.transactions.state import Transaction

__all__ = ["Errand", "Errands"]

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
