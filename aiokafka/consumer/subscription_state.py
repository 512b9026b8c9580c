"""What the application wants to read and which partitions it has. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from aiokafka._partitions import as_partition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer._partition_state import PartitionState, StateWatcher
from aiokafka.consumer._shared import Signal
from aiokafka.errors import IllegalStateError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = [
    "Assignment",
    "ConsumerRebalanceListener",
    "SubscribedTopics",
    "Subscription",
    "SubscriptionState",
    "TopicPartitionState",
]

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._partition_state import PartitionState as TopicPartitionState
else:
    TopicPartitionState = PartitionState  # the name other code imports


# Most of them have been deleted when there are so many; together they take two megabytes.
_MOST_GIVEN_UP = 10_000

_EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"


class Assignment:
    """The partitions this consumer has at one time. Replaced, never changed.

    A partition that stays assigned keeps its PartitionState, so its position, pause and buffered
    data. `topic_ids` are those by which the group has assigned topics, by name; it is empty where
    names are all that counts.
    """

    __slots__ = ("_states", "epoch", "topic_ids", "tps")

    def __init__(
        self,
        states: dict[TopicPartition, PartitionState],
        epoch: int,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        self._states = states
        self.tps = frozenset(states)
        self.epoch = epoch
        self.topic_ids = {} if topic_ids is None else topic_ids

    @property
    def active(self) -> bool:
        """False once a later assignment took its place."""
        return self.epoch >= 0

    def is_foreign(self, topic: str, cluster: ClusterMetadata) -> bool:
        """Return whether metadata names another topic of that name than the group has assigned: one
        of the two is out of date, and to ask by name leads nowhere."""
        given = self.topic_ids.get(topic)
        return given is not None and cluster.topic_id(topic) not in (None, given)

    def states(self) -> Iterable[PartitionState]:
        """Return the states of all partitions."""
        return self._states.values()

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition; None if it is not assigned."""
        return self._states.get(tp)

    def state_value(self, tp: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition; KeyError otherwise."""
        return self._states[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.tps)

    def __len__(self) -> int:
        return len(self.tps)

    def __repr__(self) -> str:
        return f"<Assignment #{self.epoch} of {len(self.tps)} partitions>"


class Subscription:
    """Topics by name or by pattern, or partitions chosen by the application (`is_manual`)."""

    __slots__ = ("_owner", "is_manual", "listener", "pattern", "regex", "topics")

    def __init__(
        self,
        owner: SubscriptionState,
        topics: frozenset[str],
        *,
        pattern: re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
        is_manual: bool = False,
        regex: str | None = None,
    ) -> None:
        self._owner = owner
        self.topics = topics
        self.pattern = pattern
        self.regex = regex
        """A pattern that the broker matches: `topics` are those with partitions of ours."""
        self.listener = listener
        self.is_manual = is_manual

    @property
    def active(self) -> bool:
        """False once the application subscribed to something else."""
        return self._owner.subscription is self

    @property
    def assignment(self) -> Assignment:
        """The assignment of now."""
        return self._owner.assignment


class SubscriptionState:
    """The application's subscription and the assignment that came of it.

    Subscription: written by the application's task. Assignment: by `assign()` for partitions chosen
    by hand, else by the coordinator only, through `assign_from_subscribed()`.
    """

    def __init__(self) -> None:
        # Attributes and not properties: these are read many times for each request.
        self.subscription: Subscription | None = None
        """What the application subscribed to; None before `subscribe()` and `assign()`."""
        self.is_manual = False
        """Whether the application chose the partitions by `assign()`."""
        self.is_by_group = False
        """Whether the application subscribed to topics or a pattern, so that the coordinator, or
        NoGroup, assigns the partitions."""
        self.assignment = Assignment({}, 0)
        """The current assignment; each change replaces the object."""
        self._watcher: StateWatcher | None = None
        self._asked_at = self.assignment.epoch
        self._assigned = Signal()
        self.given_up: dict[TopicPartition, int] = {}
        """Partitions that were revoked, or begun again, after records of theirs were returned, and
        the number of the call that got the last of these. An application may hold such records for
        any time, so the latest are kept: 10,000, or twice as many as were assigned at one time."""
        self._most_given_up = _MOST_GIVEN_UP

    def fetch_context(self) -> AbstractContextManager[None]:
        """Return the block in which Faust asks the fetcher. It does nothing: the fetcher counts the
        calls."""
        return nullcontext()

    @property
    def topics(self) -> frozenset[str]:
        """Names of the topics in use; those that match, for a pattern."""
        return frozenset() if self.subscription is None else self.subscription.topics

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern of the subscription; None if it has none."""
        return None if self.subscription is None else self.subscription.pattern

    @property
    def listener(self) -> ConsumerRebalanceListener | None:
        """The rebalance listener of the subscription; None if it has none."""
        return None if self.subscription is None else self.subscription.listener

    _listener = listener  # the name that programs for aiokafka read

    # More that programs for aiokafka ask for.

    def assigned_partitions(self) -> set[TopicPartition]:
        """Return the partitions of now."""
        return set(self.assignment.tps)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Return whether the partition is one of them."""
        return tp in self.assignment.tps

    def paused_partitions(self) -> set[TopicPartition]:
        """Return those that the application has paused."""
        return {state.tp for state in self.assignment.states() if state.paused}

    def partitions_auto_assigned(self) -> bool:
        """Return whether the group assigns them."""
        return self.is_by_group

    @property
    def subscribed_pattern(self) -> re.Pattern[str] | None:
        """The pattern of the subscription; None if it has none."""
        return self.pattern

    def watch(self, watcher: StateWatcher | None) -> None:
        """Tell `watcher` about changes of this and later assignments' states."""
        self._watcher = watcher
        for state in self.assignment.states():
            state.watcher = watcher

    def subscribe_topics(
        self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read topics by name; the coordinator assigns their partitions."""
        self._refuse_manual()
        self._subscribe(Subscription(self, frozenset(topics), listener=listener))

    def subscribe_pattern(
        self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read every topic that matches, existing or to come."""
        self._refuse_manual()
        self._subscribe(Subscription(self, frozenset(), pattern=pattern, listener=listener))

    def subscribe_regex(
        self, regex: str, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Read every topic that the broker finds to match. Until it has said which, the topics are
        those with partitions of ours: it says nothing if these are all that matches."""
        self._refuse_manual()
        topics = frozenset(tp.topic for tp in self.assignment.tps)
        self._subscribe(Subscription(self, topics, regex=regex, listener=listener))

    def take_topics(self, topics: frozenset[str]) -> bool:
        """Take the topics that the broker found to match; True if that changed anything."""
        current = self.subscription
        if current is None or current.regex is None or topics == current.topics:
            return False
        current.topics = topics
        return True

    def replace_listener(self, listener: ConsumerRebalanceListener | None) -> None:
        """Have another listener hear of the subscription's partitions."""
        if self.subscription is None:
            raise IllegalStateError("a listener needs a subscription: call subscribe() or assign()")
        self.subscription.listener = listener

    def match_pattern(self, topics: Iterable[str]) -> bool:
        """Take the matching ones of `topics` as subscribed; True if that changed anything."""
        current = self.subscription
        if current is None or current.pattern is None:
            return False
        matching = frozenset(filter(current.pattern.match, topics))
        if matching == current.topics:
            return False
        current.topics = matching
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, chosen by the application."""
        if self.is_by_group:
            raise IllegalStateError(f"{_EXCLUSIVE}: before assign() call unsubscribe()")
        tps = list(dict.fromkeys(partitions))
        topics = frozenset(tp.topic for tp in tps)
        self._set(Subscription(self, topics, is_manual=True))
        self._replace(tps)

    def assign_from_subscribed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        keep: bool = True,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """Take the coordinator's assignment for the current subscription.

        Partitions that were assigned before keep their state, unless `keep` is False. `topic_ids`
        are those that the coordinator has named, by topic.
        """
        if not self.is_by_group:
            raise IllegalStateError("there is no subscription to assign partitions for")
        tps = list(dict.fromkeys(partitions))
        # Through an empty assignment, so that each partition gets a new state, without position.
        if not keep:
            self._replace([])
        self._replace(tps, topic_ids)

    def begin_again(self) -> None:
        """Forget what has come of the subscription: another life of the consumer begins."""
        if self.is_by_group:
            self.assign_from_subscribed([])
            # Those that the broker found may be gone. No application has named them.
            self.take_topics(frozenset())

    def unsubscribe(self) -> None:
        """Give up everything; any kind of subscription may follow."""
        self._set(None)
        self._replace([])

    def assigned_state(
        self, tp: TopicPartition, text: str = "Partition {} is not assigned"
    ) -> PartitionState:
        """Return the state of an assigned partition. Raises IllegalStateError, which begins with
        `text`, if it is not assigned."""
        state = self.assignment.get(as_partition(tp))
        if state is None:
            raise IllegalStateError(f"{text.format(tp)} to this consumer")
        return state

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {state.tp for state in self.assignment.states() if state.paused}

    def _refuse_manual(self) -> None:
        if self.is_manual:
            raise IllegalStateError(f"{_EXCLUSIVE}: before subscribe() call unsubscribe()")

    async def wait_for_assignment(self) -> None:
        """Wait until there is an assignment for the latest subscription. The consumer does not use
        it: programs for aiokafka do."""
        while self.assignment.epoch <= self._asked_at:
            await self._assigned.wait()

    def _set(self, subscription: Subscription | None) -> None:
        self.subscription = subscription
        self.is_manual = subscription is not None and subscription.is_manual
        self.is_by_group = subscription is not None and not subscription.is_manual

    def _subscribe(self, subscription: Subscription) -> None:
        self._set(subscription)
        self._asked_at = self.assignment.epoch
        # From this moment on: until the group has agreed, partitions of topics that the application
        # does not want any more are still assigned.
        for state in self.assignment.states():
            state.want(self._wants(state.tp.topic))

    def _wants(self, topic: str) -> bool:
        current = self.subscription
        if current is None or current.is_manual:
            return True
        if current.pattern is not None:
            # By name, since `topics` are those of the metadata, which may lack one for a moment.
            return current.pattern.match(topic) is not None
        # What a regular expression matches, the broker says with the next assignment.
        return current.regex is not None or topic in current.topics

    def _replace(
        self, tps: list[TopicPartition], topic_ids: Mapping[str, bytes] | None = None
    ) -> None:
        old = self.assignment
        states: dict[TopicPartition, PartitionState] = {}
        for tp in tps:
            state = old.get(tp)
            if state is None:
                state = PartitionState(tp)
                state.watcher = self._watcher
            state.want(self._wants(tp.topic))
            states[tp] = state
        self.assignment = Assignment(states, old.epoch + 1, topic_ids)
        # Whatever holds on to the old object sees that it does not count any more (`active`).
        old.epoch = -1
        for state in old.states():
            if state.tp not in states:
                if state.call:
                    # `GroupView` asks later whether the application had records of it in hand.
                    # It is the latest now, though it may have been given up before.
                    self.given_up.pop(state.tp, None)
                    self.given_up[state.tp] = state.call
                state.retire()
        self._most_given_up = max(self._most_given_up, 2 * len(tps))
        too_many = max(0, len(self.given_up) - self._most_given_up)
        for tp in list(islice(self.given_up, too_many)):
            del self.given_up[tp]
        self._assigned.notify()


# -- Keep the client's metadata about the topics of the subscription


class SubscribedTopics:
    """What a consumer does about its topics, with or without a group.

    Owns: the denied topics, each with a stand-in for its partitions, to report the error by.
    """

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._config = shared.config
        self.subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._on_change = shared.on_change
        self._denied: dict[str, PartitionState] = {}

    async def follow(self, on_metadata: Callable[[], None]) -> None:
        """Call `on_metadata` after each new snapshot, until cancelled."""
        while True:
            # The future first: a snapshot that comes while this one is looked at is not missed.
            changed = self._client.metadata_changed()
            on_metadata()
            self._on_change()
            await changed

    def request(self) -> None:
        """Ask the client for the topics of the subscription; for all there are, with a pattern."""
        subscriptions = self.subscriptions
        if subscriptions.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(subscriptions.topics)

    def match_pattern(self) -> bool:
        """Subscribe to the topics that match the pattern; True if others did before."""
        hide_internal = self._config.exclude_internal_topics
        return self.subscriptions.match_pattern(self._client.cluster.topics(hide_internal))

    def report_denied(self) -> None:
        """Report topics that we may not read, once per metadata response, while the others go
        on."""
        denied = self._client.cluster.unauthorized_topics & self.subscriptions.topics
        for topic in [topic for topic in self._denied if topic not in denied]:
            # With it goes what was reported of the topic's partitions.
            self._desk.buffer.pop_failure(self._denied.pop(topic))
        for topic in denied:
            state = self._denied.setdefault(topic, PartitionState(TopicPartition(topic, -1)))
            ours = self.subscriptions.assignment.states()
            # Some readers ask for certain partitions only.
            states = [state, *(each for each in ours if each.tp.topic == topic)]
            self._desk.report_all(states, partial(TopicAuthorizationFailedError, topic))

    @property
    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic in use has."""
        partitions = self._client.cluster.partitions_for_topic
        return {topic: len(partitions(topic) or ()) for topic in self.subscriptions.topics}
