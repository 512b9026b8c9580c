"""What the parts of a consumer share: signals that wake waiters, the meter, the context itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Final, Protocol

from aiokafka._callbacks import Guard
from aiokafka._log import SubjectLog
from aiokafka._reading import OldEpochs
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.record.header import count_records
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._interception import Interception
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetch.desk import ReaderDesk
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = [
    "GROUP_REQUESTS",
    "Arrivals",
    "ConsumerMeter",
    "Shared",
    "Signal",
    "TopicCounts",
    "telemetry_labels",
]


# -- Wait for "something changed" without polling and without lost wake-ups


# A waiter for more partitions than this hears of all.
_MOST_KEYS = 8


class Signal:
    """Wakes every task that waits at the moment of `notify()`.

    There is nothing to latch: a waiter looks at the state and calls `wait()` without an await in
    between, so no change can slip through on a single-threaded loop.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # In the order in which they came, not that of a set: runs can be repeated.
        self._waiters: dict[asyncio.Future[bool], None] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake all waiters."""
        # Woken waiters leave the dict themselves, when their task runs: it cannot change here.
        for waiter in self._waiters:
            _finish(waiter, True)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait until notified. True then, False at `deadline` (loop time; None = wait without
        limit)."""
        waiter, timer = _make_waiter(deadline)
        self._waiters[waiter] = None
        try:
            return await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _finish(waiter: asyncio.Future[bool], notified: bool) -> None:
    if not waiter.done():
        waiter.set_result(notified)


class Arrivals(Signal):
    """A signal whose waiters may be interested in some partitions only.

    With a reader for each of many partitions, what comes for one must not wake all.
    """

    __slots__ = ("_by_partition", "_wanted")

    def __init__(self) -> None:
        super().__init__()
        self._by_partition: dict[TopicPartition, dict[asyncio.Future[bool], None]] = {}
        self._wanted: dict[asyncio.Future[bool], Collection[TopicPartition]] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters or self._wanted)

    @property
    def waiters(self) -> Collection[asyncio.Future[bool]]:
        return {*self._waiters, *self._wanted}

    def notify(self) -> None:
        """Wake all waiters."""
        super().notify()
        for waiter in self._wanted:
            _finish(waiter, True)

    def notify_of(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the waiters for one of these, or for any."""
        super().notify()
        if self._by_partition:
            for tp in partitions:
                for waiter in self._by_partition.get(tp, ()):
                    _finish(waiter, True)

    def unserved(self) -> Collection[TopicPartition] | None:
        """Return the partitions of a waiter that was not woken; None if all were, or wait for any
        partition."""
        for waiter, wanted in self._wanted.items():
            if not waiter.done():
                return wanted
        return None

    async def wait_for(
        self, wanted: Collection[TopicPartition] | None, deadline: float | None
    ) -> bool:
        """Wait as `wait()` does, for news of these partitions (None = of any)."""
        # To enter very many keys for each wait costs more than to wake up in vain now and then.
        if wanted is None or len(wanted) > _MOST_KEYS:
            return await self.wait(deadline)
        waiter, timer = _make_waiter(deadline)
        self._wanted[waiter] = wanted
        for tp in wanted:
            self._by_partition.setdefault(tp, {})[waiter] = None
        try:
            return await waiter
        finally:
            del self._wanted[waiter]
            for tp in wanted:
                waiters = self._by_partition[tp]
                waiters.pop(waiter, None)
                if not waiters:
                    del self._by_partition[tp]
            if timer is not None:
                timer.cancel()


def _make_waiter(
    deadline: float | None,
) -> tuple[asyncio.Future[bool], asyncio.TimerHandle | None]:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    timer = None if deadline is None else loop.call_at(deadline, _finish, waiter, False)
    return waiter, timer


# -- Count what a consumer fetches, returns and commits, and tell the application's collector

# Once per partition of a response, per call of `getmany` and per commit: the records themselves are
# counted by `PartitionState.taken`.


_SILENT = (ConsumerMetricsCollector, NullConsumerMetricsCollector)


GROUP_REQUESTS = {
    "JoinGroupRequest": "join_time",
    "SyncGroupRequest": "sync_time",
    "HeartbeatRequest": "heartbeat_response_time",
    "ConsumerGroupHeartbeatRequest": "heartbeat_response_time",
}
"""The metrics that requests of a group's member count for."""


class TopicCounts:
    """What was read of one topic, or of all."""

    __slots__ = ("records", "size", "skipped")

    def __init__(self) -> None:
        self.skipped = 0
        """Offsets that were skipped, because the log did not have the position any more."""
        self.records = 0
        """Records that were returned."""
        self.size = 0
        """Bytes of record sets that were fetched, compressed."""


class ConsumerMeter:
    """Counts what the parts of a consumer tell.

    Owns every count but that of records: each `PartitionState` has its own, of which `settle` takes
    what is new.
    """

    def __init__(self, log: SubjectLog, collector: ConsumerMetricsCollector | None) -> None:
        """Begin at zero. The base class as `collector` is no collector."""
        self.collector = None if type(collector) in _SILENT else collector
        self._guard = Guard(log, "the metrics collector")
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
        """When the group has given an assignment last (loop time)."""
        self.group_latency = {name: Histogram(LATENCY_MS) for name in GROUP_REQUESTS.values()}

    # -- fetches

    def responded(self, sent_at: float, throttle_time_ms: int) -> None:
        """Count a fetch that was answered; it was sent at `sent_at` (loop time)."""
        self.fetch_latency.observe((self._loop.time() - sent_at) * 1000)
        self.throttle_time.observe(throttle_time_ms)

    def fetched(
        self,
        state: PartitionState,
        records: bytes | bytearray | memoryview | None,
        sent_at: float,
        lag: int | None,
    ) -> None:
        """Count what a response brought for one partition."""
        size = 0 if records is None else len(records)
        topic, partition = state.tp
        self.all.size += size
        self._topic(topic).size += size
        self.fetch_size.observe(size)
        if self.collector is None:
            return
        self._guard.call(
            self.collector.on_fetch_completed,
            topic=topic,
            partition=partition,
            fetch_seconds=self._loop.time() - sent_at,
            record_count=0 if records is None else count_records(records),
            size_bytes=size,
        )
        if lag is not None:
            self._guard.call(
                self.collector.on_records_lag, topic=topic, partition=partition, lag=lag
            )

    def skipped(self, topic: str, count: int) -> None:
        """Count offsets that a reset after a position out of range has skipped."""
        self.all.skipped += count
        self._topic(topic).skipped += count

    def fetch_failed(self, partitions: Iterable[TopicPartition], error: BaseException) -> None:
        """Tell the collector that these partitions were not fetched."""
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
        """Drop the counts of all other topics; those of the consumer keep what they had."""
        if not self.topics.keys() <= topics:
            self.topics = {name: some for name, some in self.topics.items() if name in topics}

    # -- records

    def settle(self, state: PartitionState) -> None:
        """Count the records that were returned of a partition since the last time."""
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
        """Return how many records of a partition were returned since it was settled."""
        taken: int = state.taken
        # Fewer than before, if some were given back.
        return max(0, taken - self._settled.get(state, 0))

    # -- the group

    def rebalanced(self) -> None:
        """Count an assignment that was taken over."""
        self.rebalances += 1
        self.rebalanced_at = self._loop.time()

    def coordinated(self, request: type, sent_at: float) -> None:
        """Count a request of the member that was answered; it was sent at `sent_at`."""
        name = GROUP_REQUESTS.get(request.__name__)
        if name is not None:
            self.group_latency[name].observe((self._loop.time() - sent_at) * 1000)

    # -- commits

    def committed(
        self,
        offsets: Mapping[TopicPartition, int],
        began_at: float,
        error: BaseException | None,
    ) -> None:
        """Count a commit that began at `began_at` (loop time), and that `error` has ended."""
        seconds = self._loop.time() - began_at
        if error is None:
            self.commit_latency.observe(seconds * 1000)
        else:
            self.failed_commits += 1
        if self.collector is None:
            return
        if error is None:
            self._guard.call(
                self.collector.on_commit_completed, offsets=offsets, commit_seconds=seconds
            )
        else:
            self._guard.call(
                self.collector.on_commit_failed,
                offsets=offsets,
                exception=error,
                commit_seconds=seconds,
            )


log = logging.getLogger("aiokafka.consumer.consumer")


class Shared:
    """The parts that every room of one consumer works with. None of them knows a room."""

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        desk: ReaderDesk,
        on_change: Callable[[], None],
    ) -> None:
        self.client: Final = client
        self.config: Final = config
        self.subscriptions: Final = subscriptions
        self.old_epochs: Final = OldEpochs(client.versions)
        self.desk: Final = desk
        self.on_change: Final = on_change
        """Called whenever the consumer may be doing better or worse than before."""
        subject = SubjectLog(log, config.subject)
        self.meter: Final = ConsumerMeter(subject, config.metrics_collector)
        self.interception: Final = _interception(config, subject)
        if self.interception is not None:
            desk.intercept()

    def fail(self, error: BaseException) -> None:
        """Wake whatever waits, so that it sees that the background work has failed."""
        self.on_change()
        self.desk.wake_all()


def _interception(config: ConsumerConfig, subject: SubjectLog) -> Interception | None:
    if not config.interceptors:
        return None
    from aiokafka._interception import Interception

    return Interception(config.interceptors, subject, config.introduction, drops=True)


class _Member(Protocol):
    """What takes part in a group."""

    @property
    def member_id(self) -> str:
        """Its id there."""


def telemetry_labels(config: ConsumerConfig, group: _Member | None) -> dict[str, str]:
    """Return what describes a consumer to brokers that take its metrics."""
    return {
        "group_id": config.group_id or "",
        "group_instance_id": config.group_instance_id or "",
        "group_member_id": "" if group is None else group.member_id,
        "client_rack": config.client.client_rack or "",
    }
