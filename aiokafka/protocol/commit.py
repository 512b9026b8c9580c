"""Import path of aiokafka, kept as a shim: offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol._tuples import Family, Request, RequestStruct, versioned
from aiokafka.protocol.messages import group_offsets

__all__ = ["OffsetCommitRequest", "OffsetFetchRequest"]


class OffsetCommitRequest(
    Request,
    family=Family(
        group_offsets.OffsetCommitRequest,
        "consumer_group consumer_group_generation_id consumer_id retention_time"
        " topics(topic partitions(partition offset timestamp metadata))",
        "throttle_time_ms topics(topic partitions(partition error_code))",
        versions=(2, 3),
        others=(0, 1),
    ),
):
    """Commit offsets of a group: (topic, [(partition, offset, metadata)])."""

    DEFAULT_GENERATION_ID = -1
    DEFAULT_RETENTION_TIME = -1

    def __init__(
        self,
        consumer_group: str,
        consumer_group_generation_id: int,
        consumer_id: str,
        retention_time: int,
        topics: Iterable[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        super().__init__(
            consumer_group=consumer_group,
            consumer_group_generation_id=consumer_group_generation_id,
            consumer_id=consumer_id,
            retention_time=retention_time,
            topics=list(topics),
        )


class OffsetFetchRequest(
    Request,
    family=Family(
        group_offsets.OffsetFetchRequest,
        "consumer_group topics(topic partitions)",
        "throttle_time_ms topics(topic partitions(partition offset metadata error_code))"
        " error_code",
        versions=(1, 2, 3),
        others=(0,),
    ),
):
    """Fetch the committed offsets of a group: (topic, [partition]), None for all of them."""

    def __init__(
        self, consumer_group: str, partitions: Iterable[tuple[str, list[int]]] | None
    ) -> None:
        topics = None if partitions is None else list(partitions)
        super().__init__(consumer_group=consumer_group, topics=topics)

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return this request in one version. Before version 2 partitions must be named."""
        if request_struct_class.API_VERSION < 2 and self._fields["topics"] is None:
            raise IncompatibleBrokerVersion("partitions=None needs OffsetFetchRequest v2 or newer")
        return super().build(request_struct_class)


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
