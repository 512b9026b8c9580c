"""The ids of the topics that positions are in, of those as well that are gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["KnownIds"]


class KnownIds:
    """Tells the ids of topics that metadata does not show any more.

    1. A topic is deleted, and metadata lacks it. Its partitions stay assigned, with their
       positions.
    2. Commits of these positions fail, and auto-commit tries again.
    3. Another topic is made under the name, and the next attempt comes before new metadata.
    Without an id that would be a commit by name, and a position in the new topic.

    Owns: the last id of each topic that metadata shows, or that has assigned partitions.
    """

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}

    def look(self, cluster: ClusterMetadata, assigned: Iterable[TopicPartition]) -> None:
        """Take the ids from a snapshot, and keep those of assigned topics that it lacks."""
        names = cluster.topics(exclude_internal_topics=False) | {tp.topic for tp in assigned}
        found = ((name, cluster.topic_id(name) or self._ids.get(name)) for name in names)
        self._ids = {name: topic_id for name, topic_id in found if topic_id}

    def last_of(self, topic: str) -> bytes | None:
        """Return the topic's last id, None if none is known."""
        return self._ids.get(topic)
