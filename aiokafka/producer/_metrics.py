"""The snapshot of a producer's numbers: what its meter has counted, and what owners tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.metrics import Metric, MetricsSnapshot
    from aiokafka.metrics._values import GroupWriter
    from aiokafka.producer._meter import ProducerMeter
    from aiokafka.producer.sending.sender import Sender

__all__ = ["read_producer"]

_NS = 1_000_000_000


def read_producer(
    client: AIOKafkaClient, config: ProducerConfig, sender: Sender
) -> MetricsSnapshot:
    """Return all metrics of a producer at this moment."""
    # Only who asks pays: a process needs them for no record.
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
