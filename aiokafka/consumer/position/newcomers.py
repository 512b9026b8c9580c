"""Which partitions came into being while the consumer was already reading their topic. No I/O."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.cluster import ClusterMetadata, TopicInfo
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.subscription_state import Subscription, SubscriptionState

__all__ = ["Newcomers"]

# A member of a group has a new partition for itself soon after it was made: when the leader has
# refreshed its metadata and the group has rebalanced. Later on, another member may have read it.
_AGES = 2
_SHORTEST_YOUTH = 60.0

# Names that a pattern may once have matched; beyond that those that are gone are forgotten.
_SPARE_NAMES = 1000


class _Topic(NamedTuple):
    """What was seen of a topic so far."""

    topic_id: bytes | None
    partitions: frozenset[int]


class Newcomers:
    """Tells partitions that are new from those that were there when the consumer came.

    The first metadata of a topic, after the application began to read it, says which are old; if it
    says that there is no such topic, none are. What comes later, or belongs to a topic that was
    deleted and created again, is new: nothing in it was written before the consumer came. It stays
    new for some minutes, and while `keep()` is called.

    Owns: the partitions seen of each topic in use (with a pattern: of each topic there is), and
    until when which are new.
    """

    def __init__(self, subscriptions: SubscriptionState, metadata_max_age: float) -> None:
        self._subscriptions = subscriptions
        self._youth = max(_SHORTEST_YOUTH, _AGES * metadata_max_age)
        self._subscription: Subscription | None = None
        self._seen: dict[str, _Topic] = {}
        self._has_seen_all = False
        self._until: dict[TopicPartition, float] = {}
        # Answers from before the application began to read: "no such topic" may not be true any
        # more.
        self._stale: dict[str, TopicInfo] = {}

    def is_new(self, tp: TopicPartition) -> bool:
        """Return whether a partition without a committed offset is to be read from its
        beginning.
        """
        until = self._until.get(tp)
        return until is not None and _now() < until

    def keep(self, tp: TopicPartition) -> None:
        """Let a partition stay new, if it is, while its position is being looked up."""
        if tp in self._until:
            self._until[tp] = max(self._until[tp], _now() + _SHORTEST_YOUTH)

    def look(self, cluster: ClusterMetadata) -> None:
        """Take in a metadata snapshot, and what the application reads now."""
        if self._subscriptions.subscription is not self._subscription:
            self._follow(cluster)
        if self._subscriptions.pattern is None:
            for name in sorted(self._subscriptions.topics):
                self._look_at(name, cluster, is_late=False)
        elif cluster.has_all_topics:
            names = cluster.topics(exclude_internal_topics=False)
            for name in sorted(names):
                self._look_at(name, cluster, is_late=self._has_seen_all)
            self._has_seen_all = True
            self._prune(names)
        now = _now()
        for tp in [tp for tp, until in self._until.items() if until <= now]:
            del self._until[tp]

    def _follow(self, cluster: ClusterMetadata) -> None:
        """Follow the application to another subscription, which may keep some of its topics."""
        self._subscription = self._subscriptions.subscription
        self._has_seen_all = False
        topics = self._subscriptions.topics
        self._seen = {name: seen for name, seen in self._seen.items() if name in topics}
        infos = ((name, cluster.topic_info(name)) for name in topics)
        self._stale = {name: info for name, info in infos if info is not None}

    def _look_at(self, name: str, cluster: ClusterMetadata, *, is_late: bool) -> None:
        numbers = cluster.known_partitions(name)
        seen = self._seen.get(name)
        if numbers is None:
            if seen is None and self._is_absent(name, cluster):
                self._seen[name] = _Topic(None, frozenset())
            return
        topic_id = cluster.topic_id(name)
        if seen is None:
            seen = _Topic(topic_id, frozenset() if is_late else numbers)
        # Deleted and created again: all partitions of the other topic are new.
        elif topic_id is not None and seen.topic_id not in (None, topic_id):
            seen = _Topic(topic_id, frozenset())
        if numbers is not seen.partitions:
            until = _now() + self._youth
            for number in sorted(numbers - seen.partitions):
                self._until[TopicPartition(name, number)] = until
            seen = _Topic(topic_id or seen.topic_id, numbers | seen.partitions)
        self._seen[name] = seen

    def _is_absent(self, name: str, cluster: ClusterMetadata) -> bool:
        """Return whether a broker has said, since the application began to read it, that there is
        no such topic.
        """
        info = cluster.topic_info(name)
        # Each response makes another object, so an old answer is recognised by being the same.
        if info is None or info is self._stale.get(name):
            return False
        return bool(cluster.missing_topics((name,)))

    def _prune(self, names: set[str]) -> None:
        if len(self._seen) > 2 * len(names) + _SPARE_NAMES:
            self._seen = {name: seen for name, seen in self._seen.items() if name in names}


def _now() -> float:
    return asyncio.get_running_loop().time()
