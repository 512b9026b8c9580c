"""The metrics snapshot of a share consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.metrics import MetricsSnapshot
from aiokafka.metrics._values import GroupWriter

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.share.acquired import Acknowledgements
    from aiokafka.share.buffer import ShareBuffer
    from aiokafka.share.fetcher import ShareFetcher
    from aiokafka.share.membership import ShareMembership

__all__ = ["read_share_consumer"]


def read_share_consumer(
    client: AIOKafkaClient,
    config: ShareConsumerConfig,
    fetcher: ShareFetcher,
    membership: ShareMembership,
    acknowledgements: Acknowledgements,
    buffer: ShareBuffer,
    now: float,
) -> MetricsSnapshot:
    """Return all metrics of a share consumer. `now`: the present loop time, for the ages."""
    root = GroupWriter("consumer-share-metrics", {"client-id": config.client.client_id})
    metrics = [*client.metrics("consumer-share"), *root.gauges(**client.waits.gauges())]
    fetch = root.tagged("consumer-share-fetch-manager-metrics")
    metrics += fetch.counters(
        fetch_total=fetcher.fetches,
        records_consumed_total=fetcher.records,
        bytes_consumed_total=fetcher.size,
        records_expired_total=buffer.expired,
        acknowledgements_error_total=acknowledgements.failed,
        **{
            f"records_{name}_total": count
            for name, count in zip(_NAMES, acknowledgements.counts.values(), strict=True)
        },
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
