"""ParallelConsumer: concurrent processing of a consumer's records, ordered by key."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Set
from contextlib import AsyncExitStack
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal

import aiokafka
from aiokafka._arguments import as_function, as_having, as_int, as_names, as_pattern
from aiokafka._subject import Subject
from aiokafka._tasks import TaskOwner
from aiokafka._typing import KT, VT, Self, later
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError
from aiokafka.metrics._clients import register
from aiokafka.parallel.commits import Committer
from aiokafka.parallel.dispatcher import Dispatcher, Meter, Reader, Workers
from aiokafka.parallel.flow import Flow, Limits
from aiokafka.parallel.retry import Delays, RetryTopics
from aiokafka.parallel.work import LaneOf, Work, WorkQueue
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.metrics import Metric

__all__ = ["DrainingListener", "ParallelConsumer", "read_parallel"]


# -- Metrics


_GROUP = "parallel-consumer-metrics"
_RETRY_GROUP = "retry-topics-metrics"


def read_parallel(
    client_id: str, meter: Meter, queue: WorkQueue, paused: int, retry: RetryTopics | None
) -> Iterator[Metric]:
    """Yield the current metrics of a ParallelConsumer."""
    # Imported here, because most programs do not read metrics.
    from aiokafka.metrics import Metric, MetricKind

    tags = {"client-id": client_id}
    for name, value, unit in (
        ("records-finished-total", meter.finished, "records"),
        ("records-failed-total", meter.failed, "records"),
        ("process-time-total", meter.busy * 1000, "ms"),
    ):
        yield Metric(_GROUP, name, value, MetricKind.COUNTER, unit, tags)
    spans = [partition.tracker.span for partition in list(queue.partitions)]
    for name, value, unit in (
        ("records-running", queue.running, "records"),
        ("records-unfinished", queue.records, "records"),
        ("unfinished-bytes", queue.nbytes, "bytes"),
        ("records-uncommitted-max", max(spans, default=0), "records"),
        ("partitions-paused", paused, ""),
    ):
        yield Metric(_GROUP, name, value, MetricKind.GAUGE, unit, tags)
    if retry is None:
        return
    waiting = queue.delayed.records
    yield Metric(_RETRY_GROUP, "records-waiting", waiting, MetricKind.GAUGE, "records", tags)
    for origin, sent in list(retry.sent.items()):
        one = {**tags, "topic": origin}
        for name, value in (
            ("record-retry-total", sent.retried),
            ("record-dead-letter-total", sent.dead),
        ):
            yield Metric(_RETRY_GROUP, name, value, MetricKind.COUNTER, "records", one)


# -- The rebalance listener


# After this number of seconds, stop waiting for cancelled handlers. Our own tasks have the same
# time to end, counted separately.
_CANCEL_TIMEOUT = 1.0


class DrainingListener(ConsumerRebalanceListener):
    """Finishes and commits the running records of revoked partitions, and drops their queued
    records.

    The consumer calls this listener, which calls the application's listener before the commit.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        flow: Flow,
        committer: Committer,
        workers: Workers,
        drain_timeout: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._flow = flow
        self._committer = committer
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._calling: set[asyncio.Task[Any] | None] = set()
        self.listener: Any = None
        self.delays: Delays | None = None
        self.is_pattern = False  # whether topics are subscribed by a pattern

    def is_calling(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether this task calls the application's listener."""
        return task in self._calling

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Drain the partitions, call the application's listener, commit, and drop the
        partitions.
        """
        try:
            # How partitions are revoked, while the group waits:
            # 1. No more handlers are called for records of the partitions. Running handlers may
            #    end, or are cancelled after `drain_timeout_ms`.
            # 2. The application's listener is called, and may release its state of the partitions.
            # 3. The finished records are committed, including records that finished during step 2.
            #    The partitions are still assigned, so the group accepts the commit.
            # 4. The partitions are dropped in any case. If they are assigned again, the consumer
            #    starts at the committed offsets and reads the unfinished records again; records
            #    kept here would be processed twice.
            await self.finish(revoked, self._drain_timeout)
            try:
                if self.listener is not None:
                    await self._call(self.listener.on_partitions_revoked, revoked)
            except Exception:
                # Commit the records that finished in step 1.
                await self.commit()
                raise
            await self.commit()
        finally:
            self._forget(revoked)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """Cancel the handlers at once, call the application's listener, and drop the partitions."""
        try:
            # Other members own the partitions, so the group would reject a commit.
            self._dispatcher.queue.lose(lost)
            await self.finish(lost, 0.0)
            if self.listener is not None:
                # Listeners that are not subclasses may lack `on_partitions_lost`.
                listener = self.listener
                on_lost = getattr(listener, "on_partitions_lost", listener.on_partitions_revoked)
                await self._call(on_lost, lost)
        finally:
            self._forget(lost)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Call the application's listener, which may seek, then resume the partitions, unless Flow
        has a reason to keep them paused.
        """
        if self.delays is not None:
            await self.delays.start_partitions(assigned)
        dead = self._pause_dead_letter_topics(assigned)
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, assigned)
        # Resume the partitions, and commit their positions, last: the application's listener may
        # have changed the positions at which the consumer continues.
        self._flow.on_assigned(assigned)
        self._dispatcher.queue.begin(assigned - dead)

    def _pause_dead_letter_topics(self, assigned: Set[TopicPartition]) -> Set[TopicPartition]:
        """Pause assigned dead-letter topics that the pattern matches, and return their partitions:
        a dead letter that fails must not be sent to another dead-letter topic.
        """
        dead: set[TopicPartition] = set()
        if self.delays is None or not self.is_pattern:
            return dead
        for topic in sorted({tp.topic for tp in assigned}):
            if self.delays.retry.is_dead_letter_topic(topic):
                self._dispatcher.log.warning(
                    "Topic %r is not read, though the pattern matches it: it is a dead-letter "
                    "topic of RetryTopics. Exclude it from the pattern, or name the topics to read",
                    topic,
                    topic=topic,
                )
                dead.update(tp for tp in assigned if tp.topic == topic)
        self._flow.keep_paused(dead)
        return dead

    async def finish(self, tps: Iterable[TopicPartition], limit: float) -> None:
        """Call no more handlers for these partitions. Wait at most `limit` seconds for the running
        handlers, then cancel them and wait `_CANCEL_TIMEOUT` for their end.
        """
        loop = asyncio.get_running_loop()
        partitions = self._dispatcher.queue.close(tps)
        if await self._dispatcher.drain(partitions, loop.time() + limit):
            return
        late = [partition for partition in partitions if partition.running]
        names = ", ".join(f"{each.tp.topic}-{each.tp.partition}" for each in late)
        self._dispatcher.log.warning(
            "Cancelling handlers that run for longer than %g s: %s", limit, names
        )
        await self._workers.cancel(late, loop.time() + _CANCEL_TIMEOUT)

    async def commit(self) -> None:
        """Commit the finished records; wait at most `drain_timeout_ms`."""
        await self._committer.flush(asyncio.get_running_loop().time() + self._drain_timeout)

    async def _call(
        self, method: Callable[[Any], Awaitable[None] | None], partitions: Set[TopicPartition]
    ) -> None:
        task = asyncio.current_task()
        self._calling.add(task)
        try:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self._calling.discard(task)

    def _forget(self, tps: Set[TopicPartition]) -> None:
        self._dispatcher.drop(tps)
        self._flow.on_revoked(tps)


if TYPE_CHECKING:
    from aiokafka.metrics import MetricsSnapshot
else:
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")


class _Phase(Enum):
    NEW = "not started"
    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"


_TRANSITIONS = {
    _Phase.NEW: {_Phase.STARTED, _Phase.STOPPING},
    _Phase.STARTED: {_Phase.NEW, _Phase.STOPPING},
    _Phase.STOPPING: {_Phase.STOPPING, _Phase.STOPPED},
    _Phase.STOPPED: set(),
}


class ParallelConsumer(Generic[KT, VT]):
    """Processes the records of a consumer concurrently, and records with the same key in order.

    There are two ways to use it. `await parallel.run(handler)` calls `await handler(record)` for up
    to `concurrency` records at once. `async for work in parallel` returns works that the
    application processes in its own tasks, each in `async with work:`.

    Every record is processed at least once: an offset is committed when all records before it are
    finished. After a crash the records from the lowest unfinished offset on are processed again.

    - `consumer`: a consumer that is not started; `start()` and `stop()` of this object start and
      stop it. The consumer needs a `group_id` and `enable_auto_commit=False`. Call its
      `subscribe()` or `assign()` before. Do not read from it or pause it, and seek only in
      `listener`.
    - `topics`, `pattern`: the subscription, as for `AIOKafkaConsumer.subscribe()`. None: keep the
      consumer's subscription or assigned partitions. With `retry`, the retry topics of named topics
      are added; a pattern must also match the retry topics.
    - `listener`: the application's ConsumerRebalanceListener. When partitions are revoked, their
      running records finish before the listener is called, and are committed afterwards. None: the
      listener with which the consumer was subscribed.
    - `concurrency`: maximum number of records that are processed at once.
    - `order`: "key": records with the same key in order, records without a key in any order.
      "partition": the records of a partition in order. "none": any order.
    - `key`: for `order="key"`, a function that is called with the record. It returns a hashable
      value to use instead of the record's key, or None if the record needs no order.
    - `max_records`, `max_bytes`: maximum number of unfinished records, and maximum bytes of their
      keys, values and headers (the last records may exceed `max_bytes`). At the limits, partitions
      are paused.
    - `max_uncommitted`: maximum number of records taken from a partition, from the lowest
      unfinished offset on; after a crash they may be processed again. At the limit, the partition
      is paused.
    - `commit_interval_ms`: time between commits.
    - `drain_timeout_ms`: how long handlers may run after their partition is revoked and at
      `stop()`, before they are cancelled. Keep it well below `rebalance_timeout_ms`.
    - `retry`: RetryTopics for failed records. None: the first exception of a handler ends the
      processing.

    Raises TypeError or ValueError for wrong arguments, and for a consumer without the required
    options; RuntimeError without a running event loop.
    """

    def __init__(
        self,
        consumer: aiokafka.AIOKafkaConsumer[KT, VT],
        *,
        topics: list[str] | tuple[str, ...] | Set[str] | None = None,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
        concurrency: int = 16,
        order: Literal["key", "partition", "none"] = "key",
        key: Callable[[ConsumerRecord[KT, VT]], Hashable] | None = None,
        max_records: int = 1000,
        max_bytes: int = 16 * 1024 * 1024,
        max_uncommitted: int = 10_000,
        commit_interval_ms: int = 1000,
        drain_timeout_ms: int = 5000,
        retry: RetryTopics[KT, VT] | None = None,
    ) -> None:
        asyncio.get_running_loop()
        limits = Limits(
            concurrency=as_int("concurrency", concurrency, 1),
            max_records=as_int("max_records", max_records, 1),
            max_bytes=as_int("max_bytes", max_bytes, 1),
            max_uncommitted=as_int("max_uncommitted", max_uncommitted, 1),
        )
        self._consumer = consumer
        _check_types(consumer, listener, key, retry)
        names = None if topics is None else as_names("topics", topics, repeats=True)
        self._requested = names, pattern
        _topics_to_subscribe(consumer, *self._requested, retry)  # raises for wrong arguments
        self._drain_timeout = as_int("drain_timeout_ms", drain_timeout_ms, 1) / 1000
        _check_consumer(consumer)
        _check_assigned(consumer, retry)
        queue = WorkQueue(_lane_of(order, key))
        flow = Flow(consumer, queue, limits)
        self._client_id = next(iter(consumer.metrics())).tags["client-id"]
        subject = Subject(
            f"ParallelConsumer of {consumer!r}",
            client_id=self._client_id,
            group_id=consumer.group_id,
        )
        self._dispatcher = Dispatcher(queue, flow, limits.concurrency, retry, subject)
        self._workers = Workers(self._dispatcher, limits.concurrency)
        interval = as_int("commit_interval_ms", commit_interval_ms, 1) / 1000
        self._committer = Committer(consumer, queue, interval, subject)
        self._listener = DrainingListener(
            self._dispatcher, flow, self._committer, self._workers, self._drain_timeout
        )
        self._listener.listener = listener
        self._retry = retry
        delays = None
        if retry is not None:
            delays = Delays(consumer, flow, queue.delayed, retry, limits.max_bytes)
        self._listener.delays = delays
        self._reader = Reader(consumer, self._dispatcher, flow, delays, self._listener)
        self._flow = flow
        self._tasks = TaskOwner("parallel", self._dispatcher.fail)
        self._is_running = False
        self._stopping = asyncio.Lock()
        self._phase = _Phase.NEW
        register(self)

    def __repr__(self) -> str:
        return f"<ParallelConsumer {self._phase.value}, {self.unfinished} records unfinished>"

    # -- lifecycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe, start the consumer, and begin to read.

        Raises the errors of `AIOKafkaConsumer.start()`; the consumer is closed then, and `start()`
        may be called again. Raises IllegalStateError without a subscription or assigned partitions,
        and after an earlier start or stop; ValueError if the consumer's subscription was changed
        since the constructor, and the constructor's checks fail now.
        """
        if self._phase is not _Phase.NEW:
            raise IllegalStateError(f"{self!r} was started before")
        # An earlier `start()` that failed has already subscribed.
        if self._consumer.rebalance_listener is not self._listener:
            self._subscribe()
        self._transition(_Phase.STARTED)
        given = self._consumer.assignment()  # empty, unless `assign()` was called
        try:
            await self._consumer.start()
        except BaseException:
            self._allow_restart()
            raise
        self._tasks.start(self._read(given), name="pump")
        self._tasks.start(self._committer.run(), name="commit")

    async def _read(self, given: Set[TopicPartition]) -> None:
        """Read until the end. `given`: the partitions given to `assign()`, for which the consumer
        calls no listener."""
        if self._listener.delays is not None:
            await self._listener.delays.start_partitions(given)
        self._dispatcher.queue.begin(given)
        await self._reader.run()

    def _allow_restart(self) -> None:
        """Allow another `start()` after a failed one, unless `stop()` or `request_stop()` was
        called meanwhile.
        """
        if self._phase is _Phase.STARTED:
            self._transition(_Phase.NEW)

    def _subscribe(self) -> None:
        """Subscribe with our listener, or set our listener for the consumer's own subscription."""
        consumer = self._consumer
        # Check again, because the application may have subscribed since the constructor.
        topics, pattern = _topics_to_subscribe(consumer, *self._requested, self._retry)
        _check_assigned(consumer, self._retry)
        if self._listener.listener is None:
            self._listener.listener = consumer.rebalance_listener
        is_named = topics or consumer.subscription() or consumer.assignment()
        self._listener.is_pattern = pattern is not None or not is_named
        if pattern is not None:
            consumer.subscribe(pattern=pattern, listener=self._listener)
        elif topics:
            consumer.subscribe(topics, listener=self._listener)
        else:
            self._consumer.rebalance_listener = self._listener

    def request_stop(self) -> None:
        """Call no more handlers, and end every `async for` over this object. `run()` returns when
        the running handlers have ended; after `drain_timeout_ms` it cancels them.

        Signal handlers and the handlers themselves may call this method. Call `stop()` afterwards.
        If this method is called before `start()`, `run()` returns at once.
        """
        if self._phase in (_Phase.NEW, _Phase.STARTED):
            self._dispatcher.end()
            self._flow.close()
        if self._phase is _Phase.STARTED:
            self._transition(_Phase.STOPPING)

    async def stop(self) -> None:
        """Call no more handlers, wait for the running handlers, commit, and stop the consumer.

        Waits at most `drain_timeout_ms` for the handlers, and then cancels them. Waits at most
        another `drain_timeout_ms` for the commit, and then for `AIOKafkaConsumer.stop()`. May be
        called again, also after a cancelled call, and by several tasks at once; all calls wait
        until the consumer is stopped.

        Raises IllegalStateError if a handler or `listener` calls it, because `stop()` would wait
        for its caller: call `request_stop()` there.
        """
        task = asyncio.current_task()
        if self._workers.is_calling(task) or self._listener.is_calling(task):
            raise IllegalStateError(
                "stop() would wait for the handler or listener that calls it: call request_stop()"
            )
        async with self._stopping:
            if self._phase is not _Phase.STOPPED:
                await self._stop()

    async def _stop(self) -> None:
        self.request_stop()
        self._transition(_Phase.STOPPING)
        loop = asyncio.get_running_loop()
        # After a failure, do not wait for unfinished records: they are read again.
        if self.failure is None:
            await self._listener.finish(self._consumer.assignment(), self._drain_timeout)
        # The workers are stopped before the last commit, so that no record finishes after this
        # commit. The consumer is stopped last, because the commit needs the consumer's membership.
        await self._workers.stop(loop.time() + _CANCEL_TIMEOUT)
        await self._listener.commit()
        await self._tasks.stop(loop.time() + _CANCEL_TIMEOUT)
        await self._consumer.stop()
        self._transition(_Phase.STOPPED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        async with AsyncExitStack() as stack:
            # If `stop()` is cancelled, it is not called again: these callbacks stop the consumer
            # and cancel the tasks.
            stack.push_async_exit(self._consumer)
            stack.callback(self._abandon)
            await self.stop()

    def _abandon(self) -> None:
        """Cancel the tasks that a cancelled `stop()` has left running."""
        self._workers.abandon()
        self._tasks.cancel()

    def _transition(self, phase: _Phase) -> None:
        if phase not in _TRANSITIONS[self._phase]:
            raise IllegalStateError(f"{self._phase.value} cannot become {phase.value}")
        self._phase = phase

    # -- work --------------------------------------------------------------------------------------

    async def run(
        self, handler: Callable[[ConsumerRecord[KT, VT]], Awaitable[object] | object]
    ) -> None:
        """Call `handler(record)` for every record, until `request_stop()`.

        The handler may be a coroutine function, or a synchronous function, which must be fast
        because it blocks the event loop. An awaitable result is awaited, any other result is
        ignored. CancelledError from a handler that was not cancelled is a failure like other
        exceptions. The first exception that `retry` does not handle ends the processing: the other
        handlers are cancelled, and `run()` raises the exception. `run()` also raises errors of the
        consumer. If `run()` is cancelled, the handlers are cancelled too; their records are
        unfinished, and the next `run()` starts with them.

        Raises IllegalStateError before `start()`, and while another call is in progress; TypeError
        for generator functions.
        """
        as_function("handler", handler)
        self._check_started()
        if self._is_running:
            raise IllegalStateError("run() is in progress already")
        self._is_running = True
        loop = asyncio.get_running_loop()
        dispatcher = self._dispatcher
        try:
            self._workers.start(handler)
            await dispatcher.ending.wait()
            if dispatcher.failure is None:
                deadline = loop.time() + self._drain_timeout
                await dispatcher.drain(list(dispatcher.queue.partitions), deadline)
        finally:
            try:
                await self._workers.stop(loop.time() + _CANCEL_TIMEOUT)
            finally:  # `stop` may be cancelled too
                self._is_running = False
        self._tasks.check()
        if dispatcher.failure is not None:
            raise dispatcher.failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Work[KT, VT]:
        """Return the next record to process; wait while `concurrency` records are running.

        Several tasks may iterate at once. The loop ends after `request_stop()`, and when a failed
        record has ended the processing; the block of this record raises the exception. Raises
        errors of the consumer, and an error of the key function that ends the processing.
        """
        self._check_started()
        work = await self._dispatcher.claim_processable()
        if work is None:
            self._tasks.check()
            raise StopAsyncIteration
        return work

    def _check_started(self) -> None:
        if self._phase is _Phase.NEW:
            raise IllegalStateError("not started: use `async with`, or await start() first")

    # -- state ----------------------------------------------------------------------

    @property
    def consumer(self) -> aiokafka.AIOKafkaConsumer[KT, VT]:
        """The consumer, to read its assignment, positions and offsets."""
        return self._consumer

    @property
    def running(self) -> int:
        """Number of unfinished records whose handler was called, or that `async for` returned."""
        return self._dispatcher.queue.running

    @property
    def unfinished(self) -> int:
        """Number of unfinished records, including `running` but not `waiting` records."""
        return self._dispatcher.queue.records

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the keys, values and headers of the unfinished records."""
        return self._dispatcher.queue.nbytes

    @property
    def waiting(self) -> int:
        """Number of records of retry topics that were read and are not due yet."""
        return self._dispatcher.queue.delayed.records

    @property
    def failure(self) -> BaseException | None:
        """The exception that has ended the processing, or None."""
        return self._dispatcher.failure

    def metrics(self) -> MetricsSnapshot:
        """Return the current metrics, at any time. The consumer has its own metrics."""
        from aiokafka.metrics import MetricsSnapshot

        dispatcher = self._dispatcher
        return MetricsSnapshot(
            read_parallel(
                self._client_id,
                dispatcher.meter,
                dispatcher.queue,
                self._flow.paused,
                self._retry,
            )
        )


def _check_types(consumer: object, listener: object, key: object, retry: object) -> None:
    """Raise TypeError for an argument of the constructor that is of another type."""
    as_having("consumer", consumer, "getmany", "an AIOKafkaConsumer")
    if listener is not None:
        as_having("listener", listener, "on_partitions_revoked", "a ConsumerRebalanceListener")
    if key is not None:
        as_function("key", key)
    if retry is not None:
        as_having("retry", retry, "with_retry_topics", "a RetryTopics")


def _check_consumer(consumer: aiokafka.AIOKafkaConsumer) -> None:
    if consumer.group_id is None:
        raise ValueError("the consumer needs a group_id, to commit what is finished")
    if consumer.enable_auto_commit:
        raise ValueError(
            "the consumer needs enable_auto_commit=False: "
            "it would commit records that are not finished"
        )


def _check_assigned(consumer: aiokafka.AIOKafkaConsumer, retry: RetryTopics | None) -> None:
    """Raise ValueError if `assign()` was called without partitions of the retry topics, or with
    partitions of a topic and also of its dead-letter topic.
    """
    assigned = {tp.topic for tp in consumer.assignment()}
    if retry is None or not assigned:
        return
    missing = [name for name in retry.with_retry_topics(sorted(assigned)) if name not in assigned]
    if missing:
        raise ValueError(
            f"retry: no partitions of {', '.join(map(repr, missing))} were passed to assign(), so "
            "failed records would never be retried"
        )


def _topics_to_subscribe(
    consumer: aiokafka.AIOKafkaConsumer,
    topics: Collection[str] | None,
    pattern: str | None,
    retry: RetryTopics | None,
) -> tuple[list[str], str | None]:
    """Check `topics` and `pattern`, add the retry topics, and return (topics, pattern) to subscribe
    to. `([], None)` keeps the consumer's subscription. Raises TypeError or ValueError for wrong
    arguments.
    """
    if topics is not None and pattern is not None:
        raise TypeError("give topics or a pattern, not both")
    if topics is not None and not topics:
        raise ValueError("topics: there must be one at least")
    if pattern is not None:
        re.compile(as_pattern("pattern", pattern))
        return [], pattern
    names = list(topics or ())
    if retry is None:
        return names, None
    if topics is None and not consumer.assignment():
        names = sorted(consumer.subscription())
    return retry.with_retry_topics(names), None


def _lane_of(order: str, key: Callable[[ConsumerRecord[Any, Any]], Hashable] | None) -> LaneOf:
    if order not in ("key", "partition", "none"):
        raise ValueError(f'order={order!r}: must be "key", "partition" or "none"')
    if key is not None and order != "key":
        raise ValueError('key: needs order="key"')
    if order == "partition":
        return lambda record: True
    if order == "none":
        return lambda record: None
    return _by_key if key is None else key


def _by_key(record: ConsumerRecord[Any, Any]) -> Hashable:
    key: Hashable = record.key
    try:
        hash(key)
    except TypeError:
        raise TypeError(
            f"the key of {record.topic}-{record.partition}@{record.offset} is not hashable: "
            "pass ParallelConsumer(key=...) a function that returns a hashable key"
        ) from None
    return key
