"""Import path of aiokafka, kept as a shim: reading record batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import fetch

__all__ = ["FetchRequest"]


class FetchRequest(
    Request,
    family=Family(
        fetch.FetchRequest,
        "replica_id max_wait_time min_bytes max_bytes isolation_level session_id session_epoch"
        " topics(topic"
        " partitions(partition current_leader_epoch fetch_offset log_start_offset max_bytes))"
        " forgotten_topics_data(topic partitions) rack_id",
        "throttle_time_ms error_code session_id topics(topics"
        " partitions(partition error_code highwater_offset last_stable_offset log_start_offset"
        " aborted_transactions(producer_id first_offset) preferred_read_replica message_set))",
        versions=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
        others=(0,),
    ),
):
    """Fetch from partitions: (topic, [(partition, offset, max_bytes)])."""

    NEEDED = ("isolation_level",)

    def __init__(
        self,
        max_wait_time: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Iterable[tuple[str, list[tuple[int, int, int]]]],
        rack_id: str = "",
    ) -> None:
        super().__init__(
            replica_id=-1,
            max_wait_time=max_wait_time,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=list(topics),
            forgotten_topics_data=[],
            rack_id=rack_id,
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields; partitions have an epoch from version 9 on, a log start from 5 on."""
        epoch = (-1,) if version >= 9 else ()
        log_start = (-1,) if version >= 5 else ()
        topics = [
            (topic, [(p, *epoch, offset, *log_start, limit) for p, offset, limit in partitions])
            for topic, partitions in self._fields["topics"]
        ]
        return {**self._fields, "topics": topics}


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
