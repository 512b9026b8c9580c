"""The metrics snapshot of a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aiokafka.consumer._context import ConsumerContext, ConsumerMeter
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.metrics import Metric, MetricKind, MetricsSnapshot
from aiokafka.metrics._values import GroupWriter
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.fetch.record_queue import RecordQueue
    from aiokafka.consumer.group.group import GroupMembership

__all__ = ["read_consumer"]

_FETCH = "consumer-fetch-manager-metrics"

_COLUMNS = (
    ("records-consumed-total", MetricKind.COUNTER, "records"),
    ("records-lag", MetricKind.GAUGE, "records"),
    ("records-lead", MetricKind.GAUGE, "records"),
    ("position", MetricKind.GAUGE, ""),
    ("paused", MetricKind.GAUGE, ""),
)
"""The name, kind and unit of each metric of a partition."""

_Row = tuple[TopicPartition, int, int | None, int | None, int | None, bool]
"""Partition, number of records read, lag, start of the log, position, and whether paused."""


def read_consumer(
    context: ConsumerContext,
    group: GroupMembership | None,
    buffered: int,
    waited: float,
    now: float,
) -> MetricsSnapshot:
    """Return all metrics of a consumer.

    Args:
        context: The context of the consumer.
        group: The membership of the consumer; None without `group_id`.
        buffered: Number of bytes of fetched responses that the application has not read completely.
        waited: For how many seconds calls of the application have waited for records.
        now: The present loop time, for the ages.
    """
    states = list(context.subscriptions.assignment.states())
    root = GroupWriter("consumer-metrics", {"client-id": context.config.client.client_id})
    fetch = root.tagged(_FETCH)
    metrics = [*context.client.metrics("consumer"), *_fetches(fetch, context.meter, states)]
    metrics += root.gauges(**context.client.waits.gauges())
    metrics += _polls(root, context.queue, waited, now)
    metrics += fetch.gauges(fetch_buffer_bytes=buffered)
    partitions = _PartitionRows(fetch.tags, states, context.config.read_committed)
    metrics += fetch.gauges(records_lag_max=partitions.largest_lag())
    if group is not None:
        coordinator = root.tagged("consumer-coordinator-metrics")
        metrics += _coordinator(coordinator, context.meter, group, len(states), now)
    return MetricsSnapshot(metrics, partitions)


def _polls(writer: GroupWriter, queue: RecordQueue, waited: float, now: float) -> Iterator[Metric]:
    """Return the metrics of calls of `getone()` and `getmany()` (KIP-517). Metrics without a value
    are omitted."""
    buffer = queue.buffer
    calls, elapsed = buffer.timed_call, now - buffer.first_called_at
    if calls == 0:
        return iter(())
    intervals = calls - 1
    return writer.gauges(
        time_between_poll_avg=(
            (buffer.called_at - buffer.first_called_at) * 1000 / intervals if intervals else None
        ),
        time_between_poll_max=buffer.longest_interval * 1000 if intervals else None,
        poll_idle_ratio_avg=min(1.0, waited / elapsed) if elapsed > 0 else None,
        # A call that waits counts as polling, as for `max_poll_interval_ms`.
        last_poll_seconds_ago=0.0 if queue.has_readers else _since(buffer.called_at, now),
    )


def _fetches(
    writer: GroupWriter, meter: ConsumerMeter, states: list[PartitionState]
) -> Iterator[Metric]:
    # Do not call `settle()`, which changes the counts: another thread may call `metrics()`.
    fresh: dict[str, int] = {}
    for state in states:
        # Check `taken` first, because most partitions may have no records, and this is faster.
        if state.taken and (count := meter.unsettled(state)):
            topic = state.tp.topic
            fresh[topic] = fresh.get(topic, 0) + count
    yield from writer.counters(
        records_consumed_total=meter.all.records + sum(fresh.values()),
        bytes_consumed_total=meter.all.size,
        records_skipped_total=meter.all.skipped,
        records_unreadable_total=meter.all.unreadable,
        fetch_total=meter.fetch_latency.count,
    )
    yield from writer.histograms(
        fetch_latency=meter.fetch_latency,
        fetch_size=meter.fetch_size,
        fetch_throttle_time=meter.throttle_time,
    )
    for topic, counts in list(meter.topics.items()):
        yield from writer.tagged(_FETCH, topic=topic).counters(
            records_consumed_total=counts.records + fresh.get(topic, 0),
            bytes_consumed_total=counts.size,
            records_skipped_total=counts.skipped,
            records_unreadable_total=counts.unreadable,
        )


class _PartitionRows:
    """The metrics of the assigned partitions. The constructor only copies the values. Iteration
    creates the Metric objects: for 10,000 partitions, creating the 50,000 objects takes 0.1 s.
    """

    __slots__ = ("_rows", "_tags")

    def __init__(
        self, tags: Mapping[str, str], states: list[PartitionState], read_committed: bool
    ) -> None:
        self._tags = tags
        self._rows: list[_Row] = [
            (
                state.tp,
                state.taken,
                state.lag(read_committed),
                state.log_start,
                state.position,
                state.paused,
            )
            for state in states
        ]

    def __len__(self) -> int:
        return sum(len(_COLUMNS) - _values(row).count(None) for row in self._rows)

    def __iter__(self) -> Iterator[Metric]:
        for row in self._rows:
            tags = self._tags_of(row)
            for (name, kind, unit), value in zip(_COLUMNS, _values(row), strict=True):
                if value is not None:
                    yield Metric(_FETCH, name, value, kind, unit, tags)

    def named(self, name: str) -> Iterator[Metric]:
        """Yield the metrics with this name, one for each partition with a known value."""
        for index, (known, kind, unit) in enumerate(_COLUMNS):
            if known == name:
                for row in self._rows:
                    value = _values(row)[index]
                    if value is not None:
                        yield Metric(_FETCH, name, value, kind, unit, self._tags_of(row))

    def largest_lag(self) -> int | None:
        """Return the largest known lag of a partition; None if no lag is known."""
        return max((lag for _, _, lag, *_ in self._rows if lag is not None), default=None)

    def _tags_of(self, row: _Row) -> dict[str, str]:
        topic, partition = row[0]
        return {**self._tags, "topic": topic, "partition": str(partition)}


def _values(row: _Row) -> tuple[int | None, ...]:
    """Return the values of a partition in the order of `_COLUMNS`; None for an unknown value."""
    _, taken, lag, start, offset, is_paused = row
    if offset is None:
        return taken, lag, None, None, int(is_paused)
    return taken, lag, None if start is None else max(0, offset - start), offset, int(is_paused)


def _coordinator(
    writer: GroupWriter, meter: ConsumerMeter, group: GroupMembership, assigned: int, now: float
) -> Iterator[Metric]:
    yield from writer.counters(
        rebalance_total=meter.rebalances,
        commit_total=meter.commit_latency.count,
        commit_failed_total=meter.failed_commits,
    )
    yield from writer.gauges(
        assigned_partitions=assigned,
        generation=group.generation,
        last_rebalance_seconds_ago=_since(meter.rebalanced_at, now),
        last_heartbeat_seconds_ago=_since(group.beat_at, now),
    )
    yield from writer.histograms(commit_latency=meter.commit_latency, **meter.group_latency)


def _since(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)
