"""The ids of the topics that are read, and which of them were deleted and created again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["TopicIds"]


class TopicIds:
    """Owns: the id of each topic in use, and all ids that it was seen with."""

    def __init__(self) -> None:
        self.current: dict[str, bytes] = {}
        # By topic: a broker that is behind names an old id once more.
        self._seen: dict[str, set[bytes]] = {}

    def update(self, topics: Iterable[str], cluster: ClusterMetadata) -> Iterator[str]:
        """Take the ids from a snapshot. Yields each topic whose id was never seen with it before,
        which is therefore another topic of the same name."""
        names = dict.fromkeys(topics)
        found = ((name, cluster.topic_id(name)) for name in names)
        self.current = {name: topic_id for name, topic_id in found if topic_id is not None}
        self._seen = {name: ids for name, ids in self._seen.items() if name in names}
        for name, topic_id in self.current.items():
            seen = self._seen.setdefault(name, {topic_id})
            # One that was seen before is no new topic: the broker that names it lags behind.
            if topic_id not in seen:
                seen.add(topic_id)
                yield name
