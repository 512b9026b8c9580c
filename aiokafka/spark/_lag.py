"""How far a query is behind the ends of its partitions. Pure but for `lag_listener`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiokafka.spark._offsets import from_json
from aiokafka.structs import TopicPartition

__all__ = ["Lag", "lag", "lag_listener", "lag_of"]


class Lag(NamedTuple):
    """How many offsets each partition is behind, as of the last batch of a query."""

    partitions: dict[TopicPartition, int]

    @property
    def metrics(self) -> dict[str, float]:
        """The same numbers that Spark's own Kafka source reports, under its names."""
        behind = list(self.partitions.values()) or [0]
        return {
            "minOffsetsBehindLatest": min(behind),
            "maxOffsetsBehindLatest": max(behind),
            "avgOffsetsBehindLatest": sum(behind) / len(behind),
        }


def lag_of(progress: Any) -> Lag:
    """Return the lag in a `StreamingQueryProgress`, over all sources of this package in the
    query."""
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind: dict[TopicPartition, int] = {}
    for source in told.get("sources") or ():
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, numbers in latest.items():
            for number, offset in numbers.items():
                done = end.get(topic, {}).get(number, offset)
                behind[TopicPartition(topic, number)] = max(0, offset - done)
    return Lag(behind)


def lag(query: Any) -> Lag | None:
    """Return the lag of a running `StreamingQuery`; None before its first batch."""
    progress = query.lastProgress
    return None if progress is None else lag_of(progress)


def _offsets(raw: Any) -> dict[str, dict[int, int]]:
    """Return the offsets of a source; {} for a source with another kind of offsets."""
    try:
        return from_json(json.loads(raw) if isinstance(raw, str) else raw or {})
    except (ValueError, AttributeError, TypeError):
        return {}


def lag_listener(callback: Callable[[str | None, Lag], None]) -> Any:
    """Return a `StreamingQueryListener` that calls `callback(query name, lag)` after each batch.

    ::

        spark.streams.addListener(lag_listener(lambda name, lag: print(name, lag.metrics)))
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class LagListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            """Do nothing: there is no progress yet."""

        def onQueryProgress(self, event: Any) -> None:
            callback(event.progress.name, lag_of(event.progress))

        def onQueryIdle(self, event: Any) -> None:
            """Do nothing: nothing has changed."""

        def onQueryTerminated(self, event: Any) -> None:
            """Do nothing: there is no more progress."""

    return LagListener()
