"""Which partitions a consumer without a group reads."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiokafka.consumer.subscription_state import SubscribedTopics
from aiokafka.errors import IllegalOperation
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import NodeHealth
    from aiokafka._tasks import TaskOwner
    from aiokafka.consumer._shared import Shared
    from aiokafka.errors import KafkaError

__all__ = ["Coordination", "GroupPhase", "NoGroup", "no_group"]


class GroupPhase(enum.Enum):
    """How a consumer stands with its group, as `health()` sees it."""

    OUTSIDE = "has no group, or nothing to do with its members"
    JOINING = "joins, or is about to join"
    JOINED = "has its share of the partitions"
    IDLE = "left, because the application does not ask for records"


class Coordination(Protocol):
    """Writes the assignment while there is a subscription by topics or pattern."""

    @property
    def contact(self) -> NodeHealth | None:
        """Whether the group's coordinator answers; None without a group."""

    @property
    def generation(self) -> int:
        """The group's generation, or the member's epoch; -1 outside a group."""

    @property
    def beat_at(self) -> float | None:
        """When the coordinator last answered as to a member (loop time)."""

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group drops a member."""

    @property
    def phase(self) -> GroupPhase:
        """How the consumer stands with its group."""

    @property
    def reason(self) -> str:
        """Why the member joins, "" if it does not."""

    @property
    def trouble(self) -> KafkaError | None:
        """Why there is no assignment yet, or why heartbeats are refused; None if that is not
        known."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the membership."""

    def check(self) -> None:
        """Raise the error that ended the membership."""

    async def start(self, tasks: TaskOwner) -> None:
        """Work in the background; with a group wait for the first assignment."""

    async def stop(self, deadline: float) -> None:
        """End the background work, commit and leave, until `deadline` (loop time) at most."""

    async def close(self, deadline: float | None = None) -> None:
        """End what `stop()` left, if it was cancelled."""

    def abandon(self) -> None:
        """End the background work without waiting for it."""

    def on_subscribed(self) -> None:
        """Follow the subscription: the application has changed it."""

    def on_metadata(self) -> None:
        """Bring the assignment up to the metadata, then have everything fetched from the right
        broker."""


# Partitions of topics that are gone; most of them have been deleted.
_MOST_PLACES = 1000


class _Place(NamedTuple):
    """Where a partition stood when its topic was gone."""

    topic_id: bytes
    position: int
    epoch: int
    is_paused: bool


class NoGroup:
    """Assigns every partition of the subscribed topics, new ones as they appear: the Coordination
    of a consumer without a group. Rebalance listeners are not called, since nothing moves.

    With a pattern, a topic may be gone and come back:

    1. A broker that has heard nothing of the others for long lists all topics, and lacks some. When
       several responses in a row have said so, they are believed: a topic that was deleted has to
       go.
    2. The client asks another broker, and the topic is there again.
    3. By its id it is the same (Kafka 2.8): its partitions are read on from where they stood. The
       reset policy would pass over what was written meanwhile, or have all read again. Without an
       id it may be another one by that name, so that what was read says nothing.

    Owns: the ids of the topics that partitions were assigned of; where those of topics stood that
    are gone.
    """

    group_id: str | None = None
    coordinator_id: int | None = None
    member_id = ""
    generation = -1
    contact: NodeHealth | None = None
    beat_at: float | None = None
    session_timeout = 0.0
    phase = GroupPhase.OUTSIDE
    reason = ""
    trouble: KafkaError | None = None
    failure: BaseException | None = None

    def __init__(self, shared: Shared, route: Callable[[], None]) -> None:
        self._client = shared.client
        self._subscriptions = shared.subscriptions
        self._topics = SubscribedTopics(shared)
        self._route = route
        self._topic_ids: dict[str, bytes | None] = {}
        self._places: dict[TopicPartition, _Place] = {}

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
        # Of another subscription: what it has given up is not read on when it is wanted again.
        self._places.clear()

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
            for number in cluster.known_partitions(topic) or ()
        }
        wanted |= {tp for tp in current if tp.topic in same}
        if wanted != current:
            self._note_places(current - wanted, before)
            self._subscriptions.assign_from_subscribed(sorted(wanted))
            self._read_on(wanted - current)

    def _note_places(
        self, gone: Iterable[TopicPartition], topic_ids: Mapping[str, bytes | None]
    ) -> None:
        for tp in gone:
            topic_id = topic_ids.get(tp.topic)
            state = self._subscriptions.assignment.get(tp)
            if topic_id and state is not None and state.position is not None:
                epoch = state.epoch_before(state.position)
                self._places[tp] = _Place(topic_id, state.position, epoch, state.paused)
        while len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]

    def _read_on(self, added: Iterable[TopicPartition]) -> None:
        for tp in added:
            place = self._places.pop(tp, None)
            state = self._subscriptions.assignment.get(tp)
            if place is None or state is None or place.topic_id != self._topic_ids[tp.topic]:
                continue
            # As a committed offset: the log may have been cut meanwhile.
            state.seek_to_committed(place.position, place.epoch)
            if place.is_paused:
                state.pause()


def no_group(call: str) -> IllegalOperation:
    """Return the error of a call that makes no sense without a group."""
    return IllegalOperation(f"Requires group_id: {call}() is for consumers with a group")
