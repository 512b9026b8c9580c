"""The assignment of a consumer without a group: all partitions of the subscribed topics."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokafka.consumer.subscription_state import SubscribedTopics
from aiokafka.errors import IllegalOperation
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import NodeHealth
    from aiokafka._tasks import TaskOwner
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.fetch.fetcher import Fetcher
    from aiokafka.errors import KafkaError

__all__ = ["GroupPhase", "NoGroup", "no_group"]


class GroupPhase(enum.Enum):
    """The state of a consumer's group membership, for `health()`."""

    OUTSIDE = "there is no group, or no subscription by topics or pattern"
    JOINING = "the member joins, or is about to join"
    JOINED = "the member has its assignment"
    IDLE = "the member left, because the application does not poll"


# Largest number of kept positions in topics that have disappeared. Most of these topics have been
# deleted, so the oldest positions are dropped.
_MOST_POSITIONS = 1000


class _LastPosition:
    """The position of a partition at the time when its topic disappeared."""

    __slots__ = ("epoch", "is_paused", "position", "topic_id")

    def __init__(self, topic_id: bytes, position: int, epoch: int, is_paused: bool) -> None:
        self.topic_id = topic_id
        self.position = position
        self.epoch = epoch
        self.is_paused = is_paused


class NoGroup:
    """Assigns every partition of the subscribed topics, and new partitions as soon as metadata has
    them. Has the interface of GroupMembership, for a consumer without a group. Does not call
    rebalance listeners, because there are no rebalances.

    With a pattern, a topic may disappear and return:

    1. A broker with outdated metadata omits topics from its list of all topics. After several such
       responses in a row the client regards the topics as deleted, and their partitions are
       unassigned.
    2. The next refresh goes to another broker, whose response has the topics again.
    3. If a topic has the same id (Kafka 2.8), its partitions continue at their last positions. The
       reset policy would skip the records written since then, or return all records again. Without
       an id the topic may have been recreated, so the reset policy applies.

    Owns: the ids of the topics whose partitions are assigned; the last positions in missing topics.
    """

    group_id: str | None = None
    coordinator_id: int | None = None
    member_id = ""
    generation = -1
    coordinator_health: NodeHealth | None = None
    beat_at: float | None = None
    session_timeout = 0.0
    phase = GroupPhase.OUTSIDE
    reason = ""
    last_error: KafkaError | None = None
    failure: BaseException | None = None

    def __init__(self, context: ConsumerContext, fetcher: Fetcher) -> None:
        self._client = context.client
        self._subscriptions = context.subscriptions
        self._topics = SubscribedTopics(context)
        self._fetcher = fetcher
        self._topic_ids: dict[str, bytes | None] = {}
        self._last_positions: dict[TopicPartition, _LastPosition] = {}

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """The number of partitions of each subscribed topic. The library Faust reads this
        property."""
        return self._topics.partition_counts

    async def start(self, tasks: TaskOwner) -> None:
        """Start a task that assigns the partitions whenever the metadata has changed."""
        tasks.start(self._topics.follow(self.on_metadata), name="metadata")

    def on_subscribed(self) -> None:
        """Request the metadata of the present subscription, assign the partitions, and forget
        positions of the earlier subscription. Also called after `unsubscribe()`."""
        self._topics.request()
        self.on_metadata()
        # Positions of an earlier subscription do not apply to a later subscription.
        self._last_positions.clear()

    def on_metadata(self) -> None:
        """Assign the partitions in the metadata, and route fetches to the present leaders."""
        if self._subscriptions.is_by_group:
            self._topics.match_pattern()
            self._assign()
        self._topics.report_denied()
        self._fetcher.route()

    def check(self) -> None:
        """Do nothing: there is no membership that could fail."""

    async def stop(self, deadline: float, leave: bool | None) -> None:
        """Do nothing: there is no group to leave."""

    async def close(self, deadline: float | None = None) -> None:
        """Do nothing: the consumer itself ends the metadata task."""

    def abandon(self) -> None:
        """Do nothing: the consumer itself cancels the metadata task."""

    def _assign(self) -> None:
        """Assign all known partitions of the subscribed topics. Keep an assigned partition that is
        missing in the metadata, unless its topic is no longer subscribed to, or was recreated with
        fewer partitions."""
        topics = self._subscriptions.topics
        current = self._subscriptions.assignment.tps
        cluster = self._client.cluster
        before = self._topic_ids
        self._topic_ids = {name: cluster.topic_id(name) or before.get(name) for name in topics}
        # A topic with the same id, or an unknown id, never loses partitions, so a partition that is
        # missing in the metadata will be there again. A recreated topic may have fewer partitions.
        same = {n for n, i in self._topic_ids.items() if before.get(n) in (None, i)}
        wanted = {
            TopicPartition(topic, number)
            for topic in topics
            for number in cluster.known_partitions(topic) or ()
        }
        wanted |= {tp for tp in current if tp.topic in same}
        if wanted != current:
            self._remember_positions(current - wanted, before)
            self._subscriptions.assign_from_subscribed(sorted(wanted))
            self._restore_positions(wanted - current)

    def _remember_positions(
        self, gone: Iterable[TopicPartition], topic_ids: Mapping[str, bytes | None]
    ) -> None:
        for tp in gone:
            topic_id = topic_ids.get(tp.topic)
            state = self._subscriptions.assignment.get(tp)
            if topic_id and state is not None and state.position is not None:
                epoch = state.epoch_before(state.position)
                self._last_positions[tp] = _LastPosition(
                    topic_id, state.position, epoch, state.paused
                )
        while len(self._last_positions) > _MOST_POSITIONS:
            del self._last_positions[next(iter(self._last_positions))]

    def _restore_positions(self, added: Iterable[TopicPartition]) -> None:
        for tp in added:
            last = self._last_positions.pop(tp, None)
            state = self._subscriptions.assignment.get(tp)
            if last is None or state is None or last.topic_id != self._topic_ids[tp.topic]:
                continue
            # Validate the position like a committed offset: the log may have been truncated since.
            state.seek_to_committed(last.position, last.epoch)
            if last.is_paused:
                state.pause()


def no_group(call: str) -> IllegalOperation:
    """Return the error of a consumer method that requires `group_id`."""
    return IllegalOperation(f"Requires group_id: {call}() is for consumers with a group")
