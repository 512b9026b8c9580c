"""The totals that clients have by nature, and what to say of a name that finds no metric."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["is_total", "not_found"]

_OF_NODES = ("request-total", "response-total", "outgoing-byte-total", "incoming-byte-total")
_CONNECTIONS = {
    "connection-creation-total": "",
    "connection-close-total": "",
    "connection-failure-total": "",
    **dict.fromkeys(_OF_NODES, ""),
}
_NODES = {**dict.fromkeys(_OF_NODES, "node-id"), "throttle-time-total": "node-id"}
_BATCHES = (
    "record-send-total",
    "byte-total",
    "batch-total",
    "record-retry-total",
    "record-error-total",
)

_TOTALS: dict[str, dict[str, str]] = {
    "client-metrics": _CONNECTIONS,
    "client-node-metrics": _NODES,
    "admin-client-metrics": _CONNECTIONS,
    "admin-client-node-metrics": _NODES,
    "producer-metrics": {
        **_CONNECTIONS,
        **dict.fromkeys(_BATCHES, ""),
        "batch-split-total": "",
        "flush-time-ns-total": "",
        "bufferpool-wait-time-ns-total": "",
        "buffer-exhausted-total": "",
        "txn-init-time-ns-total": "",
        "txn-begin-time-ns-total": "",
        "txn-send-offsets-time-ns-total": "",
        "txn-commit-time-ns-total": "",
        "txn-abort-time-ns-total": "",
    },
    "producer-node-metrics": _NODES,
    "producer-topic-metrics": dict.fromkeys(_BATCHES, "topic"),
    "consumer-metrics": _CONNECTIONS,
    "consumer-node-metrics": _NODES,
    "consumer-fetch-manager-metrics": {
        "records-consumed-total": "topic partition",
        "bytes-consumed-total": "topic",
        "records-skipped-total": "topic",
        "fetch-total": "",
    },
    "consumer-coordinator-metrics": {
        "rebalance-total": "",
        "commit-total": "",
        "commit-failed-total": "",
    },
    "parallel-consumer-metrics": {
        "records-finished-total": "",
        "records-failed-total": "",
        "process-time-total": "",
    },
    "retry-topics-metrics": {
        "record-retry-total": "topic",
        "record-dead-letter-total": "topic",
    },
}
"""The tags that a total may have, by group and name. Some totals appear with the first record of a
topic, the first partition or the first connection."""

_UNKNOWN_AT_FIRST = frozenset(
    {
        "metadata-age",
        "compression-rate-avg",
        "request-latency",
        "records-lag",
        "records-lag-max",
        "records-lead",
        "position",
        "paused",
        "generation",
        "last-rebalance-seconds-ago",
        "last-heartbeat-seconds-ago",
    }
)
"""What is not there from the start, and is not 0 either."""


def is_total(name: str, group: str | None, tags: Collection[str], groups: Collection[str]) -> bool:
    """Tell whether a client that has metrics of `groups` counts this, be it nothing so far."""
    return any(
        name in totals
        and group in (None, counted)
        and set(tags) <= set(totals[name].split())
        and _always_there(counted) in groups
        for counted, totals in _TOTALS.items()
    )


def not_found(
    name: str, group: str | None, tags: Mapping[str, str], here: Collection[str]
) -> KeyError:
    """Return the error for a name that finds no metric; `here` are the names of all there are."""
    known = {*here, *_UNKNOWN_AT_FIRST}.union(*_TOTALS.values())
    if name not in known:
        import difflib  # nothing else needs it

        close = difflib.get_close_matches(name.replace("_", "-"), sorted(known), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return KeyError(f"no metric is called {name!r}{hint}")
    asked = [f"{tag}={value!r}" for tag, value in {"group": group, **tags}.items() if value]
    where = f" with {', '.join(asked)}" if asked else ""
    missing = "is not known" if name in _UNKNOWN_AT_FIRST else "is not among these metrics"
    return KeyError(f"{name!r}{where} {missing}")


def _always_there(group: str) -> str:
    """Return the group that a client has from the start, if it counts this one."""
    return group.replace("-node-metrics", "-metrics").replace("-topic-metrics", "-metrics")
