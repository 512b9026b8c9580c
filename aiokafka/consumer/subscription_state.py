"""The subscription of a consumer, its assignment, and the metadata of its topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from aiokafka._partitions import as_partition
from aiokafka._tasks import Signal
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.errors import IllegalStateError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition

__all__ = [
    "Assignment",
    "ConsumerRebalanceListener",
    "SubscribedTopics",
    "Subscription",
    "SubscriptionState",
    "TopicPartitionState",
]

if TYPE_CHECKING:
    import asyncio

    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer._partition_state import PartitionState as TopicPartitionState
    from aiokafka.consumer.fetch.fetcher import Fetcher
else:
    TopicPartitionState = PartitionState  # the name in aiokafka 0.14


# `revoked_after_reading` keeps this many entries, or two for each partition of the largest
# assignment so far, if that is more. Beyond that, the oldest entries are dropped. Ten thousand
# entries use two megabytes of memory.
_MOST_REVOKED = 10_000

_EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"


class Assignment:
    """The partitions assigned to this consumer. Immutable; a new assignment replaces the object.

    A partition that stays assigned keeps its PartitionState, with position, pause and buffered
    records. `topic_ids`: the topic ids by name if the group assigns by topic id (KIP-848), else
    empty.
    """

    __slots__ = ("epoch", "get", "state_value", "states", "topic_ids", "tps")

    def __init__(
        self,
        states: dict[TopicPartition, PartitionState],
        epoch: int,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        # The bound methods of the dict, because they are called for each request and response.
        self.states = states.values
        """Return the states of the assigned partitions."""
        self.get = states.get
        """Return the state of a partition; None if it is not assigned."""
        self.state_value = states.__getitem__
        """Return the state of an assigned partition. Raises KeyError for any other partition."""
        self.tps = frozenset(states)
        self.epoch = epoch
        self.topic_ids = {} if topic_ids is None else topic_ids

    @property
    def active(self) -> bool:
        """Whether this is the current assignment, not replaced by another assignment."""
        return self.epoch >= 0

    def is_foreign(self, topic: str, cluster: ClusterMetadata) -> bool:
        """Return whether the id of the topic in the metadata differs from the id by which the group
        has assigned the topic. Then one of the ids is outdated, and a request by name could apply
        to the wrong topic. False if either id is unknown."""
        given = self.topic_ids.get(topic)
        return given is not None and cluster.topic_id(topic) not in (None, given)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.tps)

    def __len__(self) -> int:
        return len(self.tps)

    def __repr__(self) -> str:
        return f"<Assignment #{self.epoch} of {len(self.tps)} partitions>"


class Subscription:
    """The choice of the application: topics by name or pattern (`subscribe()`), or partitions
    (`assign()`; then `is_manual` is True)."""

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
        """The regular expression of a SubscriptionPattern, which the broker matches (KIP-848). Then
        `topics` has the assigned topics only."""
        self.listener = listener
        self.is_manual = is_manual

    @property
    def active(self) -> bool:
        """Whether this is the current subscription, not replaced by another subscription."""
        return self._owner.subscription is self

    @property
    def assignment(self) -> Assignment:
        """The present assignment."""
        return self._owner.assignment


class SubscriptionState:
    """The application's subscription and the resulting assignment.

    The application changes the subscription. `assign()` changes the assignment if the application
    chooses partitions; otherwise the group, or NoGroup, calls `assign_from_subscribed()`.
    """

    def __init__(self) -> None:
        # Attributes instead of properties, because they are read many times per request.
        self.subscription: Subscription | None = None
        self.is_manual = False
        """Whether the application has called `assign()`."""
        self.is_by_group = False
        """Whether there is a subscription by topics or pattern: the group, or NoGroup without a
        group, assigns the partitions."""
        self.assignment = Assignment({}, 0)
        self._fetcher: Fetcher | None = None
        self._subscribed_at = self.assignment.epoch
        self._assigned = Signal()
        self.revoked_after_reading: dict[TopicPartition, int] = {}
        """Partitions that were revoked after records of them were returned, with the number of the
        last call of `getone()` or `getmany()` that returned such records. An application may
        process records for an unlimited time, so entries do not expire. Only the number of entries
        is limited: to 10,000, or twice the size of the largest assignment if that is more."""
        self._most_revoked = _MOST_REVOKED

    def fetch_context(self) -> AbstractContextManager[None]:
        """Return a context manager without effect. The library Faust calls this method."""
        return nullcontext()

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics; for a pattern the matching topics."""
        return frozenset() if self.subscription is None else self.subscription.topics

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern of the subscription; None without a pattern."""
        return None if self.subscription is None else self.subscription.pattern

    @property
    def listener(self) -> ConsumerRebalanceListener | None:
        """The rebalance listener of the subscription; None without a listener."""
        return None if self.subscription is None else self.subscription.listener

    # Methods of `SubscriptionState` in aiokafka 0.14, for programs that call them.

    _listener = listener

    def assigned_partitions(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self.assignment.tps)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Return whether the partition is assigned."""
        return tp in self.assignment.tps

    def paused_partitions(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {state.tp for state in self.assignment.states() if state.paused}

    def partitions_auto_assigned(self) -> bool:
        """Return whether there is a subscription by topics or pattern."""
        return self.is_by_group

    @property
    def subscribed_pattern(self) -> re.Pattern[str] | None:
        """The pattern of the subscription; None without a pattern. Named as in aiokafka 0.14."""
        return self.pattern

    def watch(self, fetcher: Fetcher | None) -> None:
        """Notify `fetcher` of changes of partitions, in this and later assignments; None ends the
        notifications."""
        self._fetcher = fetcher
        for state in self.assignment.states():
            state.fetcher = fetcher

    def subscribe_topics(
        self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to topics by name. Raises IllegalStateError after `assign()`."""
        self._refuse_manual()
        self._subscribe(Subscription(self, frozenset(topics), listener=listener))

    def subscribe_pattern(
        self, pattern: re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to all present and future topics that match `pattern`. Raises IllegalStateError
        after `assign()`."""
        self._refuse_manual()
        self._subscribe(Subscription(self, frozenset(), pattern=pattern, listener=listener))

    def subscribe_regex(
        self, regex: str, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to all topics that match `regex`, which the broker evaluates. The new
        subscription begins with the topics that are assigned now, because the broker sends no
        assignment if the new expression matches the same topics. Raises IllegalStateError after
        `assign()`."""
        self._refuse_manual()
        topics = frozenset(tp.topic for tp in self.assignment.tps)
        self._subscribe(Subscription(self, topics, regex=regex, listener=listener))

    def take_topics(self, topics: frozenset[str]) -> bool:
        """Set the topics that match the regular expression which the broker evaluates; return
        whether the topics changed. Return False without such an expression."""
        current = self.subscription
        if current is None or current.regex is None or topics == current.topics:
            return False
        current.topics = topics
        return True

    def replace_listener(self, listener: ConsumerRebalanceListener | None) -> None:
        """Replace the rebalance listener of the subscription. Raises IllegalStateError without a
        subscription."""
        if self.subscription is None:
            raise IllegalStateError("a listener needs a subscription: call subscribe() or assign()")
        self.subscription.listener = listener

    def match_pattern(self, topics: Iterable[str]) -> bool:
        """Subscribe to all `topics` that match the pattern; return whether the subscribed topics
        changed. Return False without a pattern."""
        current = self.subscription
        if current is None or current.pattern is None:
            return False
        matching = frozenset(filter(current.pattern.match, topics))
        if matching == current.topics:
            return False
        current.topics = matching
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, chosen by the application. Raises IllegalStateError
        while there is a subscription by topics or pattern."""
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
        """Assign partitions for the current subscription.

        Partitions that were assigned before keep their state, unless `keep` is False. `topic_ids`:
        the topic ids by name if the group assigns by topic id. Raises IllegalStateError without a
        subscription by topics or pattern.
        """
        if not self.is_by_group:
            raise IllegalStateError("there is no subscription to assign partitions for")
        tps = list(dict.fromkeys(partitions))
        # Drop the old states first, so that each partition gets a new state, without position.
        if not keep and self.assignment:
            self._replace([])
        self._replace(tps, topic_ids)

    def begin_again(self) -> None:
        """Clear the assignment by the group before a consumer is started again after a failed
        `start()`. Keep the subscription, and manually assigned partitions."""
        if self.is_by_group:
            self.assign_from_subscribed([])
            # Topics that the broker matched for the failed `start()` may not exist any more.
            self.take_topics(frozenset())

    def unsubscribe(self) -> None:
        """Clear subscription and assignment. Afterwards any kind of subscription is possible."""
        self._set(None)
        self._replace([])

    def assigned_state(
        self, tp: TopicPartition, text: str = "Partition {} is not assigned"
    ) -> PartitionState:
        """Return the state of an assigned partition. Raises IllegalStateError, with a message that
        begins with `text`, for any other partition."""
        state = self.assignment.get(tp if type(tp) is TopicPartition else as_partition(tp))
        if state is None:
            raise IllegalStateError(f"{text.format(tp)} to this consumer")
        return state

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {state.tp for state in self.assignment.states() if state.paused}

    def _refuse_manual(self) -> None:
        if self.is_manual:
            raise IllegalStateError(f"{_EXCLUSIVE}: before subscribe() call unsubscribe()")

    async def wait_for_assignment(self) -> None:
        """Wait until the latest subscription has an assignment. Named as in aiokafka 0.14."""
        while self.assignment.epoch <= self._subscribed_at:
            await self._assigned.wait()

    def _set(self, subscription: Subscription | None) -> None:
        self.subscription = subscription
        self.is_manual = subscription is not None and subscription.is_manual
        self.is_by_group = subscription is not None and not subscription.is_manual

    def _subscribe(self, subscription: Subscription) -> None:
        self._set(subscription)
        self._subscribed_at = self.assignment.epoch
        # Withhold records of unsubscribed topics at once: their partitions stay assigned until the
        # group has rebalanced.
        for state in self.assignment.states():
            state.want(self._wants(state.tp.topic))

    def _wants(self, topic: str) -> bool:
        current = self.subscription
        if current is None or current.is_manual:
            return True
        if current.pattern is not None:
            # Match the name: `topics` may lack the topic, because metadata may lack it for a while.
            return current.pattern.match(topic) is not None
        # Only the broker knows which topics match `regex`; the next assignment has these topics.
        return current.regex is not None or topic in current.topics

    def _replace(
        self, tps: list[TopicPartition], topic_ids: Mapping[str, bytes] | None = None
    ) -> None:
        old = self.assignment
        states: dict[TopicPartition, PartitionState] = {}
        for tp in tps:
            is_wanted = self._wants(tp.topic)
            state = old.get(tp)
            if state is None:
                state = PartitionState(tp)
                state.fetcher = self._fetcher
            state.want(is_wanted)
            states[tp] = state
        self.assignment = Assignment(states, old.epoch + 1, topic_ids)
        # Mark the old assignment as replaced, for code that still refers to it (`active`).
        old.epoch = -1
        for state in old.states():
            if state.tp not in states:
                if state.call:
                    # `GroupView` needs this to know whether the application may still process
                    # records of the partition. Pop first, because the dict is ordered by age.
                    self.revoked_after_reading.pop(state.tp, None)
                    self.revoked_after_reading[state.tp] = state.call
                state.retire()
        self._most_revoked = max(self._most_revoked, 2 * len(tps))
        too_many = max(0, len(self.revoked_after_reading) - self._most_revoked)
        for tp in list(islice(self.revoked_after_reading, too_many)):
            del self.revoked_after_reading[tp]
        self._assigned.notify()


class SubscribedTopics:
    """Requests metadata of the subscribed topics, matches patterns, and reports denied topics (with
    TOPIC_AUTHORIZATION_FAILED in metadata). Used with and without a group.

    Owns: the denied topics, each with a PartitionState of partition -1. The error is reported for
    this state, too, because the topic's partitions may be unknown.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._client = context.client
        self._config = context.config
        self._subscriptions = context.subscriptions
        self._queue = context.queue
        self._health = context.health
        self._denied: dict[str, PartitionState] = {}

    def follow(self, on_metadata: Callable[[], None]) -> Coroutine[Any, Any, None]:
        """Return a coroutine that calls `on_metadata` after each change of the metadata, until it
        is cancelled."""
        # Get the future now: the metadata may change before the coroutine starts to run.
        return self._follow(self._client.metadata_changed(), on_metadata)

    async def _follow(self, changed: asyncio.Future[None], on_metadata: Callable[[], None]) -> None:
        while True:
            await changed
            # Get the next future first, so that a change during the calls is not missed.
            changed = self._client.metadata_changed()
            on_metadata()
            self._health.look()

    def request(self) -> None:
        """Request metadata of the subscribed topics; of all topics for a pattern that the client
        matches."""
        subscriptions = self._subscriptions
        if subscriptions.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(subscriptions.topics)

    def match_pattern(self) -> bool:
        """Update the subscribed topics from the metadata if there is a pattern; return whether they
        changed."""
        subscription = self._subscriptions.subscription
        if subscription is None or subscription.pattern is None:
            return False
        hide_internal = self._config.exclude_internal_topics
        return self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal))

    def report_denied(self) -> None:
        """Make calls of the application raise TopicAuthorizationFailedError for denied topics, and
        withdraw the errors of topics that are no longer denied. Called after each change of the
        metadata."""
        denied = self._client.cluster.unauthorized_topics & self._subscriptions.topics
        for topic in [topic for topic in self._denied if topic not in denied]:
            # This also removes the failures reported for the topic's partitions.
            self._queue.buffer.pop_failure(self._denied.pop(topic))
        for topic in denied:
            state = self._denied.setdefault(topic, PartitionState(TopicPartition(topic, -1)))
            ours = self._subscriptions.assignment.states()
            # Report the error for assigned partitions, too: a call may read only from these.
            states = [state, *(each for each in ours if each.tp.topic == topic)]
            self._queue.report_all(states, partial(TopicAuthorizationFailedError, topic))

    @property
    def partition_counts(self) -> dict[str, int]:
        """Number of partitions of each subscribed topic."""
        partitions = self._client.cluster.partitions_for_topic
        return {topic: len(partitions(topic) or ()) for topic in self._subscriptions.topics}
