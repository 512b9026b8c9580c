"""The metrics of a producer: counts of batches, the application's collector, and snapshots."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokafka._log import Guard, SubjectLog
from aiokafka.errors import KafkaTimeoutError
from aiokafka.metrics import NullProducerMetricsCollector, ProducerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.metrics import Metric, MetricsSnapshot
    from aiokafka.metrics._values import GroupWriter
    from aiokafka.producer.batch import ProducerBatch
    from aiokafka.producer.node_sender import Batches
    from aiokafka.producer.sender import Sender

__all__ = ["ProducerMeter", "TopicCounts", "read_producer"]

_NS = 1_000_000_000

_NULL_COLLECTORS = (ProducerMetricsCollector, NullProducerMetricsCollector)


class TopicCounts:
    """The counts of one topic, or of all topics."""

    __slots__ = ("batches", "errors", "records", "retries", "size")

    def __init__(self) -> None:
        self.records = 0
        """Records in requests, including retries."""
        self.size = 0
        """Bytes of compressed batches in requests, including retries."""
        self.batches = 0
        """Batches in requests, including retries."""
        self.retries = 0
        """Records that were requeued after a failed attempt."""
        self.errors = 0
        """Records that have failed."""

    def absorb(self, other: TopicCounts) -> None:
        """Add the counts of `other`."""
        self.records += other.records
        self.size += other.size
        self.batches += other.batches
        self.retries += other.retries
        self.errors += other.errors


class MemoryWait:
    """The seconds for which a call has waited for memory."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class ProducerMeter:
    """Counts batches and calls, and calls the application's collector.

    Owns every count, and the time at which each batch was last sent or requeued. No method runs for
    a single record, because that would reduce the throughput.
    """

    def __init__(self, log: SubjectLog, collector: ProducerMetricsCollector | None) -> None:
        """A `collector` whose class is exactly ProducerMetricsCollector or
        NullProducerMetricsCollector is not called, because its methods do nothing."""
        self.collector = None if type(collector) in _NULL_COLLECTORS else collector
        """The application's collector; None without one, or if all its methods do nothing."""
        self._guard = Guard(log, "the metrics collector")
        self._loop = asyncio.get_running_loop()
        self._sent_at: dict[ProducerBatch, float] = {}
        self._back_at: dict[ProducerBatch, float] = {}
        self._forgotten = TopicCounts()
        """The sum of the counts of forgotten topics."""
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.splits = 0
        self.uncompressed = 0
        """Bytes of the batches in requests, before compression."""
        self.queue_time = Histogram(LATENCY_MS)
        self.batch_size = Histogram(SIZE_BYTES)
        self.request_latency = Histogram(LATENCY_MS)
        self.throttle_time = Histogram(LATENCY_MS)
        self.waited = 0.0
        """Seconds for which calls have waited for memory."""
        self.waiting = 0
        """The number of calls that wait for memory now."""
        self.exhausted = 0
        """The number of calls that timed out waiting for memory."""
        self.flush_seconds = 0.0
        self.txn_seconds = dict.fromkeys(("init", "begin", "send_offsets", "commit", "abort"), 0.0)
        """Seconds spent in transaction calls, by name of the call."""

    @property
    def all(self) -> TopicCounts:
        """The counts of all topics, including forgotten topics."""
        total = TopicCounts()
        for counts in (self._forgotten, *self.topics.values()):
            total.absorb(counts)
        return total

    # -- batches

    def dispatched(self, batches: Batches, now: float) -> None:
        """Count the batches of a request, which is sent at `now` (loop time)."""
        for _, batch in batches:
            builder = batch.builder
            size = builder.compressed_size
            topic = batch.partition.topic
            counts = self.topics[topic]
            counts.batches += 1
            counts.records += builder.record_count
            counts.size += size
            since = batch.created
            if self._back_at:
                since = self._back_at.pop(batch, since)
            waited = now - since
            self.queue_time.observe(waited * 1000)
            self.batch_size.observe(size)
            self.uncompressed += builder.size
            if self.collector is not None:
                self._sent_at[batch] = now
                self._guard.call(
                    self.collector.on_batch_dispatched,
                    topic=topic,
                    partition=batch.partition.partition,
                    queue_time_seconds=waited,
                    batch_size_bytes=builder.size,
                    record_count=builder.record_count,
                    attempt=batch.attempts,
                )

    def responded(self, latency: float, throttle_time_ms: int) -> None:
        """Observe the latency of a request in seconds, and its throttle time."""
        self.request_latency.observe(latency * 1000)
        self.throttle_time.observe(throttle_time_ms)

    def returned(self, batch: ProducerBatch) -> None:
        """Count a batch that was requeued for a retry."""
        self._sent_at.pop(batch, None)
        self._back_at[batch] = self._loop.time()
        self.topics[batch.partition.topic].retries += batch.record_count

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Count a split batch. If the batch was sent before, its `parts` count as requeued now."""
        self.splits += 1
        self.forget(batch)
        if batch.attempts:
            self._back_at.update(dict.fromkeys(parts, self._loop.time()))

    def completed(
        self, batch: ProducerBatch, collector: ProducerMetricsCollector, is_acknowledged: bool
    ) -> None:
        """Report a batch that was written, or sent with acks=0, to the collector."""
        now = self._loop.time()
        self._guard.call(
            collector.on_batch_completed,
            topic=batch.partition.topic,
            partition=batch.partition.partition,
            send_to_completion_seconds=now - self._sent_at.pop(batch, now),
            record_count=batch.record_count,
            acknowledged=is_acknowledged,
            batch_age_seconds=now - batch.created,
        )

    def failed(self, batch: ProducerBatch, error: BaseException) -> None:
        """Count a batch whose futures have failed, and report it to the collector."""
        self.forget(batch)
        self.topics[batch.partition.topic].errors += batch.record_count
        if self.collector is not None:
            self._guard.call(
                self.collector.on_batch_failed,
                topic=batch.partition.topic,
                partition=batch.partition.partition,
                exception=error,
                record_count=batch.record_count,
                batch_age_seconds=self._loop.time() - batch.created,
            )

    def forget(self, batch: ProducerBatch) -> None:
        """Forget the times of a batch that is not sent again."""
        self._sent_at.pop(batch, None)
        self._back_at.pop(batch, None)

    def forget_topic(self, topic: str) -> None:
        """Forget the counts of a topic, without changing the totals."""
        counts = self.topics.pop(topic, None)
        if counts is not None:
            self._forgotten.absorb(counts)

    # -- calls

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Add the duration of the `with` block to `flush_seconds`."""
        began_at = self._loop.time()
        try:
            yield
        finally:
            self.flush_seconds += self._loop.time() - began_at

    def transacted(self, call: str, seconds: float) -> None:
        """Add `seconds`, the duration of a call of the transaction method `call`, to
        `txn_seconds`."""
        self.txn_seconds[call] += seconds

    # -- memory

    @contextmanager
    def waiting_for_memory(self, topic: str, partition: int | None) -> Iterator[MemoryWait]:
        """Add the duration of the `with` block to `waited`. If the block raises, report the wait to
        the collector. Otherwise report nothing: the producer later reports the sum of all waits of
        the record by one call of `buffer_waited`."""
        wait = MemoryWait()
        began_at = self._loop.time()
        self.waiting += 1
        try:
            yield wait
        except BaseException as error:
            self.exhausted += isinstance(error, KafkaTimeoutError)
            self.buffer_waited(topic, partition, self._loop.time() - began_at)
            raise
        finally:
            self.waiting -= 1
            wait.seconds = self._loop.time() - began_at
            self.waited += wait.seconds

    def buffer_waited(self, topic: str, partition: int | None, seconds: float) -> None:
        """Report a wait of `seconds` for memory to the collector; 0 is not reported."""
        if self.collector is not None and seconds > 0:
            self._guard.call(
                self.collector.on_buffer_wait,
                topic=topic,
                partition=-1 if partition is None else partition,
                wait_seconds=seconds,
            )


# -- Snapshots


def read_producer(
    client: AIOKafkaClient, config: ProducerConfig, sender: Sender
) -> MetricsSnapshot:
    """Return a snapshot of all metrics of a producer."""
    # Import here, because most programs never read metrics.
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.metrics._values import GroupWriter

    writer = GroupWriter("producer-metrics", {"client-id": config.client.client_id})
    metrics = [*client.metrics("producer"), *_batches(writer, sender.meter)]
    metrics += _memory(writer, sender)
    metrics += writer.gauges(**client.waits.gauges())
    for topic, counts in list(sender.meter.topics.items()):
        metrics += writer.tagged("producer-topic-metrics", topic=topic).counters(
            record_send_total=counts.records,
            byte_total=counts.size,
            batch_total=counts.batches,
            record_retry_total=counts.retries,
            record_error_total=counts.errors,
        )
    if config.transactional_id is not None:
        metrics += writer.counters(
            **{f"txn_{call}_time_ns_total": s * _NS for call, s in sender.meter.txn_seconds.items()}
        )
    return MetricsSnapshot(metrics)


def _batches(writer: GroupWriter, meter: ProducerMeter) -> Iterator[Metric]:
    total = meter.all
    yield from writer.counters(
        record_send_total=total.records,
        byte_total=total.size,
        batch_total=total.batches,
        record_retry_total=total.retries,
        record_error_total=total.errors,
        batch_split_total=meter.splits,
        flush_time_ns_total=meter.flush_seconds * _NS,
    )
    yield from writer.gauges(
        compression_rate_avg=total.size / meter.uncompressed if meter.uncompressed else None
    )
    yield from writer.histograms(
        record_queue_time=meter.queue_time,
        batch_size=meter.batch_size,
        request_latency=meter.request_latency,
        produce_throttle_time=meter.throttle_time,
    )


def _memory(writer: GroupWriter, sender: Sender) -> Iterator[Metric]:
    memory = sender.accumulator.memory
    meter = sender.meter
    yield from writer.gauges(
        buffer_total_bytes=memory.size,
        buffer_available_bytes=max(0, memory.free),
        waiting_threads=meter.waiting,
        batches_pending=len(sender.accumulator.pending),
        requests_in_flight=sender.requests_in_flight,
    )
    yield from writer.counters(
        bufferpool_wait_time_ns_total=meter.waited * _NS,
        buffer_exhausted_total=meter.exhausted,
    )
