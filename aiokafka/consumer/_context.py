"""The context and metrics that the parts of a consumer share, and a context variable that shows
which callback of the application is running."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from aiokafka._log import Guard, SubjectLog
from aiokafka._reading import FencedEpochs
from aiokafka._serialization import UnreadableRecords, adapt_deserializer, unreadable_records
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.errors import IllegalStateError
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.record.header import count_records
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._interception import ConsumerInterception
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer._health import ConsumerHealthMonitor
    from aiokafka.consumer.fetch.record_queue import RecordQueue
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = [
    "GROUP_REQUESTS",
    "ConsumerContext",
    "ConsumerMeter",
    "ListenerMethod",
    "TopicCounts",
    "call_listener",
    "deserializing",
    "intercepting",
    "refuse_in_listener",
    "refuse_reading",
    "running_callback",
    "telemetry_labels",
]

log = logging.getLogger("aiokafka.consumer.consumer")


# -- counts

RecordSet = bytes | bytearray | memoryview

_NO_COLLECTORS = (ConsumerMetricsCollector, NullConsumerMetricsCollector)


GROUP_REQUESTS = {
    "JoinGroupRequest": "join_time",
    "SyncGroupRequest": "sync_time",
    "HeartbeatRequest": "heartbeat_response_time",
    "ConsumerGroupHeartbeatRequest": "heartbeat_response_time",
}
"""The name of the latency metric for each type of request of a group member."""


class TopicCounts:
    """Counts of one topic, or of all topics."""

    __slots__ = ("records", "size", "skipped", "unreadable")

    def __init__(self) -> None:
        self.skipped = 0
        """Offsets skipped because the position was no longer in the log."""
        self.unreadable = 0
        """Records that were skipped, or returned as bytes, because a deserializer has failed."""
        self.records = 0
        """Records returned to the application."""
        self.size = 0
        """Compressed bytes fetched."""


class ConsumerMeter:
    """Counts fetches, returned records, rebalances and commits, and reports them to the
    application's metrics collector.

    No method is called for each record: the FetchBuffer counts returned records in
    `PartitionState.taken`, and `settle()` adds the increase to the counts of this object.

    Owns all counts except `PartitionState.taken`.
    """

    def __init__(self, log: SubjectLog, config: ConsumerConfig) -> None:
        collector = config.metrics_collector
        # Do not call a collector that is an instance of a base class itself, not of a subclass: its
        # methods do nothing.
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

    def unreadable(self, topic: str) -> None:
        """Count a record that a deserializer could not read, if its error is not raised."""
        self.all.unreadable += 1
        self._topic(topic).unreadable += 1

    def fetch_failed(self, partitions: Iterable[TopicPartition], error: BaseException) -> None:
        """Report a failed fetch of each of these partitions to the collector."""
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
        # `taken` decreases when records are put back, for example because a call is cancelled in an
        # interceptor: the records are returned, and counted, later.
        return max(0, taken - self._settled.get(state, 0))

    # -- the group

    def rebalanced(self) -> None:
        """Count an assignment by the group."""
        self.rebalances += 1
        self.rebalanced_at = self._loop.time()

    def coordinated(self, request: type, sent_at: float) -> None:
        """Count the latency of a group request sent at `sent_at` (loop time). Ignore requests that
        have no metric in GROUP_REQUESTS."""
        name = GROUP_REQUESTS.get(request.__name__)
        if name is not None:
            self.group_latency[name].observe((self._loop.time() - sent_at) * 1000)

    # -- commits

    def committed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        began_at: float,
        error: BaseException | None,
    ) -> None:
        """Count a commit that began at `began_at` (loop time), and report it to the collector.
        `error`: the exception of a failed commit; None if the commit succeeded."""
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
        self.key_deserializer: Final = adapt_deserializer(config.key_deserializer)
        self.value_deserializer: Final = adapt_deserializer(config.value_deserializer)
        self.on_unreadable: Final[UnreadableRecords | None] = unreadable_records(
            config.on_deserialization_error, subject, self.meter, "skipped"
        )
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


_LISTENER = "listener"
_INTERCEPTOR = "interceptor"
_DESERIALIZER = "deserializer"


class _Call:
    """One call of an application's callback by the consumer `owner`. `kind`: a listener, an
    interceptor or a deserializer. `outer`: the callback that has led to this call, for example a
    listener that reads from another consumer; None without one. Tasks started by the callback
    inherit this object in their context, and may outlive the call."""

    __slots__ = ("is_running", "kind", "outer", "owner")

    def __init__(self, kind: str, owner: object, outer: _Call | None) -> None:
        self.kind = kind
        self.owner = owner
        self.outer = outer
        self.is_running = True


running_callback: ContextVar[_Call | None] = ContextVar("aiokafka_callback", default=None)
"""The call of a listener, interceptor or deserializer that runs in this context, or has started the
running task."""


async def call_listener(
    owner: object, method: ListenerMethod, partitions: frozenset[TopicPartition]
) -> None:
    """Call a rebalance listener's method, synchronous or `async`, and mark the call for
    `refuse_in_listener()`. `owner` identifies the consumer."""
    with _inside(_LISTENER, owner):
        result = method(set(partitions))
        if inspect.isawaitable(result):
            await result


@contextmanager
def intercepting(owner: object) -> Iterator[None]:
    """Mark the `with` block as a call of `on_consume`, for `refuse_reading()`. `owner` identifies
    the consumer."""
    with _inside(_INTERCEPTOR, owner):
        yield


@contextmanager
def deserializing(owner: object) -> Iterator[None]:
    """Mark the `with` block as a call of a deserializer, for `refuse_reading()`. `owner` identifies
    the consumer."""
    with _inside(_DESERIALIZER, owner):
        yield


def refuse_in_listener(owner: object, call: str) -> None:
    """Raise IllegalStateError if the caller is a running rebalance listener of the consumer, or a
    task that the listener started. Without this check, the method named `call` would wait for the
    listener to return, or would change the assignment while the listener runs."""
    if _is_inside(_LISTENER, owner):
        raise IllegalStateError(f"{call} cannot be called in a rebalance listener")


def refuse_reading(owner: object, is_calling: bool) -> None:
    """Raise IllegalStateError if the caller is a running rebalance listener, interceptor or
    deserializer of the consumer, or a task started by this callback. Without this check, the call
    would wait for the callback to return, and the callback for the call.

    `is_calling`: whether a synchronous `on_consume` is running. Nothing else can run in this time,
    so `on_consume` itself has made the call.
    """
    refuse_in_listener(owner, "getone() and getmany()")
    if is_calling or _is_inside(_INTERCEPTOR, owner):
        raise IllegalStateError("getone() and getmany() cannot be called in on_consume()")
    if _is_inside(_DESERIALIZER, owner):
        raise IllegalStateError("getone() and getmany() cannot be called in a deserializer")


def _is_inside(kind: str, owner: object) -> bool:
    call = running_callback.get()
    while call is not None:
        if call.kind is kind and call.is_running and call.owner is owner:
            return True
        call = call.outer
    return False


@contextmanager
def _inside(kind: str, owner: object) -> Iterator[None]:
    call = _Call(kind, owner, running_callback.get())
    token = running_callback.set(call)
    try:
        yield
    finally:
        # Tasks started by the callback inherited `call` in their context, and check `is_running`.
        call.is_running = False
        running_callback.reset(token)
