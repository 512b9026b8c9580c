"""Read, process and write exactly once: transactions with the results of a batch of records and the
positions after it.

Uses only the public API of the consumer and the producer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Set
from contextlib import AsyncExitStack
from typing import Any, Generic

import aiokafka
from aiokafka._backoff import Backoff
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._typing import KT, VT, KeySent, Self, ValueSent
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    FencedInstanceId,
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
from aiokafka.session.transaction import ENDING, OVER, SessionPhase, SessionTransaction
from aiokafka.structs import TopicPartition

__all__ = ["SessionListener", "TransactionalSession"]


# -- Report rebalances to a session and to the application's own listener


class SessionListener(ConsumerRebalanceListener):
    """Stands between the consumer and the application's own listener, which it calls second."""

    def __init__(self, session: TransactionalSession) -> None:
        self._session = session
        self.inner: Any = None
        """The listener of the application."""

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self._session.partitions_revoked(revoked)
        if self.inner is not None:
            await _call(self.inner.on_partitions_revoked, revoked)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._session.partitions_lost(lost)
        if self.inner is not None:
            # Listeners that are not subclasses may have the other two methods only.
            on_lost = getattr(self.inner, "on_partitions_lost", self.inner.on_partitions_revoked)
            await _call(on_lost, lost)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        if self.inner is not None:
            await _call(self.inner.on_partitions_assigned, assigned)


async def _call(method: Callable[[Any], Any], partitions: Set[TopicPartition]) -> None:
    result = method(partitions)
    if inspect.isawaitable(result):
        await result


log = logging.getLogger("aiokafka.session")

# How often a session that waits for records checks whether it is to end.
_LOOK_EVERY_MS = 500
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
# Seconds that a rebalance may wait for the end of a transaction.
_LONGEST_HOLD = 30.0


class _RecordsLeftError(IllegalStateError):
    """A block ended before it had read all its records. They are read again."""


_LEFT = (
    "the block of a transaction ended before its loop over the records did (break, return?), so "
    "they are returned again; if the rest is not wanted, call records.clear()"
)


_AGAIN = "A transaction was aborted, its records are read again: %s"

_GROUP_HAS_MOVED_ON = (RebalanceInProgressError, StaleMemberEpoch, FencedMemberEpoch)


class TransactionalSession(Generic[KT, VT, KeySent, ValueSent]):
    """Processes records in transactions: what is sent, and the consumer's positions, are committed
    together or not at all.

    Every record of the input then counts once in the output, whatever fails in between, as seen by
    consumers with `isolation_level="read_committed"`. Brokers before Kafka 2.5 take offsets from a
    member that was replaced while its process was frozen, so there this holds with assigned
    partitions only; with a subscription the first transaction logs a warning. A session works with
    a consumer that subscribes, in a group of either protocol, and with assigned partitions, which
    need a transactional id of their own for each set of partitions::

        async with TransactionalSession(consumer, producer) as session:
            async for transaction in session:
                async with transaction as records:
                    for record in records:
                        await transaction.send("out", key=record.key, value=work(record.value))

    Entering starts the producer and the consumer, which must not have been started; leaving stops
    both. A block that is cancelled, or left before its loop over the records has ended, aborts its
    transaction; one that never iterates over the records commits them all.

    The consumer needs `group_id`, `enable_auto_commit=False` and
    `isolation_level="read_committed"`, the producer a `transactional_id`; KafkaConfigurationError
    says what is missing. Do not read records from the consumer by other means meanwhile, and call
    `subscribe()` and `assign()` before. The consumer's rebalance listener is called as usual.

    - `max_records`: most records in a transaction.
    - `linger_ms`: how long to wait for more after the first.
    - `retries`: how many times in a row records are returned again after an error that a retry may
      mend, before the error is raised. Revoked partitions do not count.
    - `stop_timeout_ms`: how long all aborts together may take, from when the loop is cancelled or
      left.
    """

    def __init__(
        self,
        consumer: aiokafka.AIOKafkaConsumer[KT, VT],
        producer: aiokafka.AIOKafkaProducer[KeySent, ValueSent],
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
        self._listener = SessionListener(self)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._pause = 0.0
        self._current: SessionTransaction | None = None
        self._stop_deadline: float | None = None
        self._failure: KafkaError | None = None
        self._is_ending = False
        self._is_busy = False
        self._exits = AsyncExitStack()

    # -- life

    async def __aenter__(self) -> Self:
        # Ours is there already if this failed before for want of a broker, and is tried again.
        if self.consumer.rebalance_listener is not self._listener:
            self._listener.inner = self.consumer.rebalance_listener
        # Before the consumer starts: its first assignment must not pass the session by.
        self.consumer.rebalance_listener = self._listener
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.producer)
            # What is not delivered by then, or was cancelled, must take no longer.
            stack.push_async_callback(self.producer.stop, 0)
            await stack.enter_async_context(self.consumer)
            self._exits = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # The exits of the clients leave nothing behind when they are cancelled.
        async with self._exits:
            # Before the consumer leaves its group and others go on from the committed offsets.
            try:
                await self._settle_in_time()
            finally:
                await self.producer.stop(self._time_left())

    def request_stop(self) -> None:
        """End the loop over the session after the current transaction, or within half a second if
        there is none. Signal handlers may call it.
        """
        self._is_ending = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionTransaction[KT, VT, KeySent, ValueSent]:
        """Return the next transaction, once there are records for it.

        Ends after `request_stop` and when the consumer is stopped. Raises what `getmany` raises,
        and what prevents a former transaction from being settled; IllegalStateError while another
        task is at the session: one transaction follows the other. A cancelled call has taken
        nothing.
        """
        if self._is_busy:
            # It would settle what the other one takes or ends, and go on behind its records.
            raise IllegalStateError(
                "another task waits for a transaction of this session, or ends one"
            )
        self._is_busy = True
        try:
            return await self._next()
        finally:
            self._is_busy = False

    async def _next(self) -> SessionTransaction[KT, VT, KeySent, ValueSent]:
        current = self._current
        if current is not None and current.phase is SessionPhase.ACTIVE:
            raise IllegalStateError("the former transaction is still open")
        if self.consumer.rebalance_listener is not self._listener:
            raise IllegalStateError(
                "subscribe() or assign() was called within the session, so it cannot know what is "
                "still its own: call them before"
            )
        # The end of the former transaction may have been cut short: nothing new begins before that
        # is settled, as its records may have to come again.
        await self._settle()
        self._stop_deadline = None
        pause, self._pause = self._pause, 0.0
        if pause:
            await asyncio.sleep(pause)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        while not self._is_ending:
            transaction: SessionTransaction[KT, VT, KeySent, ValueSent] = SessionTransaction(self)
            self._current = transaction
            try:
                await self._fill(transaction)
            except ConsumerStoppedError:
                break
            if transaction.records and not transaction.is_void:
                return transaction
            await self._abandon(transaction)
        raise StopAsyncIteration

    async def _fill(self, transaction: SessionTransaction) -> None:
        """Read records into `transaction`; return without any if there are none for a while."""
        wait_ms: float = _LOOK_EVERY_MS
        deadline = 0.0
        loop = asyncio.get_running_loop()
        while wait_ms >= 0 and len(transaction.records) < self._max_records:
            if deadline and self._is_ending:
                return  # what was taken is the last transaction
            try:
                batches = await self.consumer.getmany(
                    timeout_ms=wait_ms, max_records=self._max_records - len(transaction.records)
                )
            except KafkaError as error:
                if not transaction.records:
                    raise
                # Raised after them, once they are committed. If they are not, they are read again,
                # and the record or partition with the error is, too.
                transaction.keep_failure(error)
                return
            # `position` does not suspend here: what was read is part of the transaction at once.
            transaction.take(batches)
            for tp in batches:
                transaction.add_position(tp, await self.consumer.position(tp))
            if not self._linger or not (batches or deadline):
                return
            deadline = deadline or loop.time() + self._linger
            wait_ms = min(_LOOK_EVERY_MS, (deadline - loop.time()) * 1000)

    # -- transactions

    async def begin(self, transaction: SessionTransaction) -> None:
        """Enter the block of `transaction`."""
        if transaction.phase is not SessionPhase.TAKEN or transaction is not self._current:
            raise IllegalStateError(
                "a transaction can be entered once, before the next one is taken"
            )
        await self.producer.begin_transaction()
        transaction.enter(SessionPhase.ACTIVE)

    async def end(self, transaction: SessionTransaction, raised: BaseException | None) -> bool:
        """Leave the block of `transaction`, which `raised`; return whether to suppress that."""
        self._is_busy = True
        try:
            return await self._end(transaction, raised)
        finally:
            self._is_busy = False

    async def _end(self, transaction: SessionTransaction, raised: BaseException | None) -> bool:
        failure = raised
        if raised is None and not transaction.is_void:
            try:
                if transaction.records.is_left_over:
                    raise _RecordsLeftError(_LEFT)
                await self._commit(transaction)
            except KafkaError as error:
                if transaction.phase is SessionPhase.COMMITTING and isinstance(
                    error, KafkaTimeoutError
                ):
                    raise  # the outcome is unknown: the next step goes on with the commit
                failure = error
            else:
                self._backoff.reset()
                self._failure = transaction.failure
                return False
        # Cancelled, or the program ends: no retry, and no more time than `stop_timeout_ms`.
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
        """Abort; return True if a retry of the records may help, else raise the error."""
        failure = _reason_of(failure)
        try:
            await self._abort(transaction)
        except KafkaError as error:
            if raised is not None and not isinstance(raised, KafkaError):
                self._log.warning("The transaction could not be aborted: %s", error)
                return False  # the exception of the application must not be hidden
            raise
        if transaction.is_void and (failure is None or isinstance(failure, CommitFailedError)):
            self._log.info("A transaction was aborted: partitions of its records were revoked")
            return True
        if failure is not None and _may_pass(failure) and self._backoff.failures < self._retries:
            self._log.warning(_AGAIN, failure)
            self._pause = self._backoff.next()
            return True
        if raised is None and failure is not None:
            raise renewed(failure) from failure
        return False

    async def _commit(self, transaction: SessionTransaction) -> None:
        """Commit the results and the positions together, unless partitions are revoked before.

        A rebalance may begin at any await, and `partitions_revoked` runs in the consumer's task:

        1. Before SENDING_OFFSETS: the listener does not wait. The transaction is void, and is
           aborted instead of committed.
        2. While the offsets are sent: the listener waits for the end of the transaction, so the
           group keeps the partitions ours. If it waited too long, the transaction is void: the
           check between the two requests finds that.
        3. While the commit is sent: the listener waits as well. Without it, brokers before Kafka
           2.5 would give the next owner the old position while the commit is under way, and the
           records would count twice. Newer brokers have the next owner wait by themselves.
        4. The member is fenced without the listener (`partitions_lost`): brokers since Kafka 2.5
           refuse its offsets by member and generation (KIP-447), so the commit fails.
        """
        transaction.enter(SessionPhase.SENDING_OFFSETS)
        offsets = {
            tp: await self._in_log(tp, offset)
            for tp, offset in transaction.next.items()
            if not self._is_lost(tp)
        }
        await self.producer.send_offsets_to_transaction(offsets, self.consumer)
        if transaction.is_void:
            raise CommitFailedError("partitions were revoked during the transaction")
        # Before the request: if this call ends here, what comes next must repeat the commit, and
        # never abort.
        transaction.enter(SessionPhase.COMMITTING)
        await self.producer.commit_transaction()
        transaction.enter(SessionPhase.COMMITTED)

    async def _abort(self, transaction: SessionTransaction) -> None:
        """Abort, also what is left of a commit.

        Raises TransactionStateError, and changes nothing, if that commit may have been sent.
        """
        is_commit = transaction.phase is SessionPhase.COMMITTING
        if not is_commit and transaction.phase is not SessionPhase.ABORTING:
            transaction.enter(SessionPhase.ABORTING)
        await self.producer.abort_transaction()
        if is_commit:
            transaction.enter(SessionPhase.ABORTING)
        await self._abandon(transaction)

    async def _abandon(self, transaction: SessionTransaction) -> None:
        """Go back to the first records, in partitions that are still ours. Does not suspend.

        Not in one that was revoked and came back meanwhile: another member may have committed later
        positions, and the consumer begins at those.
        """
        for tp, offset in transaction.first.items():
            if tp in self.consumer.assignment() and not self._is_lost(tp):
                self.consumer.seek(tp, await self._in_log(tp, offset))
        transaction.enter(SessionPhase.ABORTED)

    def _is_lost(self, tp: TopicPartition) -> bool:
        """Return whether the consumer looks for another position: the topic was made again, or the
        log lacks the former one. An offset of before would skip records."""
        if tp not in self.consumer.assignment():
            return False
        end = self.consumer.known_end_offsets()[tp]
        return end is not None and end >= 0 and self.consumer.lag(tp) is None

    async def _in_log(self, tp: TopicPartition, offset: int) -> int:
        """Return `offset`, or the position if the consumer has gone back behind it: the log was
        cut, or the topic was made again, and there the offset would skip records. Does not suspend.
        """
        # Without a known position, asking for it would wait.
        if tp not in self.consumer.assignment() or self.consumer.lag(tp) is None:
            return offset
        try:
            return min(offset, await self.consumer.position(tp))
        except (KafkaError, ConsumerStoppedError):
            return offset  # what keeps the consumer from reading is raised by the next read

    async def _settle(self) -> None:
        """End a transaction whose block was left while it was ending.

        In COMMITTING the outcome is unknown, so the commit is repeated: the coordinator carries it
        out now, or responds as it did before. After a KafkaTimeoutError it may be unknown still:
        then the abort is refused, and the next step goes on. But if a record was not delivered in
        time, the commit was not sent, and never would be. Everything earlier is aborted.
        """
        transaction = self._current
        if transaction is None or transaction.phase in OVER:
            return
        if transaction.phase is SessionPhase.TAKEN:
            await self._abandon(transaction)
        elif transaction.phase is SessionPhase.COMMITTING:
            try:
                await self.producer.commit_transaction()
                transaction.enter(SessionPhase.COMMITTED)
                self._failure = transaction.failure
            except KafkaError as error:
                try:
                    await self._abort(transaction)
                except TransactionStateError:
                    raise error from None
                self._log.warning(_AGAIN, error)
        else:
            await self._abort(transaction)

    def _time_left(self) -> float:
        """Return the seconds left of `stop_timeout_ms`, which runs from the first call."""
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

    async def partitions_revoked(self, partitions: Set[TopicPartition]) -> None:
        """Give up `partitions`, which the group revokes; first wait for a commit: see `_commit`."""
        transaction = self._current
        if transaction is None or not partitions & transaction.next.keys():
            return
        if transaction.phase in ENDING:
            try:
                async with timeout(_LONGEST_HOLD):
                    await transaction.wait_over()
            except asyncio.TimeoutError:
                self._log.warning("Partitions are revoked while a transaction is still ending")
        transaction.give_up(partitions)

    def partitions_lost(self, partitions: Set[TopicPartition]) -> None:
        """Give up `partitions`, which the group has assigned to other members already."""
        if self._current is not None:
            self._current.give_up(partitions)


def _reason_of(error: BaseException | None) -> BaseException | None:
    """Return what made the transaction fail, if `error` is that of a later call."""
    if isinstance(error, TransactionStateError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _may_pass(error: BaseException) -> bool:
    """Return whether a retry of the same records may succeed."""
    if isinstance(error, (*_GROUP_HAS_MOVED_ON, _RecordsLeftError)):
        return True
    # The producer survives FencedInstanceId, but the consumer does not.
    if not isinstance(error, KafkaError) or error.is_fatal or isinstance(error, FencedInstanceId):
        return False
    return error.requires_abort or error.retriable or isinstance(error, KafkaTimeoutError)


def _check_clients(
    consumer: aiokafka.AIOKafkaConsumer, producer: aiokafka.AIOKafkaProducer
) -> None:
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
