"""Count what a consumer fetches, returns and commits, and tell the application's collector.

Once per partition of a response, per call of `getmany` and per commit: the records themselves are
counted by `PartitionState.taken`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set

from aiokafka._guard import Guard
from aiokafka._log import SubjectLog
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.record.header import count_records
from aiokafka.structs import TopicPartition

__all__ = ["GROUP_REQUESTS", "ConsumerMeter", "TopicCounts"]

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
