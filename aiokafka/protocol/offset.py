"""Import path of aiokafka, kept as a shim: offsets by timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import list_offsets

__all__ = ["OffsetRequest", "OffsetResetStrategy"]


class OffsetResetStrategy:
    """Timestamps that stand for the ends of a partition, and 0 for neither."""

    LATEST = list_offsets.LATEST
    EARLIEST = list_offsets.EARLIEST
    NONE = 0


class OffsetRequest(
    Request,
    family=Family(
        list_offsets.ListOffsetsRequest,
        "replica_id isolation_level"
        " topics(topic partitions(partition current_leader_epoch timestamp max_offsets))",
        "throttle_time_ms"
        " topics(topic partitions(partition error_code offsets timestamp offset leader_epoch))",
        versions=(0, 1, 2, 3),
        others=(4, 5),
    ),
):
    """Look up offsets: (topic, [(partition, timestamp)]); replica_id is -1 for clients."""

    NEEDED = ("isolation_level",)

    def __init__(
        self,
        replica_id: int,
        isolation_level: int,
        topics: Iterable[tuple[str, list[tuple[int, int]]]],
    ) -> None:
        super().__init__(
            replica_id=replica_id, isolation_level=isolation_level, topics=list(topics)
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields; version 0 finds only the ends of a partition, and takes a maximum
        count."""
        if version:
            return self._fields
        topics = []
        for topic, partitions in self._fields["topics"]:
            if any(timestamp >= 0 for _, timestamp in partitions):
                raise IncompatibleBrokerVersion("a timestamp needs OffsetRequest v1 or newer")
            topics.append((topic, [(partition, at, 1) for partition, at in partitions]))
        return {**self._fields, "topics": topics}


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
