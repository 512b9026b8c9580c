"""Offsets that were stored for a topic when another one may have had its name already. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["LateCommits"]


# Partitions of topics that are gone; most of them have been deleted, and do not come back.
_MOST_STORED = 10_000


class _Stored(NamedTuple):
    """An offset, and the id of the topic that it was read from."""

    topic_id: bytes
    offset: int


class LateCommits:
    """Tells which of the group's offsets this consumer has stored for a topic that is gone.

    Before Kafka 4.1 offsets are stored by the names of topics:

    1. A topic is deleted, and its offsets with it. Another one is made under its name.
    2. The consumer has not heard of that, and commits a position in the deleted topic. The
       coordinator takes it for one in the new topic.
    3. The consumer hears of it, by metadata or by an assignment, and asks where the group is in the
       new topic. It would skip what is before its own old position there.

    So an offset that the consumer has stored itself, for a topic with another id, is none. That is
    kept in mind until metadata shows the topic again: then it was there when the offset was stored,
    and the offset was deleted with it. What other consumers have stored so cannot be told apart.

    Owns: the offsets that were stored by name since their topic was seen last.
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, _Stored] = {}

    def add(self, tp: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Note that an offset was stored by the name of a topic that had this id."""
        self._stored[tp] = _Stored(topic_id, offset)

    def look(self, cluster: ClusterMetadata) -> None:
        """Forget the offsets in topics that are still there, and the oldest ones where there are
        many: a listener of the metadata."""
        if self._stored:
            self._stored = {
                tp: stored
                for tp, stored in self._stored.items()
                if stored.topic_id != cluster.topic_id(tp.topic)
            }
            for tp in list(self._stored)[:-_MOST_STORED]:
                del self._stored[tp]

    def is_of_former_topic(self, tp: TopicPartition, topic_id: bytes | None, offset: int) -> bool:
        """Return whether an offset of the group is one in the topic that had the name before."""
        stored = self._stored.get(tp)
        return (
            stored is not None
            and topic_id is not None
            and stored.topic_id != topic_id
            and stored.offset == offset
        )
