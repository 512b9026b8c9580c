"""Which partitions a consumer without a group reads."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.consumer.partition_state import PartitionState
from aiokafka.errors import IllegalOperation, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka._vitals import Contact
    from aiokafka.consumer._shared import Shared

__all__ = ["GroupPhase", "NoGroupCoordinator", "no_group"]


class GroupPhase(enum.Enum):
    """How a consumer stands with its group."""

    OUTSIDE = "has no group, or nothing to do with its members"
    JOINING = "joins, or is about to join"
    JOINED = "has its share of the partitions"
    IDLE = "left, because the application does not ask for records"


class NoGroupCoordinator:
    """Without a group: every partition of the subscribed topics is ours, new ones as they appear.

    Writes the assignment while there is a subscription by topics or pattern. Rebalance listeners
    are not called, since nothing is ever shared out.
    """

    group_id: str | None = None
    coordinator_id: int | None = None
    member_id = ""
    generation = -1
    contact: Contact | None = None
    """Whether the group's coordinator answers."""
    beat_at: float | None = None
    """When the coordinator last answered as to a member (loop time)."""
    session_timeout = 0.0
    """The group drops a member that it did not hear of for so long, in seconds."""

    def __init__(self, shared: Shared, route: Callable[[], None]) -> None:
        self._client = shared.client
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._on_change = shared.on_change
        self._route = route
        self._denied: dict[str, PartitionState] = {}
        self._topic_ids: dict[str, bytes | None] = {}

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """How many partitions each topic in use has, as Faust asks."""
        partitions = self._client.cluster.partitions_for_topic
        return {topic: len(partitions(topic) or ()) for topic in self._subscriptions.topics}

    async def start(self, tasks: TaskOwner) -> None:
        """Follow the metadata in the background."""
        tasks.start(self.follow_metadata(), name="metadata")

    async def follow_metadata(self) -> None:
        """Bring everything up to each new snapshot, until cancelled."""
        while True:
            changed = self._client.metadata_changed()
            self.on_metadata()
            self._on_change()
            await changed

    def on_subscribed(self) -> None:
        """The application subscribed, assigned or unsubscribed."""
        subscriptions = self._subscriptions
        if subscriptions.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(subscriptions.topics)
        self.on_metadata()

    def on_metadata(self) -> None:
        """Bring the assignment up to the metadata, then have everything fetched from the right
        broker."""
        if self._subscriptions.subscription is not None and not self._subscriptions.is_manual:
            self._match_pattern()
            self._assign()
        self._report_denied()
        self._route()

    @property
    def phase(self) -> GroupPhase:
        """How the consumer stands with its group."""
        return GroupPhase.OUTSIDE

    @property
    def reason(self) -> str:
        """Why it joins, "" if it does not."""
        return ""

    @property
    def failure(self) -> BaseException | None:
        """What ended the work on the group."""
        return None

    def check(self) -> None:
        """Raise what ended the work on the group; without one there is nothing."""

    async def stop(self, deadline: float) -> None:
        """Nothing to leave."""

    async def close(self, deadline: float | None = None) -> None:
        """Nothing to end."""

    def abandon(self) -> None:
        """Nothing to end."""

    def _match_pattern(self) -> None:
        hide_internal = self._config.exclude_internal_topics
        self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal))

    def _assign(self) -> None:
        """All partitions known. One that metadata does not show for a moment is kept, unless the
        topic is another one now, with fewer partitions."""
        topics = self._subscriptions.topics
        current = self._subscriptions.assignment.tps
        cluster = self._client.cluster
        before = self._topic_ids
        self._topic_ids = {name: cluster.topic_id(name) or before.get(name) for name in topics}
        same = {n for n, i in self._topic_ids.items() if before.get(n) in (None, i)}
        wanted = {
            TopicPartition(topic, number)
            for topic in topics
            for number in cluster.partitions_for_topic(topic) or ()
        }
        wanted |= {tp for tp in current if tp.topic in same}
        if wanted != current:
            self._subscriptions.assign_from_subscribed(sorted(wanted))

    def _report_denied(self) -> None:
        """Topics we may not read: said once per metadata answer, while the others go on."""
        denied = self._client.cluster.unauthorized_topics & self._subscriptions.topics
        for topic in [topic for topic in self._denied if topic not in denied]:
            # With it goes what was reported of the topic's partitions.
            self._desk.buffer.pop_failure(self._denied.pop(topic))
        for topic in denied:
            state = self._denied.setdefault(topic, PartitionState(TopicPartition(topic, -1)))
            ours = self._subscriptions.assignment.states()
            # Some readers ask for certain partitions only.
            states = [state, *(each for each in ours if each.tp.topic == topic)]
            self._desk.report_all(states, partial(TopicAuthorizationFailedError, topic))


def no_group(call: str) -> IllegalOperation:
    """The error of a call that makes no sense without a group."""
    return IllegalOperation(f"Requires group_id: {call}() is for consumers with a group")
