"""All that a client tells of itself, in one piece of plain data."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from aiokafka import _seams
from aiokafka._version import __version__
from aiokafka.metrics import Distribution, Metric

__all__ = ["kind_of", "snapshot"]

_KINDS = (("consumer-metrics", "consumer"), ("producer-metrics", "producer"))
_BUFFERS = {
    "buffer-total-bytes",
    "buffer-available-bytes",
    "fetch-buffer-bytes",
    "waiting-threads",
    "batches-pending",
    "requests-in-flight",
}
_PARALLEL = ("running", "unfinished", "unfinished_bytes", "waiting")


def snapshot(client: Any) -> dict[str, Any]:
    """Return what a producer, consumer, admin client or `ParallelConsumer` is doing now.

    The result is data for JSON: `json.dumps(snapshot(client))` works at any moment, before
    `start()` and after `stop()` as well. Nothing is sent to a broker, and nothing changes. Times
    are in seconds, those with `_ms` in milliseconds; what is not known is None or left out. It has
    no passwords, and nothing of any record. Call it in the event loop of the client.
    """
    if hasattr(client, "unfinished"):
        return _of_parallel(client)
    metrics = list(client.metrics())
    kind = kind_of(metrics)
    taken = datetime.fromtimestamp(_seams.wall_time(), timezone.utc).isoformat()
    found: dict[str, Any] = {
        "kind": kind,
        "client_id": next((m.tags["client-id"] for m in metrics if "client-id" in m.tags), None),
        "taken_at": taken,
        "version": __version__,
    }
    if hasattr(client, "health"):
        found["health"] = client.health().as_dict()
    own = f"{kind}-metrics".replace(" ", "-")
    found["metadata_age"] = _one(metrics, own, "metadata-age")
    if kind == "consumer":
        found.update(_reading(client, metrics))
    if kind == "producer":
        found["transactional_id"] = client.transactional_id
        found["topics"] = _by_tag(metrics, "producer-topic-metrics", "topic")
    found["buffers"] = {_key(m.name): m.value for m in metrics if m.name in _BUFFERS}
    found["connections"] = {
        "all": {
            _key(m.name): m.value
            for m in metrics
            if m.group == own and m.name.startswith(("connection-", "request-", "response-"))
            if not isinstance(m.value, Distribution)
        },
        "nodes": _by_tag(metrics, own.replace("-metrics", "-node-metrics"), "node-id"),
    }
    return found


def kind_of(metrics: Iterable[Metric]) -> str:
    """Return what sort of client has these metrics."""
    groups = {metric.group for metric in metrics}
    return next((kind for group, kind in _KINDS if group in groups), "admin client")


def _of_parallel(parallel: Any) -> dict[str, Any]:
    failure = parallel.failure
    return {
        "kind": "parallel consumer",
        **{name: getattr(parallel, name) for name in _PARALLEL},
        "failure": None if failure is None else repr(failure),
        "consumer": snapshot(parallel.consumer),
    }


def _reading(consumer: Any, metrics: list[Metric]) -> dict[str, Any]:
    """Return what a consumer reads, and what its group is like."""
    partitions = [
        {"topic": topic, "partition": int(number), **values}
        for (topic, number), values in sorted(_of_partitions(metrics).items())
    ]
    group = {
        _key(metric.name): _plain(metric)
        for metric in metrics
        if metric.group == "consumer-coordinator-metrics"
    }
    return {
        "subscription": sorted(consumer.subscription()),
        "assignment": partitions,
        "group": {"group_id": consumer.group_id, **group} if consumer.group_id else None,
    }


def _of_partitions(metrics: list[Metric]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return position, lag and so on of the partitions that are assigned."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in metrics:
        if metric.group == "consumer-fetch-manager-metrics" and "partition" in metric.tags:
            place = (metric.tags["topic"], metric.tags["partition"])
            unknown = {"position": None, "lag": None, "lead": None}
            values = found.setdefault(place, unknown)
            name = _key(metric.name).removeprefix("records_")
            values[name] = bool(metric.value) if name == "paused" else metric.value
    return found


def _by_tag(metrics: list[Metric], group: str, tag: str) -> list[dict[str, Any]]:
    """Return the metrics of a group, those with one value of `tag` together."""
    found: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        if metric.group == group and tag in metric.tags:
            one = found.setdefault(metric.tags[tag], {_key(tag): metric.tags[tag]})
            one[_key(metric.name)] = _plain(metric)
    return list(found.values())


def _one(metrics: list[Metric], group: str, name: str) -> Any:
    return next((m.value for m in metrics if m.group == group and m.name == name), None)


def _plain(metric: Metric) -> Any:
    value = metric.value
    if isinstance(value, Distribution):
        return {"count": value.count, "mean": value.mean, "max": value.max}
    return value


def _key(name: str) -> str:
    return name.replace("-", "_")
