"""Count what becomes of batches, and tell the application's collector. Once per batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aiokafka._callbacks import Guard
from aiokafka._log import SubjectLog
from aiokafka.errors import KafkaTimeoutError
from aiokafka.metrics import NullProducerMetricsCollector, ProducerMetricsCollector
from aiokafka.metrics._clients import LATENCY_MS, SIZE_BYTES, Histogram
from aiokafka.producer.batches.batch import ProducerBatch
from aiokafka.producer.sending.requests import Cargo

__all__ = ["ProducerMeter", "TopicCounts"]

_SILENT = (ProducerMetricsCollector, NullProducerMetricsCollector)


class TopicCounts:
    """What was sent to one topic, or to all."""

    __slots__ = ("batches", "errors", "records", "retries", "size")

    def __init__(self) -> None:
        self.records = 0
        """Records in requests, again for each attempt."""
        self.size = 0
        """Bytes of batches in requests, compressed, again for each attempt."""
        self.batches = 0
        """Batches in requests, again for each attempt."""
        self.retries = 0
        """Records that waited again after an attempt that failed."""
        self.errors = 0
        """Records that were given up."""


class MemoryWait:
    """How long a call has waited for memory, in seconds."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class ProducerMeter:
    """Counts batches as `Delivery` and the `NodeSender`s say what becomes of them.

    Owns every count, and when each batch was sent last, or came back. Nothing here runs per record.
    """

    def __init__(self, log: SubjectLog, collector: ProducerMetricsCollector | None) -> None:
        """Begin at zero. The base class as `collector` is no collector."""
        self._collector = None if type(collector) in _SILENT else collector
        self._guard = Guard(log, "the metrics collector")
        self._loop = asyncio.get_running_loop()
        self._sent_at: dict[ProducerBatch, float] = {}
        self._back_at: dict[ProducerBatch, float] = {}
        self.all = TopicCounts()
        self.topics: dict[str, TopicCounts] = {}
        self.splits = 0
        self.uncompressed = 0
        """Bytes of batches in requests before compression."""
        self.queue_time = Histogram(LATENCY_MS)
        self.batch_size = Histogram(SIZE_BYTES)
        self.request_latency = Histogram(LATENCY_MS)
        self.throttle_time = Histogram(LATENCY_MS)
        self.waited = 0.0
        """Seconds that calls have waited for memory."""
        self.waiting = 0
        """Calls that wait for memory at the moment."""
        self.exhausted = 0
        """Calls that got no memory in time."""
        self.flush_seconds = 0.0
        self.txn_seconds = dict.fromkeys(("init", "begin", "send_offsets", "commit", "abort"), 0.0)
        """What calls about transactions have taken, in seconds."""

    # -- batches

    def dispatched(self, cargo: Cargo) -> None:
        """Count the batches that go into a request."""
        now = self._loop.time()
        for _, batch in cargo:
            builder = batch.builder
            size = builder.compressed_size or builder.size
            topic = batch.partition.topic
            for counts in (self.all, self.topics.get(topic) or self._topic(topic)):
                counts.batches += 1
                counts.records += builder.record_count
                counts.size += size
            waited = now - self._back_at.pop(batch, batch.created)
            self._sent_at[batch] = now
            self.queue_time.observe(waited * 1000)
            self.batch_size.observe(size)
            self.uncompressed += builder.size
            if self._collector is not None:
                self._guard.call(
                    self._collector.on_batch_dispatched,
                    topic=topic,
                    partition=batch.partition.partition,
                    queue_time_seconds=waited,
                    batch_size_bytes=builder.size,
                    record_count=builder.record_count,
                    attempt=batch.attempts,
                )

    def _topic(self, topic: str) -> TopicCounts:
        counts = self.topics[topic] = TopicCounts()
        return counts

    def responded(self, sent_at: float, throttle_time_ms: int) -> None:
        """Count a request that was answered; it was sent at `sent_at` (loop time)."""
        self.request_latency.observe((self._loop.time() - sent_at) * 1000)
        self.throttle_time.observe(throttle_time_ms)

    def returned(self, batch: ProducerBatch) -> None:
        """Count a batch that waits again, to be sent once more."""
        self._sent_at.pop(batch, None)
        self._back_at[batch] = self._loop.time()
        for counts in self._counts(batch):
            counts.retries += batch.record_count

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Count a batch that was too large; its parts wait from now on."""
        self.splits += 1
        self.forget(batch)
        if batch.attempts:
            self._back_at.update(dict.fromkeys(parts, self._loop.time()))

    def completed(self, batch: ProducerBatch, is_acknowledged: bool) -> None:
        """Take note of a batch whose futures have their results."""
        now = self._loop.time()
        sent_at = self._sent_at.pop(batch, now)
        if self._collector is not None:
            self._guard.call(
                self._collector.on_batch_completed,
                topic=batch.partition.topic,
                partition=batch.partition.partition,
                send_to_completion_seconds=now - sent_at,
                record_count=batch.record_count,
                acknowledged=is_acknowledged,
                batch_age_seconds=now - batch.created,
            )

    def failed(self, batch: ProducerBatch, error: BaseException) -> None:
        """Count a batch whose futures have failed."""
        self.forget(batch)
        for counts in self._counts(batch):
            counts.errors += batch.record_count
        if self._collector is not None:
            self._guard.call(
                self._collector.on_batch_failed,
                topic=batch.partition.topic,
                partition=batch.partition.partition,
                exception=error,
                record_count=batch.record_count,
                batch_age_seconds=self._loop.time() - batch.created,
            )

    def _counts(self, batch: ProducerBatch) -> tuple[TopicCounts, TopicCounts]:
        topic = batch.partition.topic
        return self.all, self.topics.get(topic) or self._topic(topic)

    def forget(self, batch: ProducerBatch) -> None:
        """Drop the times of a batch that is not sent any more."""
        self._sent_at.pop(batch, None)
        self._back_at.pop(batch, None)

    def forget_topic(self, topic: str) -> None:
        """Drop the counts of a topic that is gone; those of the client keep what they had."""
        self.topics.pop(topic, None)

    # -- calls

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Count the time that the block takes as that of a flush."""
        began_at = self._loop.time()
        try:
            yield
        finally:
            self.flush_seconds += self._loop.time() - began_at

    @contextmanager
    def transacting(self, call: str) -> Iterator[None]:
        """Count the time that the block takes as that of a `call` about transactions."""
        began_at = self._loop.time()
        try:
            yield
        finally:
            self.txn_seconds[call] += self._loop.time() - began_at

    # -- memory

    @contextmanager
    def waiting_for_memory(self, topic: str, partition: int | None) -> Iterator[MemoryWait]:
        """Count the time that the block takes; tell the collector, if the block raises."""
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
        """Tell the collector that one call has waited for memory, if it has."""
        if self._collector is not None and seconds > 0:
            self._guard.call(
                self._collector.on_buffer_wait,
                topic=topic,
                partition=-1 if partition is None else partition,
                wait_seconds=seconds,
            )
