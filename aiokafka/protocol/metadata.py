"""Import path of aiokafka, kept as a shim: brokers, topics and leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import metadata

__all__ = ["MetadataRequest"]


class MetadataRequest(
    Request,
    family=Family(
        metadata.MetadataRequest,
        "topics allow_auto_topic_creation",
        "throttle_time_ms brokers(node_id host port rack) cluster_id controller_id"
        " topics(error_code topic is_internal"
        " partitions(error_code partition leader replicas isr offline_replicas))",
        versions=(0, 1, 2, 3, 4, 5),
    ),
):
    """Ask for metadata of topics by name; None asks for all topics, an empty list for none.

    Args:
        topics: the names.
        allow_auto_topic_creation: whether the broker may create topics that are missing.
    """

    def __init__(
        self, topics: Iterable[str] | None = None, allow_auto_topic_creation: bool | None = None
    ) -> None:
        super().__init__(
            topics=None if topics is None else list(topics),
            allow_auto_topic_creation=allow_auto_topic_creation is not False,
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields; version 0 asks for all topics with an empty list."""
        if version == 0 and self._fields["topics"] is None:
            return {**self._fields, "topics": []}
        return self._fields


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
