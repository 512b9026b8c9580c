"""Objects that the parts of a consumer share: signals, metrics, and running callbacks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from aiokafka._guard import Guard
from aiokafka._log import SubjectLog
from aiokafka._reading import FencedEpochs
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.errors import IllegalStateError
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.record.header import count_records
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._interception import ConsumerInterception
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer._health import ConsumerHealthMonitor
    from aiokafka.consumer.fetch.record_queue import RecordQueue
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.consumer.position.committed import CommittedOffset
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = [
    "GROUP_REQUESTS",
    "ConsumerContext",
    "ConsumerMeter",
    "ListenerMethod",
    "Signal",
    "TopicCounts",
    "call_listener",
    "intercepting",
    "refuse_in_listener",
    "refuse_reading",
    "telemetry_labels",
]

log = logging.getLogger("aiokafka.consumer.consumer")


class Signal:
    """Wakes the tasks that wait at the moment of `notify()`.

    Waiters check the state and call `wait()` without an await in between, so on a single-threaded
    loop no change is missed, and the signal need not remember notifications.
    """

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        # A dict keeps the order of arrival, so that simulated runs are reproducible.
        self.waiters: dict[asyncio.Future[bool], None] = {}

    def notify(self) -> None:
        """Wake all waiters."""
        # A waiter is removed when its task runs, so the dict does not change during this loop.
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(True)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait until notified. Return False at `deadline` (loop time; None = no limit)."""
        waiter, timer = make_waiter(deadline)
        self.waiters[waiter] = None
        try:
            return await waiter
        finally:
            del self.waiters[waiter]
            if timer is not None:
                timer.cancel()


def finish(waiter: asyncio.Future[bool], notified: bool) -> None:
    if not waiter.done():
        waiter.set_result(notified)


def make_waiter(
    deadline: float | None,
) -> tuple[asyncio.Future[bool], asyncio.TimerHandle | None]:
    """Return a future, and the timer that sets its result to False at `deadline` (None: no
    timer)."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    timer = None if deadline is None else loop.call_at(deadline, finish, waiter, False)
    return waiter, timer


# -- counts

RecordSet = bytes | bytearray | memoryview

_NO_COLLECTORS = (ConsumerMetricsCollector, NullConsumerMetricsCollector)


GROUP_REQUESTS = {
    "JoinGroupRequest": "join_time",
    "SyncGroupRequest": "sync_time",
    "HeartbeatRequest": "heartbeat_response_time",
    "ConsumerGroupHeartbeatRequest": "heartbeat_response_time",
}
"""The latency metric of each request of a group member."""


class TopicCounts:
    """Counts of one topic, or of all topics."""

    __slots__ = ("records", "size", "skipped")

    def __init__(self) -> None:
        self.skipped = 0
        """Offsets skipped because the position was no longer in the log."""
        self.records = 0
        """Records returned to the application."""
        self.size = 0
        """Compressed bytes fetched."""


class ConsumerMeter:
    """Counts fetches, returned records, rebalances and commits, and reports them to the
    application's metrics collector.

    Called once per partition of a response, per `getmany` call and per commit. The FetchBuffer
    counts single records in `PartitionState.taken`; `settle()` adds the increase to the counts
    here. Owns all other counts.
    """

    def __init__(self, log: SubjectLog, config: ConsumerConfig) -> None:
        collector = config.metrics_collector
        # Do not call a collector whose type is a base class: its methods do nothing.
        self.collector = None if type(collector) in _NO_COLLECTORS else collector
        self._guard = Guard(log, "the metrics collector")
        self._read_committed = config.read_committed
        self._loop = asyncio.get_running_loop()
        self._settled: dict[PartitionState, int] = {}
        self.all = TopicCounts()
        self.topics: dict[str, TopicCounts] = {}
        self.fetch_latency = Histogram(LATENCY_MS)
        self.fetch_size = Histogram(SIZE_BYTES)
        self.throttle_time = Histogram(LATENCY_MS)
        self.commit_latency = Histogram(LATENCY_MS)
        self.failed_commits = 0
        self.rebalances = 0
        self.rebalanced_at: float | None = None
        """Time of the last assignment by the group (loop time)."""
        self.fetched_at: float | None = None
        """Time of the last response to a fetch (loop time)."""
        self.group_latency = {name: Histogram(LATENCY_MS) for name in GROUP_REQUESTS.values()}

    # -- fetches

    def responded(
        self,
        sent_at: float,
        throttle_time_ms: int,
        fetched: Iterable[tuple[PartitionState, RecordSet | None]] = (),
    ) -> None:
        """Count the response to a fetch sent at `sent_at` (loop time). `fetched`: the partitions
        without an error, with their records."""
        self.fetched_at = self._loop.time()
        seconds = self.fetched_at - sent_at
        for state, records in fetched:
            size = 0 if records is None else len(records)
            self.all.size += size
            self._topic(state.tp.topic).size += size
            self.fetch_size.observe(size)
            if self.collector is not None:
                self._report_fetched(self.collector, state, records, seconds)
        self.fetch_latency.observe(seconds * 1000)
        self.throttle_time.observe(throttle_time_ms)

    def _report_fetched(
        self,
        collector: ConsumerMetricsCollector,
        state: PartitionState,
        records: RecordSet | None,
        seconds: float,
    ) -> None:
        topic, partition = state.tp
        self._guard.call(
            collector.on_fetch_completed,
            topic=topic,
            partition=partition,
            fetch_seconds=seconds,
            record_count=0 if records is None else count_records(records),
            size_bytes=0 if records is None else len(records),
        )
        lag = state.lag(self._read_committed)
        if lag is not None:
            self._guard.call(collector.on_records_lag, topic=topic, partition=partition, lag=lag)

    def skipped(self, topic: str, count: int) -> None:
        """Count offsets skipped by a reset after OFFSET_OUT_OF_RANGE."""
        self.all.skipped += count
        self._topic(topic).skipped += count

    def fetch_failed(self, partitions: Iterable[TopicPartition], error: BaseException) -> None:
        """Report a failed fetch of these partitions to the collector."""
        if self.collector is None:
            return
        for topic, partition in partitions:
            self._guard.call(
                self.collector.on_fetch_failed, topic=topic, partition=partition, exception=error
            )

    def _topic(self, topic: str) -> TopicCounts:
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        return counts

    def keep_topics(self, topics: Set[str]) -> None:
        """Drop the counts of all topics except `topics`."""
        if not self.topics.keys() <= topics:
            self.topics = {name: some for name, some in self.topics.items() if name in topics}

    # -- records

    def settle(self, state: PartitionState) -> None:
        """Count the records of a partition that were returned since the last `settle()`, and report
        them to the collector."""
        count = self.unsettled(state)
        if count:
            self._settled[state] = state.taken
            self.all.records += count
            self._topic(state.tp.topic).records += count
            if self.collector is not None:
                self._guard.call(
                    self.collector.on_records_consumed,
                    topic=state.tp.topic,
                    partition=state.tp.partition,
                    record_count=count,
                )
        if state.phase is Phase.RETIRED:
            self._settled.pop(state, None)

    def unsettled(self, state: PartitionState) -> int:
        """Return how many records of a partition were returned since the last `settle()`."""
        taken: int = state.taken
        # `taken` decreases when a failed interception puts records back.
        return max(0, taken - self._settled.get(state, 0))

    # -- the group

    def rebalanced(self) -> None:
        """Count an assignment by the group."""
        self.rebalances += 1
        self.rebalanced_at = self._loop.time()

    def coordinated(self, request: type, sent_at: float) -> None:
        """Count the response to a group request sent at `sent_at` (loop time)."""
        name = GROUP_REQUESTS.get(request.__name__)
        if name is not None:
            self.group_latency[name].observe((self._loop.time() - sent_at) * 1000)

    # -- commits

    def committed(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        began_at: float,
        error: BaseException | None,
    ) -> None:
        """Count a commit that began at `began_at` (loop time), and report the commit to the
        collector. `error`: the exception of a failed commit, else None."""
        seconds = self._loop.time() - began_at
        if error is None:
            self.commit_latency.observe(seconds * 1000)
        else:
            self.failed_commits += 1
        if self.collector is None:
            return
        plain = {tp: entry.offset for tp, entry in offsets.items()}
        if error is None:
            self._guard.call(
                self.collector.on_commit_completed, offsets=plain, commit_seconds=seconds
            )
        else:
            self._guard.call(
                self.collector.on_commit_failed,
                offsets=plain,
                exception=error,
                commit_seconds=seconds,
            )


# -- the context


class ConsumerContext:
    """The client, configuration and shared objects of one consumer."""

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        queue: RecordQueue,
        health: ConsumerHealthMonitor,
    ) -> None:
        self.client: Final = client
        self.config: Final = config
        self.subscriptions: Final = subscriptions
        self.fenced_epochs: Final = FencedEpochs(client.versions)
        self.queue: Final = queue
        self.health: Final = health
        subject = SubjectLog(log, config.subject)
        self.meter: Final = ConsumerMeter(subject, config)
        self.interception: Final = _interception(config, subject)
        if self.interception is not None:
            queue.buffer.set_interceptor(self.interception.begin)

    def fail(self, error: BaseException) -> None:
        """Update `health()`, and wake all waiting calls of the application: they raise `error`,
        which has ended a background task."""
        self.health.look()
        self.queue.wake_all()


def _interception(config: ConsumerConfig, subject: SubjectLog) -> ConsumerInterception | None:
    if not config.interceptors:
        return None
    from aiokafka._interception import ConsumerInterception

    return ConsumerInterception(config.interceptors, subject, config.introduction)


def telemetry_labels(config: ConsumerConfig, group: GroupMembership | None) -> dict[str, str]:
    """Return the labels of the consumer for pushed metrics (KIP-714)."""
    return {
        "group_id": config.group_id or "",
        "group_instance_id": config.group_instance_id or "",
        "group_member_id": "" if group is None else group.member_id,
        "client_rack": config.client.client_rack or "",
    }


# -- rebalance listeners and interceptors that are running

ListenerMethod = Callable[[set[TopicPartition]], Awaitable[None] | None]


class _Call:
    """One call of an application's callback. Tasks started by the callback inherit this object in
    their context, and may outlive the call."""

    __slots__ = ("is_running", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.is_running = True


_running: ContextVar[_Call | None] = ContextVar("aiokafka_listener", default=None)
_intercepting: ContextVar[_Call | None] = ContextVar("aiokafka_interceptor", default=None)


async def call_listener(
    owner: object, method: ListenerMethod, partitions: frozenset[TopicPartition]
) -> None:
    """Call a rebalance listener's method, plain or `async`, and mark the call for
    `refuse_in_listener()`. `owner` identifies the consumer."""
    with _inside(_running, owner):
        result = method(set(partitions))
        if inspect.isawaitable(result):
            await result


@contextmanager
def intercepting(owner: object) -> Iterator[None]:
    """Mark the `with` block as a call of `on_consume`, for `refuse_reading()`. `owner` identifies
    the consumer."""
    with _inside(_intercepting, owner):
        yield


def refuse_in_listener(owner: object, call: str) -> None:
    """Raise IllegalStateError if the caller is a running rebalance listener of the consumer, or a
    task that the listener started. The method named `call` would wait for the listener to return,
    or change the assignment while the listener runs."""
    if _is_inside(_running, owner):
        raise IllegalStateError(f"{call} cannot be called in a rebalance listener")


def refuse_reading(owner: object, is_calling: bool) -> None:
    """Raise IllegalStateError if the caller is a running rebalance listener or interceptor of the
    consumer, or a task started by this callback: no call returns records before the callback
    returns.

    `is_calling`: whether a plain `on_consume` is running, which then is the caller.
    """
    if not is_calling and _running.get() is None and _intercepting.get() is None:
        return
    refuse_in_listener(owner, "getone() and getmany()")
    if is_calling or _is_inside(_intercepting, owner):
        raise IllegalStateError("getone() and getmany() cannot be called in on_consume()")


def _is_inside(variable: ContextVar[_Call | None], owner: object) -> bool:
    running = variable.get()
    return running is not None and running.is_running and running.owner is owner


@contextmanager
def _inside(variable: ContextVar[_Call | None], owner: object) -> Iterator[None]:
    call = _Call(owner)
    token = variable.set(call)
    try:
        yield
    finally:
        # Tasks started by the callback inherited `call` in their context, and check `is_running`.
        call.is_running = False
        variable.reset(token)
