"""Which partitions a consumer without a group reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka.consumer.group.state import GroupPhase
from aiokafka.consumer.group.topics import SubscribedTopics
from aiokafka.errors import IllegalOperation
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka._vitals import Contact
    from aiokafka.consumer._shared import Shared

__all__ = ["NoGroup", "no_group"]


class NoGroup:
    """Assigns every partition of the subscribed topics, new ones as they appear: the Coordination
    of a consumer without a group. Rebalance listeners are not called, since nothing moves.

    Owns: the ids of the topics that partitions were assigned of.
    """

    group_id: str | None = None
    coordinator_id: int | None = None
    member_id = ""
    generation = -1
    contact: Contact | None = None
    beat_at: float | None = None
    session_timeout = 0.0
    phase = GroupPhase.OUTSIDE
    reason = ""
    failure: BaseException | None = None

    def __init__(self, shared: Shared, route: Callable[[], None]) -> None:
        self._client = shared.client
        self._subscriptions = shared.subscriptions
        self._topics = SubscribedTopics(shared)
        self._route = route
        self._topic_ids: dict[str, bytes | None] = {}

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """How many partitions each topic in use has, as Faust asks."""
        return self._topics.partition_counts

    async def start(self, tasks: TaskOwner) -> None:
        """Follow the metadata in the background."""
        tasks.start(self._topics.follow(self.on_metadata), name="metadata")

    def on_subscribed(self) -> None:
        """Follow the subscription: the application has changed it."""
        self._topics.request()
        self.on_metadata()

    def on_metadata(self) -> None:
        """Assign what the metadata shows, then have everything fetched from the right broker."""
        if self._subscriptions.is_by_group:
            self._topics.match_pattern()
            self._assign()
        self._topics.report_denied()
        self._route()

    def check(self) -> None:
        """Raise nothing: without a group no membership can end."""

    async def stop(self, deadline: float) -> None:
        """Do nothing: there is no group to leave."""

    async def close(self, deadline: float | None = None) -> None:
        """Do nothing: the background work is the consumer's."""

    def abandon(self) -> None:
        """Do nothing: the background work is the consumer's."""

    def _assign(self) -> None:
        """Assign all partitions known. One that metadata does not show for a moment is kept, unless
        the topic is another one now, with fewer partitions."""
        topics = self._subscriptions.topics
        current = self._subscriptions.assignment.tps
        cluster = self._client.cluster
        before = self._topic_ids
        self._topic_ids = {name: cluster.topic_id(name) or before.get(name) for name in topics}
        # Topics under the id that they had: at most, a snapshot lacks a partition of theirs for a
        # moment. Of another topic by that name, partitions that it does not have must not be kept.
        same = {n for n, i in self._topic_ids.items() if before.get(n) in (None, i)}
        wanted = {
            TopicPartition(topic, number)
            for topic in topics
            for number in cluster.partitions_for_topic(topic) or ()
        }
        wanted |= {tp for tp in current if tp.topic in same}
        if wanted != current:
            self._subscriptions.assign_from_subscribed(sorted(wanted))


def no_group(call: str) -> IllegalOperation:
    """Return the error of a call that makes no sense without a group."""
    return IllegalOperation(f"Requires group_id: {call}() is for consumers with a group")
