"""The metrics of a share consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._log import Guard, SubjectLog
from aiokafka.errors import renewed
from aiokafka.metrics import ConsumerMetricsCollector, NullConsumerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.share.acquired import Acknowledgements, AcknowledgeType, Run
    from aiokafka.share.buffer import ShareBuffer
    from aiokafka.share.fetcher import ShareFetcher
    from aiokafka.share.membership import ShareMembership

__all__ = ["ShareMeter", "read_share_consumer"]

_NO_COLLECTORS = (ConsumerMetricsCollector, NullConsumerMetricsCollector)


class ShareMeter:
    """Counts fetches and returned records, and reports them and the outcomes of acknowledgements to
    the application's metrics collector. Owns the counts."""

    def __init__(self, log: SubjectLog, config: ShareConsumerConfig) -> None:
        collector = config.metrics_collector
        # Do not call a collector of one of these base classes, whose methods do nothing.
        self._collector = None if type(collector) in _NO_COLLECTORS else collector
        self._guard = Guard(log, "the metrics collector")
        self._loop = asyncio.get_running_loop()
        self.fetched_at: float | None = None
        """The loop time of the last response to a fetch."""
        self.records = 0
        """Records that the application has got."""
        self.unreadable_records = 0
        """Records that were rejected or returned as bytes because a deserializer has raised."""
        self.size = 0
        """Bytes of fetched record sets."""
        self.fetch_latency = Histogram(LATENCY_MS)
        self.fetch_size = Histogram(SIZE_BYTES)
        self.throttle_time = Histogram(LATENCY_MS)

    def responded(
        self,
        sent_at: float,
        throttle_time_ms: int,
        fetched: Iterable[tuple[TopicPartition, int, int]],
    ) -> None:
        """Count the response to a fetch sent at `sent_at` (loop time). `fetched`: each partition
        with acquired records, the number of these records, and the bytes of its record set."""
        self.fetched_at = self._loop.time()
        seconds = self.fetched_at - sent_at
        self.fetch_latency.observe(seconds * 1000)
        self.throttle_time.observe(throttle_time_ms)
        for tp, count, size in fetched:
            self.size += size
            self.fetch_size.observe(size)
            if self._collector is not None:
                self._guard.call(
                    self._collector.on_fetch_completed,
                    topic=tp.topic,
                    partition=tp.partition,
                    fetch_seconds=seconds,
                    record_count=count,
                    size_bytes=size,
                )

    def fetch_failed(self, partitions: Iterable[TopicPartition], error: BaseException) -> None:
        """Report a failed fetch of each of these partitions to the collector."""
        if self._collector is None:
            return
        for topic, partition in partitions:
            self._guard.call(
                self._collector.on_fetch_failed, topic=topic, partition=partition, exception=error
            )

    def delivered(self, taken: list[Run]) -> None:
        """Count records that the application gets."""
        for run in taken:
            self.records += len(run)
        if self._collector is None:
            return
        counts: dict[TopicPartition, int] = {}
        for run in taken:
            tp = TopicPartition(run[0].topic, run[0].partition)
            counts[tp] = counts.get(tp, 0) + len(run)
        for tp, count in counts.items():
            self._guard.call(
                self._collector.on_records_consumed,
                topic=tp.topic,
                partition=tp.partition,
                record_count=count,
            )

    def unreadable(self, topic: str) -> None:
        """Count a record that was rejected or returned as bytes because a deserializer raised."""
        self.unreadable_records += 1

    def acknowledged(
        self, tp: TopicPartition, type_: AcknowledgeType, count: int, error: KafkaError | None
    ) -> None:
        """Report the outcome of acknowledgements to the collector."""
        if self._collector is None:
            return
        if error is None:
            self._guard.call(
                self._collector.on_records_acknowledged,
                topic=tp.topic,
                partition=tp.partition,
                acknowledge_type=type_,
                record_count=count,
            )
        else:
            self._guard.call(
                self._collector.on_acknowledgement_failed,
                topic=tp.topic,
                partition=tp.partition,
                record_count=count,
                exception=renewed(error),
            )


def read_share_consumer(
    client: AIOKafkaClient,
    config: ShareConsumerConfig,
    fetcher: ShareFetcher,
    membership: ShareMembership,
    acknowledgements: Acknowledgements,
    buffer: ShareBuffer,
    now: float,
) -> MetricsSnapshot:
    """Return all metrics of a share consumer. `now`: the current loop time, for the metric of the
    time since the last heartbeat."""
    # Imported here, because dataclasses are slow to import.
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.metrics._values import GroupWriter

    meter = fetcher.meter
    root = GroupWriter("consumer-share-metrics", {"client-id": config.client.client_id})
    metrics = [*client.metrics("consumer-share"), *root.gauges(**client.waits.gauges())]
    fetch = root.tagged("consumer-share-fetch-manager-metrics")
    metrics += fetch.counters(
        fetch_total=meter.fetch_latency.count,
        records_consumed_total=meter.records,
        bytes_consumed_total=meter.size,
        records_unreadable_total=meter.unreadable_records,
        records_expired_total=buffer.expired,
        acknowledgements_error_total=acknowledgements.failed,
        **{
            f"records_{name}_total": count
            for name, count in zip(_NAMES, acknowledgements.counts.values(), strict=True)
        },
    )
    metrics += fetch.histograms(
        fetch_latency=meter.fetch_latency,
        fetch_size=meter.fetch_size,
        fetch_throttle_time=meter.throttle_time,
    )
    metrics += fetch.gauges(
        fetch_buffer_bytes=buffer.nbytes, acknowledgements_pending=acknowledgements.pending
    )
    coordinator = root.tagged("consumer-share-coordinator-metrics")
    beat_at = membership.beat_at
    metrics += coordinator.gauges(
        assigned_partitions=len(fetcher.partitions),
        member_epoch=membership.epoch,
        last_heartbeat_seconds_ago=None if beat_at is None else max(0.0, now - beat_at),
    )
    return MetricsSnapshot(metrics)


_NAMES = ("accepted", "released", "rejected", "renewed")
