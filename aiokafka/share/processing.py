"""Processing records with automatic acknowledgement and lock renewal (KIP-1222)."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import heapq
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from aiokafka._arguments import as_function, as_having, as_int
from aiokafka._callbacks import check_result, refuse_generators
from aiokafka._log import SubjectLog
from aiokafka._tasks import Signal, TaskOwner
from aiokafka._typing import KT, VT
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordError,
    RecordDeserializationError,
    UnsupportedCodecError,
)
from aiokafka.share.acquired import AcknowledgeType, ShareRecord
from aiokafka.share.buffer import RejectRecord

if TYPE_CHECKING:
    from aiokafka.parallel import RetryTopics
    from aiokafka.share.consumer import AIOKafkaShareConsumer
    from aiokafka.share.fetcher import ShareFetcher

__all__ = ["Handler", "LockRenewals", "Processing", "ShareProcessor"]

log = logging.getLogger("aiokafka.share")

Handler = Callable[[ShareRecord[Any, Any]], Awaitable[object] | object]

# Renew a lock when this part of its timeout is left: early enough to repeat a failed renewal.
_RENEW_AT = 1 / 2
# When one renewal is due, also renew the locks whose renewal is due within this part of the lock's
# timeout. So a thousand records that arrived one after the other need few requests.
_TOGETHER = 1 / 8
_SHORTEST_PAUSE = 0.01


class LockRenewals:
    """Renews the acquisition locks of records that are being processed.

    Owns: these records, with the loop time of the next renewal. A record whose renewal is in flight
    is renewed again after half of the lock's timeout, so that a lost renewal is repeated once.
    """

    def __init__(self, fetcher: ShareFetcher) -> None:
        self._fetcher = fetcher
        self._records: dict[int, tuple[ShareRecord[Any, Any], float]] = {}
        self._changed = Signal()
        self._has_warned = False
        self._log = SubjectLog(log, fetcher.config.subject)
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: ShareRecord[Any, Any]) -> None:
        """Renew the lock of a record from now on."""
        expires_at = record._acquisition.expires_at
        due = expires_at - self._fetcher.lock_timeout * _RENEW_AT
        self._records[id(record)] = (record, due)
        self._changed.notify()

    def remove(self, record: ShareRecord[Any, Any]) -> None:
        """Stop the renewals of a record."""
        self._records.pop(id(record), None)

    async def run(self) -> None:
        """Renew locks, until cancelled."""
        while True:
            now = self._loop.time()
            self._renew(now + self._fetcher.lock_timeout * _TOGETHER, now)
            next_due = min((due for _, due in self._records.values()), default=None)
            if next_due is not None:
                next_due = max(next_due, now + _SHORTEST_PAUSE)
            await self._changed.wait(next_due)

    def _renew(self, until: float, now: float) -> None:
        """If at least one renewal is due at `now`, renew all locks whose renewal is due at `until`
        (both loop times)."""
        if all(due > now for _, due in self._records.values()):
            return
        next_due = now + self._fetcher.lock_timeout * _RENEW_AT
        for record, due in list(self._records.values()):
            if due > until:
                continue
            acquisition = record._acquisition
            if acquisition.failure is not None or not record._is_open:
                self.remove(record)
            elif not acquisition.session.can_renew:
                self.remove(record)
                self._warn(record, acquisition.lock_end(record.offset) - now)
            else:
                self._records[id(record)] = (record, next_due)
                self._fetcher.acknowledgements.renew(acquisition, record.offset)

    def _warn(self, record: ShareRecord[Any, Any], left: float) -> None:
        """Warn, once, that a lock expires although its record is being processed."""
        if self._has_warned:
            return
        self._has_warned = True
        self._log.warning(
            "Offset %d of topic %s, partition %d, is still being processed, and its acquisition "
            "lock expires in %.1f s: node %d cannot renew it, which needs Kafka 4.2 (KIP-1222). "
            "The record is then delivered again. Raise group.share.record.lock.duration.ms",
            record.offset,
            record.topic,
            record.partition,
            left,
            record._acquisition.session.node_id,
        )


class Processing(AbstractAsyncContextManager[ShareRecord[KT, VT]], Generic[KT, VT]):
    """The result of `AIOKafkaShareConsumer.processing()`: renews the lock of the record during the
    block, and acknowledges the record at the end of the block."""

    def __init__(
        self, consumer: AIOKafkaShareConsumer[Any, Any], record: ShareRecord[KT, VT]
    ) -> None:
        self._consumer = consumer
        self._record = record

    async def __aenter__(self) -> ShareRecord[KT, VT]:
        self._consumer._renewals.add(self._record)
        return self._record

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._consumer._renewals.remove(self._record)
        self._consumer._acknowledgements.finish(self._record, outcome_type(kind))
        return kind is not None and issubclass(kind, RejectRecord)


def outcome_type(kind: type[BaseException] | None) -> AcknowledgeType:
    """Return how to acknowledge a record whose processing ended with an exception of the class
    `kind`, or without an exception (None)."""
    if kind is None:
        return AcknowledgeType.ACCEPT
    return AcknowledgeType.REJECT if issubclass(kind, RejectRecord) else AcknowledgeType.RELEASE


class ShareProcessor:
    """One call of `AIOKafkaShareConsumer.process()`: runs a handler for each record.

    All records of a response are taken at once, and their locks are renewed while they wait for
    the handler: otherwise the locks of a large batch would expire, and after a few deliveries the
    broker would archive records that no handler has seen.

    Owns: the waiting records; the delayed records, which are not due yet; and the tasks of the
    handlers.

    1. While fewer than `concurrency` handlers run and no record waits, acquire records.
    2. Delay the records of retry topics that are not due. Their partitions are not fetched until
       all of their delayed records are due: so at most the records of one response are delayed for
       each partition.
    3. Start handlers for waiting records, and for delayed records that are due. Drop records whose
       lock is lost, because they are delivered again.
    4. If a handler fails, send the record to its retry or dead-letter topic, and then accept it. If
       the send fails, cancel the other handlers, and raise the error of the send.
    5. When the consumer stops: release the waiting and delayed records, and wait for the handlers,
       except those that call `stop()` themselves.
       When the time of `stop()` for handlers has passed, it calls `cancel()`: the records of
       cancelled handlers are released.
    """

    def __init__(
        self,
        consumer: AIOKafkaShareConsumer[Any, Any],
        handler: Handler,
        concurrency: int,
        retry: RetryTopics[Any, Any] | None,
    ) -> None:
        refuse_generators("handler", handler)
        self._consumer = consumer
        self._handler = as_function("handler", handler)
        self._concurrency = as_int("concurrency", concurrency, 1)
        self._retry = retry
        if retry is not None:
            as_having("retry", retry, "with_retry_topics", "a RetryTopics")
        self._waiting: collections.deque[ShareRecord[Any, Any]] = collections.deque()
        self._delayed: list[tuple[float, int, ShareRecord[Any, Any]]] = []
        """A heap of (loop time at which the record is due, serial number, record). The serial
        number orders records that are due at the same time."""
        self._numbers = itertools.count()
        self._running: set[asyncio.Task[None]] = set()
        self._stoppers: set[asyncio.Task[Any]] = set()
        """Tasks of handlers that call `stop()`: `stop()` must not wait for these tasks."""
        self._ended = Signal()
        self._tasks = TaskOwner("aiokafka-share-handlers", self._on_task_failed)
        self._log = SubjectLog(log, consumer._given.subject)
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Process records until the consumer stops."""
        try:
            while True:
                while len(self._running) >= self._concurrency:
                    await self._ended.wait()
                    self._tasks.check()
                if not self._waiting:
                    next_due = self._delayed[0][0] if self._delayed else None
                    try:
                        self._take(await self._consumer._acquire(self._concurrency, next_due))
                    except ConsumerStoppedError:
                        break
                    except (CorruptRecordError, UnsupportedCodecError) as error:
                        self._log.warning("a record cannot be read: %s", error)
                        continue
                    except RecordDeserializationError as error:
                        self._on_undecodable(error)
                        continue
                self._start_handlers()
            self.release_waiting()
            while self._running:
                await self._ended.wait()
                self._tasks.check()
        finally:
            self.release_waiting()
            await self._tasks.stop()

    def cancel(self) -> None:
        """Cancel the handlers; their records are released."""
        self._tasks.cancel()

    async def drain(self) -> None:
        """Wait for the end of all handlers, except those that call `stop()`."""
        while self._running - self._stoppers:
            await self._ended.wait()

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """Return a context manager for the duration of a call of `stop()`. If a handler calls
        `stop()`, `drain()` does not wait for that handler's task."""
        caller = asyncio.current_task()
        if caller is None or caller not in self._running:
            yield
            return
        self._stoppers.add(caller)
        self._ended.notify()
        try:
            yield
        finally:
            self._stoppers.discard(caller)

    def _take(self, records: list[ShareRecord[Any, Any]]) -> None:
        for record in records:
            self._consumer._renewals.add(record)
            # Delay a record only at its first delivery. If a record that is delivered again is not
            # due, `_outcome()` sends it to the end of its retry topic without calling the handler.
            due_in = self._due_in(record) if record.delivery_count == 1 else 0.0
            if due_in > 0:
                self._delay(record, self._loop.time() + due_in)
            else:
                self._waiting.append(record)

    def _due_in(self, record: ShareRecord[Any, Any]) -> float:
        return 0.0 if self._retry is None else self._retry.due_in(record)

    def _delay(self, record: ShareRecord[Any, Any], due: float) -> None:
        # Drop delayed records whose session was lost: the broker delivers them again, and
        # `_delayed` would have them twice.
        lasting = [each for each in self._delayed if not self._consumer._drop_if_lost(each[2])]
        self._delayed = [*lasting, (due, next(self._numbers), record)]
        heapq.heapify(self._delayed)
        record._acquisition.session.defer(record._acquisition.tip, due)

    def _start_handlers(self) -> None:
        """Start handlers for the waiting records, and for the delayed records that are due."""
        # Raise the error of a failed task before a record is taken from the queue, because no task
        # would release that record.
        self._tasks.check()
        while self._delayed and self._delayed[0][0] <= self._loop.time():
            self._waiting.append(heapq.heappop(self._delayed)[2])
        while self._waiting and len(self._running) < self._concurrency:
            record = self._waiting.popleft()
            if self._consumer._drop_if_lost(record):
                self._consumer._renewals.remove(record)
                continue
            task = self._tasks.start(self._handle(record), name="handler")
            self._running.add(task)
            task.add_done_callback(partial(self._on_done, record))

    async def _handle(self, record: ShareRecord[Any, Any]) -> None:
        """Run the handler, and acknowledge the record by its outcome."""
        kind: type[BaseException] | None = asyncio.CancelledError
        try:
            kind = await self._outcome(record)
        finally:
            self._consumer._renewals.remove(record)
            self._consumer._acknowledgements.finish(record, outcome_type(kind))

    async def _outcome(self, record: ShareRecord[Any, Any]) -> type[BaseException] | None:
        """Run the handler. Return None if it has returned, or if a copy of the record was sent to a
        retry or dead-letter topic: the record is then accepted. Otherwise return the class of the
        exception, which determines whether the record is released or rejected."""
        failure: Exception | None = None
        try:
            try:
                if not await self._consumer._deserializers.convert_one(record):
                    return RejectRecord
            except RecordDeserializationError as error:
                self._log.warning("a record cannot be read: %s", error)
                return type(error.cause)
            if record.delivery_count == 1 or self._due_in(record) <= 0:
                result = self._handler(record)
                if inspect.isawaitable(result):
                    await result
                else:
                    check_result(result)
                return None
        except asyncio.CancelledError as error:
            # Unless this task is being cancelled, the handler has awaited a cancelled task or
            # future, which is a failure of the handler.
            if self._tasks.is_ending_us():
                raise
            failure = RuntimeError("it awaited a cancelled task or future")
            failure.__cause__ = error
        except Exception as error:
            failure = error
        return await self._on_failure(record, failure)

    async def _on_failure(
        self, record: ShareRecord[Any, Any], failure: Exception | None
    ) -> type[BaseException] | None:
        """Send a record to its retry or dead-letter topic after a `failure` of its handler. If
        `failure` is None, the record is not due: send it to the end of its retry topic. Return the
        same as `_outcome()`."""
        if failure is None:
            assert self._retry is not None
            await self._retry.send_back(record)
            return None
        try:
            if self._retry is not None and await self._retry.send(record, failure):
                return None
        except Exception as error:
            error.__cause__ = error.__cause__ or failure
            raise
        if not isinstance(failure, RejectRecord):
            self._warn(record, failure)
        return type(failure)

    def _on_done(self, record: ShareRecord[Any, Any], task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            # A task that is cancelled before its first step runs no `finally`.
            self._consumer._renewals.remove(record)
            self._consumer._acknowledgements.finish(record, AcknowledgeType.RELEASE)
        self._ended.notify()

    def _on_undecodable(self, error: RecordDeserializationError) -> None:
        """Release or reject a record that could not be deserialized for the interceptors."""
        self._log.warning("a record cannot be read: %s", error)
        record: Any = error.record
        record._acquisition.deliver(1)
        self._consumer._acknowledgements.finish(record, outcome_type(type(error.cause)))

    def _on_task_failed(self, _: BaseException) -> None:
        self._consumer._buffer.arrived.notify()  # `run()` raises the error

    def _warn(self, record: ShareRecord[Any, Any], failure: Exception) -> None:
        self._log.warning(
            "the handler failed for offset %d of topic %s, partition %d, delivery %d: %s",
            record.offset,
            record.topic,
            record.partition,
            record.delivery_count,
            repr(failure),
        )

    def release_waiting(self) -> None:
        """Release the records that wait for a handler, and those that are not due."""
        self._waiting.extend(record for _, _, record in self._delayed)
        self._delayed.clear()
        while self._waiting:
            record = self._waiting.popleft()
            self._consumer._renewals.remove(record)
            self._consumer._acknowledgements.finish(record, AcknowledgeType.RELEASE)
