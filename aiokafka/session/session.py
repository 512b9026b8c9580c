"""Exactly-once processing: transactions with the results of some records and their offsets.

This package uses only the public API of the consumer and the producer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Set
from contextlib import AsyncExitStack
from typing import Any, Generic

import aiokafka
from aiokafka._arguments import as_having, as_int, as_milliseconds
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
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


# -- The rebalance listener of the consumer


class SessionListener(ConsumerRebalanceListener):
    """The rebalance listener of a session. It removes revoked and lost partitions from the
    transaction of the session, and then calls the application's own listener."""

    def __init__(self, session: TransactionalSession) -> None:
        self._session = session
        self.inner: Any = None
        """The listener of the application."""

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self._session._partitions_revoked(revoked)
        if self.inner is not None:
            await _call(self.inner.on_partitions_revoked, revoked)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._session._partitions_lost(lost)
        if self.inner is not None:
            # Listeners that are not subclasses may lack this method.
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

# Milliseconds between two checks of `request_stop()` while a session waits for records.
_STOP_CHECK_MS = 500
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
# A rebalance waits at most this number of seconds for the commit of a transaction. After this time
# the rebalance continues, and the transaction is aborted unless its commit was sent.
_MAX_REVOKE_WAIT = 30.0


class _RecordsLeftError(IllegalStateError):
    """The block of a transaction ended before its loop over the records had reached the last
    record. The transaction is aborted, and the records are read again."""


_RECORDS_LEFT = (
    "the block of a transaction left its loop over the records early (by break or return?), so "
    "all records are returned again; to skip the remaining records, call records.clear()"
)


_READ_AGAIN = "A transaction was aborted, and its records are read again: %s"

_GROUP_HAS_MOVED_ON = (RebalanceInProgressError, StaleMemberEpoch, FencedMemberEpoch)


class TransactionalSession(Generic[KT, VT, KeySent, ValueSent]):
    """Processes records in transactions: the sent records and the consumer's offsets are committed
    together, or not at all.

    Consumers with `isolation_level="read_committed"` then see the result of each input record
    exactly once, even after failures::

        async with TransactionalSession(consumer, producer) as session:
            async for transaction in session:
                async with transaction as records:
                    for record in records:
                        await transaction.send("out", key=record.key, value=work(record.value))

    Entering the session starts the producer and the consumer, which must not be started before;
    leaving it stops both. If a block is cancelled, or left before its loop over the records has
    ended, its transaction is aborted. A block without a loop over the records commits all records.

    A session works with a subscribed consumer, in a group of either protocol, and with a consumer
    with manually assigned partitions. Each set of partitions given to `assign()` needs its own
    transactional id. Brokers before Kafka 2.5 accept offsets from a member that was replaced while
    its process was frozen. With these brokers, exactly-once holds only for `assign()`; with a
    subscription, the first transaction logs a warning.

    The consumer needs `group_id`, `enable_auto_commit=False` and
    `isolation_level="read_committed"`, the producer a `transactional_id`; without these options,
    KafkaConfigurationError is raised. Call `subscribe()` or `assign()` before the session, and read
    the consumer's records only through the session. The consumer's rebalance listener is called as
    usual.

    - `max_records`: maximum number of records in a transaction.
    - `linger_ms`: how long to wait for more records after the first records.
    - `retries`: how many times in a row records are returned again after a recoverable error,
      before the error is raised. An abort because of revoked partitions does not count.
    - `stop_timeout_ms`: maximum time to complete the open transaction and to stop the producer,
      counted from the cancellation of a block or from the exit of the session.
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
        self.consumer = consumer
        self.producer = producer
        self._log = SubjectLog(log, f"TransactionalSession of {producer!r}")
        self._max_records = as_int("max_records", max_records, 1)
        self._linger = as_milliseconds("linger_ms", linger_ms) / 1000
        self._retries = as_int("retries", retries, 0)
        self._stop_timeout = as_milliseconds("stop_timeout_ms", stop_timeout_ms) / 1000
        self._listener = SessionListener(self)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._pause = 0.0
        self._current: SessionTransaction | None = None
        # The assigned partitions of which the group has a committed offset.
        self._started: set[TopicPartition] = set()
        self._stop_deadline: float | None = None
        self._failure: KafkaError | None = None
        self._is_ending = False
        self._is_busy = False
        self._exits = AsyncExitStack()

    # -- lifecycle

    async def __aenter__(self) -> Self:
        # After a failed `__aenter__`, for example without a broker, our listener is set already.
        if self.consumer.rebalance_listener is not self._listener:
            self._listener.inner = self.consumer.rebalance_listener
        # Set the listener before the consumer starts, so that it gets the first assignment.
        self.consumer.rebalance_listener = self._listener
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.producer)
            # `stop(0)` does not wait for undelivered records: `__aexit__` has waited for them.
            stack.push_async_callback(self.producer.stop, 0)
            await stack.enter_async_context(self.consumer)
            self._exits = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # The `__aexit__()` methods of consumer and producer clean up even if they are cancelled.
        async with self._exits:
            # End the transaction before the consumer leaves its group: the next owners of its
            # partitions continue from the committed offsets.
            try:
                await self._complete_in_time()
            finally:
                await self.producer.stop(self._time_left())

    def request_stop(self) -> None:
        """End the loop over the session after the current transaction, or within half a second if
        there is no transaction. Signal handlers may call this method.
        """
        self._is_ending = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionTransaction[KT, VT, KeySent, ValueSent]:
        """Return the next transaction, as soon as there are records for it.

        The loop ends after `request_stop()` and when the consumer is stopped. Raises the errors of
        `getmany()`, and errors that prevent the commit or abort of the previous transaction. Raises
        IllegalStateError while the previous transaction is open, and while another task waits for a
        transaction or ends one. If a call is cancelled, the next call returns the same records.
        """
        if self._is_busy:
            # This call would abort or commit the transaction of the other task.
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
            raise IllegalStateError("the previous transaction is still open")
        if self.consumer.rebalance_listener is not self._listener:
            raise IllegalStateError(
                "subscribe() or assign() was called within the session, so it gets no notice of "
                "revoked partitions: call them before the session"
            )
        # The commit or abort of the previous transaction may have been interrupted. Complete it
        # before new records are read, because the previous records may have to be read again.
        await self._complete_interrupted()
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
                starts = await self._missing_offsets(transaction)
            except ConsumerStoppedError:
                break
            if transaction.phase in OVER:
                break  # another task has left the session meanwhile
            if starts:
                await self._abandon(transaction)
                await self._commit_starts(starts)
                return await self._next()
            if transaction.records and not transaction.is_void:
                return transaction
            await self._abandon(transaction)
        raise StopAsyncIteration

    async def _fill(self, transaction: SessionTransaction) -> None:
        """Read up to `max_records` records into `transaction`, for up to `linger_ms` after the
        first records. If none arrive within `_STOP_CHECK_MS`, return without records.

        Raises the errors of `getmany()`; but if records were read before the error, stores the
        error in `transaction`.
        """
        wait_ms: float = _STOP_CHECK_MS
        deadline = 0.0
        loop = asyncio.get_running_loop()
        while wait_ms >= 0 and len(transaction.records) < self._max_records:
            if deadline and self._is_ending:
                return  # the records read so far are the last transaction
            try:
                batches = await self.consumer.getmany(
                    timeout_ms=wait_ms, max_records=self._max_records - len(transaction.records)
                )
            except KafkaError as error:
                if not transaction.records:
                    raise
                # Commit the records before the error first, then raise the error. After an abort,
                # all of these records are read again.
                transaction.keep_failure(error)
                return
            # `position()` does not suspend here, so records and offsets are added in one step.
            transaction.take(batches)
            for tp in batches:
                transaction.add_position(tp, await self.consumer.position(tp))
            if not self._linger or not (batches or deadline):
                return
            deadline = deadline or loop.time() + self._linger
            wait_ms = min(_STOP_CHECK_MS, (deadline - loop.time()) * 1000)

    async def _missing_offsets(self, transaction: SessionTransaction) -> dict[TopicPartition, int]:
        """Return the first positions in partitions where the group has no committed offset.

        Without a committed offset, the next owner or the restarted process would apply the reset
        policy: "latest" or a duration could skip the records of an aborted transaction.
        """
        if self.consumer.auto_offset_reset in ("earliest", "none"):
            return {}
        if self.consumer.assignment() <= self._started:
            return {}
        starts = {**self._positions(), **transaction.first}
        tps = starts.keys() - self._started
        if not tps:
            return {}
        try:
            committed = await self.consumer.committed_offsets(tps)
        except KafkaError as error:
            self._log.warning("It is not known whether the group has committed offsets: %s", error)
            return {}
        # Partitions may have been revoked meanwhile.
        tps &= self.consumer.assignment()
        missing = {tp: starts[tp] for tp in tps if committed[tp] is None}
        self._started |= tps - missing.keys()
        return missing

    async def _commit_starts(self, starts: dict[TopicPartition, int]) -> None:
        """Commit the offsets `starts` in a transaction without records. If this member or producer
        was replaced, brokers reject the offsets, so they cannot overwrite later offsets. Raises the
        same errors as the end of a block.
        """
        self._current = transaction = SessionTransaction(self)
        transaction.first.update(starts)
        transaction.next.update(starts)
        await self.begin(transaction)
        await self._end(transaction, None)

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the known positions of the consumer."""
        ends, lags = self.consumer.known_end_offsets(), self.consumer.lag()
        known = ((tp, ends.get(tp), lag) for tp, lag in lags.items())
        return {tp: end - lag for tp, end, lag in known if end is not None and lag is not None}

    # -- transactions

    async def begin(self, transaction: SessionTransaction) -> None:
        """Begin the producer's transaction when the `async with` block of `transaction` is entered.

        Raises IllegalStateError unless `transaction` was returned last and is entered for the first
        time.
        """
        if transaction.phase is not SessionPhase.TAKEN or transaction is not self._current:
            raise IllegalStateError(
                "a transaction can be entered only once, and only before the next one is returned"
            )
        await self.producer.begin_transaction()
        transaction.enter(SessionPhase.ACTIVE)

    async def end(self, transaction: SessionTransaction, raised: BaseException | None) -> bool:
        """Commit or abort at the end of the block of `transaction`; return whether to suppress the
        exception `raised`. Raises an error of the commit or abort unless the records are read
        again.
        """
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
                    raise _RecordsLeftError(_RECORDS_LEFT)
                await self._commit(transaction)
            except KafkaError as error:
                if transaction.phase is SessionPhase.COMMITTING and isinstance(
                    error, KafkaTimeoutError
                ):
                    raise  # the outcome is unknown: `_complete_interrupted()` repeats the commit
                failure = error
            else:
                self._backoff.reset()
                self._failure = transaction.failure
                return False
        # After CancelledError, KeyboardInterrupt or SystemExit, do not retry, and abort within
        # `stop_timeout_ms`.
        if raised is not None and not isinstance(raised, Exception):
            await self._complete_in_time()
            return False
        return await self._abort_and_retry(transaction, raised, failure)

    async def _abort_and_retry(
        self,
        transaction: SessionTransaction,
        raised: BaseException | None,
        failure: BaseException | None,
    ) -> bool:
        """Abort. Return True if the session reads the records again, False if the caller must
        re-raise `raised`; raise any other error of the commit or abort.
        """
        failure = _root_cause(failure)
        try:
            await self._abort(transaction)
        except KafkaError as error:
            if raised is not None and not isinstance(raised, KafkaError):
                self._log.warning("The transaction could not be aborted: %s", error)
                return False  # the caller must see the application's exception
            raise
        if transaction.is_void and (failure is None or isinstance(failure, CommitFailedError)):
            self._log.info("A transaction was aborted: partitions of its records were revoked")
            return True
        if failure is not None and _can_retry(failure) and self._backoff.failures < self._retries:
            self._log.warning(_READ_AGAIN, failure)
            self._pause = self._backoff.next()
            return True
        if raised is None and failure is not None:
            raise renewed(failure) from failure
        return False

    async def _commit(self, transaction: SessionTransaction) -> None:
        """Commit the results and the positions together, unless partitions were revoked.

        A rebalance may begin at any await, and `_partitions_revoked` runs in the consumer's task:

        1. Before SENDING_OFFSETS, the listener does not wait. It sets `is_void`, and the
           transaction is aborted instead of committed.
        2. While the offsets are sent, the listener waits for the end of the transaction, so the
           group does not reassign the partitions. After `_MAX_REVOKE_WAIT` the listener sets
           `is_void`, which is checked between the two requests.
        3. While the commit is sent, the listener waits too. Without this wait, brokers before Kafka
           2.5 would return the previous offset to the next owner during the commit, and the records
           would be processed twice. Newer brokers make the next owner wait.
        4. If the member is fenced, only `_partitions_lost` is called, which does not wait. Brokers
           since Kafka 2.5 reject offsets of a fenced member or an old generation (KIP-447), so the
           commit fails.
        """
        transaction.enter(SessionPhase.SENDING_OFFSETS)
        offsets = {
            tp: await self._in_log(tp, offset)
            for tp, offset in transaction.next.items()
            if not self._is_resetting(tp)
        }
        await self.producer.send_offsets_to_transaction(offsets, self.consumer)
        if transaction.is_void:
            raise CommitFailedError("partitions were revoked during the transaction")
        # Enter the phase before the request: if the request is cancelled, `_complete_interrupted()`
        # must repeat the commit and must not abort.
        transaction.enter(SessionPhase.COMMITTING)
        await self.producer.commit_transaction()
        transaction.enter(SessionPhase.COMMITTED)

    async def _abort(self, transaction: SessionTransaction) -> None:
        """Abort the transaction, also after a commit that failed before it was sent.

        Raises TransactionStateError, and changes nothing, if the commit may have been sent.
        """
        is_commit = transaction.phase is SessionPhase.COMMITTING
        if not is_commit and transaction.phase is not SessionPhase.ABORTING:
            transaction.enter(SessionPhase.ABORTING)
        await self.producer.abort_transaction()
        if is_commit:
            transaction.enter(SessionPhase.ABORTING)
        await self._abandon(transaction)

    async def _abandon(self, transaction: SessionTransaction) -> None:
        """Seek to the transaction's first record in each partition that is still assigned, and mark
        the transaction as aborted. Does not suspend. If the consumer's position is lower (see
        `_in_log`) or is being reset (see `_is_resetting`), the position stays.

        Partitions that were revoked and assigned again are excluded: another member may have
        committed later offsets, from which the consumer continues.
        """
        for tp, offset in transaction.first.items():
            if tp in self.consumer.assignment() and not self._is_resetting(tp):
                self.consumer.seek(tp, await self._in_log(tp, offset))
        transaction.enter(SessionPhase.ABORTED)

    def _is_resetting(self, tp: TopicPartition) -> bool:
        """Return whether the consumer resets its position, because the topic was recreated or the
        log was truncated. Offsets of the previous log could skip records of the new log.
        """
        if tp not in self.consumer.assignment():
            return False
        end = self.consumer.known_end_offsets()[tp]
        return end is not None and end >= 0 and self.consumer.lag(tp) is None

    async def _in_log(self, tp: TopicPartition, offset: int) -> int:
        """Return `offset`, or the consumer's position if the position is lower. A lower position
        means that the log was truncated or the topic recreated: `offset` would skip records. Does
        not suspend.
        """
        # While the position is unknown (`lag` is None), `position()` would suspend.
        if tp not in self.consumer.assignment() or self.consumer.lag(tp) is None:
            return offset
        try:
            return min(offset, await self.consumer.position(tp))
        except (KafkaError, ConsumerStoppedError):
            return offset  # the next read raises the error

    async def _complete_interrupted(self) -> None:
        """Complete the commit or abort of the last transaction, if it was interrupted.

        In COMMITTING the outcome is unknown, so the commit is repeated: the coordinator commits
        now, or repeats its response. If the repeated commit fails, the transaction is aborted; that
        is possible only if the commit was not sent, for example because a record could not be
        delivered. If the commit may have been sent, the producer rejects the abort, and the next
        call repeats the commit. In other phases the transaction is aborted; if its block was never
        entered, the producer has no transaction to abort.
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
                self._log.warning(_READ_AGAIN, error)
        else:
            await self._abort(transaction)

    def _time_left(self) -> float:
        """Return the remaining seconds of `stop_timeout_ms`, counted from the first call."""
        now = asyncio.get_running_loop().time()
        if self._stop_deadline is None:
            self._stop_deadline = now + self._stop_timeout
        return max(0.0, self._stop_deadline - now)

    async def _complete_in_time(self) -> None:
        try:
            async with timeout(self._time_left()):
                await self._complete_interrupted()
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.warning("A transaction was left open: %r", error)

    # -- the group

    async def _partitions_revoked(self, partitions: Set[TopicPartition]) -> None:
        """If the transaction has records of revoked partitions, wait up to `_MAX_REVOKE_WAIT` for
        a commit in progress (see `_commit`), then remove the partitions from the transaction.
        """
        self._started -= partitions
        transaction = self._current
        if transaction is None or not partitions & transaction.next.keys():
            return
        if transaction.phase in ENDING:
            try:
                async with timeout(_MAX_REVOKE_WAIT):
                    await transaction.wait_over()
            except asyncio.TimeoutError:
                self._log.warning("Partitions are revoked while a transaction is still ending")
        transaction.give_up(partitions)

    def _partitions_lost(self, partitions: Set[TopicPartition]) -> None:
        """Remove lost partitions from the transaction at once."""
        self._started -= partitions
        if self._current is not None:
            self._current.give_up(partitions)


def _root_cause(error: BaseException | None) -> BaseException | None:
    """Return the cause of a TransactionStateError: the earlier error that failed the transaction.
    Return any other error unchanged.
    """
    if isinstance(error, TransactionStateError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _can_retry(error: BaseException) -> bool:
    """Return whether reading and processing the same records again may succeed."""
    if isinstance(error, (*_GROUP_HAS_MOVED_ON, _RecordsLeftError)):
        return True
    # FencedInstanceId is fatal for the consumer, though not for the producer.
    if not isinstance(error, KafkaError) or error.is_fatal or isinstance(error, FencedInstanceId):
        return False
    return error.requires_abort or error.retriable or isinstance(error, KafkaTimeoutError)


def _check_clients(
    consumer: aiokafka.AIOKafkaConsumer, producer: aiokafka.AIOKafkaProducer
) -> None:
    as_having("consumer", consumer, "getmany", "an AIOKafkaConsumer")
    as_having("producer", producer, "send", "an AIOKafkaProducer")
    if consumer.group_id is None:
        raise KafkaConfigurationError("consumer: needs group_id, under which positions are kept")
    if consumer.enable_auto_commit:
        raise KafkaConfigurationError(
            "consumer: needs enable_auto_commit=False: positions are committed with transactions"
        )
    if consumer.isolation_level != "read_committed":
        raise KafkaConfigurationError(
            'consumer: needs isolation_level="read_committed", so that records of aborted '
            "transactions are not processed"
        )
    if producer.transactional_id is None:
        raise KafkaConfigurationError("producer: needs transactional_id")
