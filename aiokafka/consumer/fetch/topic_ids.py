"""The ids of the topics that are read, and which of them were deleted and created again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["OtherTopic", "TopicIds"]

# Topics that were in use before. A partition may be away for the moment of a rebalance only.
_SPARE_TOPICS = 1000


class OtherTopic(NamedTuple):
    """A topic in use whose id in the metadata is another one than before."""

    name: str
    now: bytes
    is_new: bool
    """Whether the id was never seen: the topic was deleted and created again. Otherwise a broker
    that lags behind shows a former topic, or one that does not shows the latest again."""


class TopicIds:
    """Owns: the id of each topic in use, and all ids that it, and those used last, were seen with.

    Where the group assigns by id (KIP-848) a topic has that id, whatever the metadata says: another
    topic of its name may be another member's, and comes with an assignment of its own.
    """

    def __init__(self) -> None:
        self.current: dict[str, bytes] = {}
        self._used: set[str] = set()
        # By topic, those used last at the end: its ids, that of now at the end.
        self._seen: dict[str, dict[bytes, None]] = {}

    def update(
        self, topics: Iterable[str], given: Mapping[str, bytes], cluster: ClusterMetadata
    ) -> Iterator[OtherTopic]:
        """Take the ids of `topics` from the group (`given`), else from a snapshot. Yields each
        topic in use that has another id in the snapshot than before."""
        names = dict.fromkeys(topics)
        found = ((name, given.get(name) or cluster.topic_id(name)) for name in names)
        self.current = {name: topic_id for name, topic_id in found if topic_id is not None}
        before = self._used
        self._used = {name for name in names if name in before or name in self.current}
        for name, topic_id in self.current.items():
            seen = self._seen.pop(name, None) or {topic_id: None}
            self._seen[name] = seen
            last, is_new = next(reversed(seen)), topic_id not in seen
            seen.pop(topic_id, None)
            seen[topic_id] = None
            # What came into use just now has no position of before: one that the application has
            # sought already is in this topic.
            if topic_id != last and name in before and name not in given:
                yield OtherTopic(name, topic_id, is_new)
        for name in list(self._seen)[: -(len(self.current) + _SPARE_TOPICS)]:
            del self._seen[name]
