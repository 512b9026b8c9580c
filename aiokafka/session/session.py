"""Read, process, write, exactly once: transactions that hold what comes of a batch of records and
the positions after it.

Stands on the public API of the consumer and the producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    FencedMemberEpoch,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    StaleMemberEpoch,
    TransactionStateError,
    renewed,
)
from aiokafka.session.listener import SessionListener
from aiokafka.session.transaction import ENDING, OVER, Phase, SessionTransaction
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self

    from aiokafka.consumer.consumer import AIOKafkaConsumer
    from aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["TransactionalSession"]

log = logging.getLogger("aiokafka.session")

# How often a session that waits for records looks whether it is to end.
_LOOK_EVERY_MS = 500
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
# Seconds that a rebalance may wait for the end of a transaction.
_LONGEST_HOLD = 30.0


class _RecordsLeftError(IllegalStateError):
    """A block ended in the midst of its records. They come again."""


_LEFT = (
    "the block of a transaction ended before its loop over the records did (break, return?), so "
    "they are handed out again; if the rest is not wanted, call records.clear()"
)


_GROUP_HAS_MOVED_ON = (RebalanceInProgressError, StaleMemberEpoch, FencedMemberEpoch)


class TransactionalSession:
    """Processes records in transactions: what is sent, and the consumer's positions, are committed
    together or not at all.

    Every record of the input then counts once in the output, whatever fails in between, as seen by
    consumers that read committed. Brokers before Kafka 2.5 take offsets from a member that was
    replaced while its process was frozen, so there it is so with assigned partitions only; with a
    subscription the first transaction logs a warning. It works with a consumer that subscribes, in
    a group of either protocol, and with assigned partitions, which then need a transactional id of
    their own for each set of partitions::

        async with TransactionalSession(consumer, producer) as session:
            async for transaction in session:
                async with transaction as records:
                    for record in records:
                        await transaction.send("out", key=record.key, value=work(record.value))

    Entering starts the producer and the consumer, which must not have been started; leaving stops
    both. A block that is cancelled, or left while records of it were not taken yet, aborts its
    transaction; one in which nobody iterates over the records commits them all.

    The consumer needs `group_id`, `enable_auto_commit=False` and
    `isolation_level="read_committed"`, the producer a `transactional_id`; KafkaConfigurationError
    says what is missing. Records are not to be read from the consumer by other means meanwhile;
    `subscribe()` and `assign()` belong before. Its rebalance listener is called as ever.

    - `max_records`: most records in a transaction.
    - `linger_ms`: how long to wait for more after the first.
    - `retries`: how many times in a row records are handed out again after an error that another
      try may mend, before the error is raised. Partitions taken away do not count.
    - `stop_timeout_ms`: how long aborts may take, all in all, from when the loop is cancelled or
      left.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
        *,
        max_records: int = 1000,
        linger_ms: float = 0,
        retries: int = 10,
        stop_timeout_ms: float = 5000,
    ) -> None:
        _check_clients(consumer, producer)
        _check_count("max_records", max_records, 1)
        _check_count("retries", retries, 0)
        _check_time("linger_ms", linger_ms)
        _check_time("stop_timeout_ms", stop_timeout_ms)
        self.consumer = consumer
        self.producer = producer
        self._log = SubjectLog(log, f"TransactionalSession of {producer!r}")
        self._max_records = max_records
        self._linger = linger_ms / 1000
        self._retries = retries
        self._stop_timeout = stop_timeout_ms / 1000
        self._listener = SessionListener(self._on_revoked, self._on_lost)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._pause = 0.0
        self._current: SessionTransaction | None = None
        self._stop_deadline: float | None = None
        self._failure: KafkaError | None = None
        self._is_ending = False
        self._exits = AsyncExitStack()

    # -- life

    async def __aenter__(self) -> Self:
        self._listener.inner = self.consumer.rebalance_listener
        self.consumer.rebalance_listener = self._listener
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.producer)
            # Not delivered by then, or cancelled: it shall take no longer.
            stack.push_async_callback(self.producer.stop, 0)
            await stack.enter_async_context(self.consumer)
            self._exits = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # By the clients' own exits, which leave nothing behind when they are cancelled.
        async with self._exits:
            # Before the consumer leaves its group and others go on from the committed offsets.
            try:
                await self._settle_in_time()
            finally:
                await self.producer.stop(self._time_left())

    def request_stop(self) -> None:
        """Hand out no more records: the loop over the session ends after the transaction at hand,
        or within half a second if there is none. For signal handlers.
        """
        self._is_ending = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionTransaction:
        """The next transaction, once there are records for it.

        Ends after `request_stop` and when the consumer is stopped. Raises what `getmany` raises,
        and what keeps a former transaction from being settled. A cancelled call has taken nothing.
        """
        current = self._current
        if current is not None and current.phase is Phase.ACTIVE:
            raise IllegalStateError("the former transaction is still open")
        if self.consumer.rebalance_listener is not self._listener:
            raise IllegalStateError(
                "subscribe() or assign() was called within the session, so it cannot know what is "
                "still its own: call them before"
            )
        await self._settle()
        self._stop_deadline = None
        pause, self._pause = self._pause, 0.0
        if pause:
            await asyncio.sleep(pause)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        while not self._is_ending:
            transaction = SessionTransaction(self)
            self._current = transaction
            try:
                await self._fill(transaction)
            except ConsumerStoppedError:
                break
            if transaction.records and not transaction.is_void:
                return transaction
            self._abandon(transaction)
        raise StopAsyncIteration

    async def _fill(self, transaction: SessionTransaction) -> None:
        """Take records, if there are any in a while."""
        wait_ms: float = _LOOK_EVERY_MS
        deadline = 0.0
        loop = asyncio.get_running_loop()
        while wait_ms >= 0 and len(transaction.records) < self._max_records:
            try:
                batches = await self.consumer.getmany(
                    timeout_ms=wait_ms, max_records=self._max_records - len(transaction.records)
                )
            except KafkaError as error:
                if not transaction.records:
                    raise
                # It comes after them, when they are committed; else they are read again, and so
                # is what it is about.
                transaction.failure = error
                return
            # Nothing is awaited that waits: what was read is part of the transaction at once.
            transaction.take(batches)
            for tp in batches:
                transaction.next[tp] = await self.consumer.position(tp)
            if not batches or not self._linger:
                return
            deadline = deadline or loop.time() + self._linger
            wait_ms = (deadline - loop.time()) * 1000

    # -- transactions

    async def begin(self, transaction: SessionTransaction) -> None:
        """Enter the block of `transaction`."""
        if transaction.phase is not Phase.TAKEN or transaction is not self._current:
            raise IllegalStateError(
                "a transaction can be entered once, before the next one is taken"
            )
        await self.producer.begin_transaction()
        transaction.enter(Phase.ACTIVE)

    async def end(self, transaction: SessionTransaction, raised: BaseException | None) -> bool:
        """Leave the block of `transaction`, which `raised`. True: that goes no further."""
        failure = raised
        if raised is None and not transaction.is_void:
            try:
                if transaction.records.is_left_over:
                    raise _RecordsLeftError(_LEFT)
                await self._commit(transaction)
            except KafkaError as error:
                if transaction.phase is Phase.COMMITTING and isinstance(error, KafkaTimeoutError):
                    raise  # the outcome is open: the next step goes on with it
                failure = error
            else:
                self._backoff.reset()
                self._failure = transaction.failure
                return False
        if raised is not None and not isinstance(raised, Exception):
            await self._settle_in_time()  # cancelled
            return False
        return await self._give_back(transaction, raised, failure)

    async def _give_back(
        self,
        transaction: SessionTransaction,
        raised: BaseException | None,
        failure: BaseException | None,
    ) -> bool:
        """Abort; go on if another try may help, else raise."""
        failure = _reason_of(failure)
        try:
            await self._abort(transaction)
        except KafkaError as error:
            if raised is not None and not isinstance(raised, KafkaError):
                self._log.warning("The transaction could not be aborted: %s", error)
                return False  # what the application raised is not to be hidden
            raise
        if transaction.is_void and (failure is None or isinstance(failure, CommitFailedError)):
            self._log.info("A transaction was aborted: partitions of its records were taken away")
            return True
        if failure is not None and _may_pass(failure) and self._backoff.failures < self._retries:
            self._log.warning("A transaction was aborted, its records come again: %s", failure)
            self._pause = self._backoff.next()
            return True
        if raised is None and failure is not None:
            raise renewed(failure) from failure
        return False

    async def _commit(self, transaction: SessionTransaction) -> None:
        transaction.enter(Phase.SENDING_OFFSETS)
        await self.producer.send_offsets_to_transaction(transaction.next, self.consumer)
        if transaction.is_void:
            raise CommitFailedError("partitions were taken away during the transaction")
        transaction.enter(Phase.COMMITTING)
        await self.producer.commit_transaction()
        transaction.enter(Phase.COMMITTED)

    async def _abort(self, transaction: SessionTransaction) -> None:
        if transaction.phase is not Phase.ABORTING:
            transaction.enter(Phase.ABORTING)
        await self.producer.abort_transaction()
        self._abandon(transaction)

    def _abandon(self, transaction: SessionTransaction) -> None:
        """Go back to where its records began."""
        assigned = self.consumer.assignment()
        for tp, offset in transaction.first.items():
            if tp in assigned:
                self.consumer.seek(tp, offset)
        transaction.enter(Phase.ABORTED)

    async def _settle(self) -> None:
        """Bring a transaction to its end whose block was left in the middle of that."""
        transaction = self._current
        if transaction is None or transaction.phase in OVER:
            return
        if transaction.phase is Phase.TAKEN:
            self._abandon(transaction)
        elif transaction.phase is Phase.COMMITTING:
            try:
                await self.producer.commit_transaction()
                transaction.enter(Phase.COMMITTED)
                self._failure = transaction.failure
            except KafkaTimeoutError:
                raise
            except KafkaError as error:
                self._log.warning("A transaction was aborted, its records come again: %s", error)
                await self._abort(transaction)
        else:
            await self._abort(transaction)

    def _time_left(self) -> float:
        """Seconds that what has to be ended may take, from when it was first asked."""
        now = asyncio.get_running_loop().time()
        if self._stop_deadline is None:
            self._stop_deadline = now + self._stop_timeout
        return max(0.0, self._stop_deadline - now)

    async def _settle_in_time(self) -> None:
        try:
            async with timeout(self._time_left()):
                await self._settle()
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.warning("A transaction was left open: %r", error)

    # -- the group

    async def _on_revoked(self, partitions: Set[TopicPartition]) -> None:
        """The group wants partitions. What is being committed is waited for: before Kafka 2.5 their
        next owner would not wait itself.
        """
        transaction = self._current
        if transaction is None or not partitions & transaction.first.keys():
            return
        if transaction.phase in ENDING:
            try:
                async with timeout(_LONGEST_HOLD):
                    await transaction.wait_over()
            except asyncio.TimeoutError:
                self._log.warning("Partitions are given up while a transaction is still ending")
        transaction.give_up(partitions)

    def _on_lost(self, partitions: Set[TopicPartition]) -> None:
        """The group has given partitions to others already."""
        if self._current is not None:
            self._current.give_up(partitions)


def _reason_of(error: BaseException | None) -> BaseException | None:
    """What made the transaction fail, if `error` is of a call that came afterwards."""
    if isinstance(error, TransactionStateError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _may_pass(error: BaseException) -> bool:
    """Whether the same records may do better another time."""
    if isinstance(error, (*_GROUP_HAS_MOVED_ON, _RecordsLeftError)):
        return True
    if not isinstance(error, KafkaError) or error.is_fatal:
        return False
    return error.requires_abort or error.retriable or isinstance(error, KafkaTimeoutError)


def _check_clients(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
    if consumer.group_id is None:
        raise KafkaConfigurationError("consumer: needs group_id, under which positions are kept")
    if consumer.enable_auto_commit:
        raise KafkaConfigurationError(
            "consumer: needs enable_auto_commit=False: positions are committed with transactions"
        )
    if consumer.isolation_level != "read_committed":
        raise KafkaConfigurationError(
            'consumer: needs isolation_level="read_committed": what others abort must not be '
            "processed"
        )
    if producer.transactional_id is None:
        raise KafkaConfigurationError("producer: needs transactional_id")


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: must be an integer of at least {least}")


def _check_time(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name}={value!r}: must be a number of milliseconds, 0 or more")
