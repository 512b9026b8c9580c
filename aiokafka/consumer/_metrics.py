"""The snapshot of a consumer's numbers: what its meter has counted, and what owners tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiokafka.consumer._meter import ConsumerMeter
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer._shared import Shared
from aiokafka.metrics import Metric, MetricKind, MetricsSnapshot
from aiokafka.metrics._tables import GroupWriter

if TYPE_CHECKING:
    from aiokafka.consumer.group.group import Group

__all__ = ["read_consumer"]

_FETCH = "consumer-fetch-manager-metrics"


def read_consumer(
    shared: Shared, group: Group | None, buffered: int, now: float
) -> MetricsSnapshot:
    """Return all metrics of a consumer at this moment (`now`: loop time), at which `buffered` bytes
    of responses are in memory."""
    states = list(shared.subscriptions.assignment.states())
    root = GroupWriter("consumer-metrics", {"client-id": shared.config.client.client_id})
    fetch = root.tagged(_FETCH)
    metrics = [*shared.client.metrics("consumer"), *_fetches(fetch, shared.meter, states)]
    metrics += fetch.gauges(fetch_buffer_bytes=buffered)
    metrics += _partitions(fetch, states, shared.config.read_committed)
    if group is not None:
        coordinator = root.tagged("consumer-coordinator-metrics")
        metrics += _coordinator(coordinator, shared.meter, group, len(states), now)
    return MetricsSnapshot(metrics)


def _fetches(
    writer: GroupWriter, meter: ConsumerMeter, states: list[PartitionState]
) -> Iterator[Metric]:
    # Only read: another thread may ask, while records are returned.
    fresh: dict[str, int] = {}
    for state in states:
        fresh[state.tp.topic] = fresh.get(state.tp.topic, 0) + meter.unsettled(state)
    yield from writer.counters(
        records_consumed_total=meter.all.records + sum(fresh.values()),
        bytes_consumed_total=meter.all.size,
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
        )


def _partitions(
    writer: GroupWriter, states: list[PartitionState], read_committed: bool
) -> Iterator[Metric]:
    lags = []
    for state in states:
        topic, partition = state.tp
        tags = {**writer.tags, "topic": topic, "partition": str(partition)}
        lag = state.lag(read_committed)
        start, position = state.log_start, state.position
        lead = None if start is None or position is None else max(0, position - start)
        if lag is not None:
            lags.append(lag)
        yield Metric(
            _FETCH, "records-consumed-total", state.taken, MetricKind.COUNTER, "records", tags
        )
        for name, value, unit in (
            ("records-lag", lag, "records"),
            ("records-lead", lead, "records"),
            ("position", position, ""),
            ("paused", int(state.paused), ""),
        ):
            if value is not None:
                yield Metric(_FETCH, name, value, MetricKind.GAUGE, unit, tags)
    yield from writer.gauges(records_lag_max=max(lags, default=None))


def _coordinator(
    writer: GroupWriter, meter: ConsumerMeter, group: Group, assigned: int, now: float
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
