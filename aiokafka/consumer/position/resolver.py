"""Positions of assigned partitions: committed offsets, the reset policy, validation (KIP-320)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka._log import SubjectLog
from aiokafka._reading import FoundOffset, Offsets, doubts_metadata, is_transient
from aiokafka._tasks import Signal, together
from aiokafka.cluster import ClusterMetadata, TopicInfo
from aiokafka.consumer._arguments import some_positions
from aiokafka.consumer._partition_state import (
    NO_EPOCH,
    PATIENCE_WITH_UNKNOWN,
    PartitionState,
    Phase,
)
from aiokafka.consumer.position.lookup import (
    EARLIEST,
    LATEST,
    EpochEnd,
    EpochQuery,
    OffsetLookup,
    OffsetSpec,
)
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    for_partition,
    renewed,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._metadata.leader_votes import LeaderVotes
    from aiokafka._tasks import TaskOwner
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.fetch.fetcher import ChangedTopic, FetchTargets
    from aiokafka.consumer.position.committed import OffsetCommitter
    from aiokafka.consumer.subscription_state import Subscription, SubscriptionState

__all__ = ["NewPartitions", "OffsetResolver"]


# -- Partitions that were created while the consumer was reading their topic. No I/O


# How long a created partition counts as new, and is read from its beginning: `_AGES` times
# `metadata_max_age_ms`, but at least `_SHORTEST_NEW` seconds. Before the partition can be assigned,
# the group's leader has to refresh its metadata, and the group has to rebalance. After this time
# another member may have read the partition already, so the reset policy applies.
_AGES = 2
_SHORTEST_NEW = 60.0

# With a subscription pattern, the limit of `_seen`, the topics seen so far, is twice the number of
# topics in the cluster plus this number. Beyond that, deleted topics are dropped from `_seen`.
_SPARE_NAMES = 1000


class _Topic:
    """The last known id and partitions of a topic."""

    __slots__ = ("partitions", "topic_id")

    def __init__(self, topic_id: bytes | None, partitions: frozenset[int]) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


class NewPartitions:
    """Distinguishes partitions that were created after the subscription from older partitions.

    A partition is old if it is in the first metadata of its topic after the subscription. All
    records of any other partition were written after the subscription, so it is new. The cases:

    - A broker has reported after the subscription that the topic does not exist.
    - Only later metadata has the partition.
    - The topic was recreated.

    A partition stays new for some minutes, and as long as `keep()` is called.

    Owns: the known partitions of each subscribed topic (with a pattern: of all topics); the time
    until which a partition is new.
    """

    def __init__(self, subscriptions: SubscriptionState, metadata_max_age: float) -> None:
        self._subscriptions = subscriptions
        self._new_for = max(_SHORTEST_NEW, _AGES * metadata_max_age)
        self._subscription: Subscription | None = None
        self._seen: dict[str, _Topic] = {}
        self._has_seen_all = False
        self._until: dict[TopicPartition, float] = {}
        # Topic metadata from before the subscription. It does not show that a topic is missing now.
        self._stale: dict[str, TopicInfo] = {}

    def is_new(self, tp: TopicPartition) -> bool:
        """Return whether `tp` was created after the subscription, and still counts as new. Such a
        partition is read from its beginning instead of by the reset policy."""
        until = self._until.get(tp)
        return until is not None and _now() < until

    def keep(self, tp: TopicPartition) -> None:
        """Make a new partition stay new for another minute, because its position is looked up. Do
        nothing for other partitions."""
        if tp in self._until:
            self._until[tp] = max(self._until[tp], _now() + _SHORTEST_NEW)

    def update(self, cluster: ClusterMetadata) -> None:
        """Find new partitions in the metadata of the subscribed topics. Forget partitions that are
        not new any more (`_until`), and topics that are no longer subscribed to."""
        if self._subscriptions.subscription is not self._subscription:
            self._follow(cluster)
        if self._subscriptions.pattern is None:
            for name in sorted(self._subscriptions.topics):
                self._update_topic(name, cluster, is_late=False)
        elif cluster.has_all_topics:
            names = cluster.topics(exclude_internal_topics=False)
            for name in sorted(names):
                self._update_topic(name, cluster, is_late=self._has_seen_all)
            self._has_seen_all = True
            self._prune(names)
        now = _now()
        for tp in [tp for tp, until in self._until.items() if until <= now]:
            del self._until[tp]

    def _follow(self, cluster: ClusterMetadata) -> None:
        """Forget the topics that a new subscription does not include."""
        self._subscription = self._subscriptions.subscription
        self._has_seen_all = False
        topics = self._subscriptions.topics
        self._seen = {name: seen for name, seen in self._seen.items() if name in topics}
        infos = ((name, cluster.topic_info(name)) for name in topics)
        self._stale = {name: info for name, info in infos if info is not None}

    def _update_topic(self, name: str, cluster: ClusterMetadata, *, is_late: bool) -> None:
        numbers = cluster.known_partitions(name)
        seen = self._seen.get(name)
        if numbers is None:
            if seen is None and self._is_absent(name, cluster):
                self._seen[name] = _Topic(None, frozenset())
            return
        topic_id = cluster.topic_id(name)
        if seen is None:
            seen = _Topic(topic_id, frozenset() if is_late else numbers)
        # If the topic was recreated, all its partitions are new.
        elif topic_id is not None and seen.topic_id not in (None, topic_id):
            seen = _Topic(topic_id, frozenset())
        if numbers is not seen.partitions:
            until = _now() + self._new_for
            for number in sorted(numbers - seen.partitions):
                self._until[TopicPartition(name, number)] = until
            seen = _Topic(topic_id or seen.topic_id, numbers | seen.partitions)
        self._seen[name] = seen

    def _is_absent(self, name: str, cluster: ClusterMetadata) -> bool:
        """Return whether a broker has reported since the subscription that the topic does not
        exist."""
        info = cluster.topic_info(name)
        # Each response creates a new object, so the same object as before the subscription is
        # outdated.
        if info is None or info is self._stale.get(name):
            return False
        return bool(cluster.missing_topics((name,)))

    def _prune(self, names: set[str]) -> None:
        if len(self._seen) > 2 * len(names) + _SPARE_NAMES:
            self._seen = {name: seen for name, seen in self._seen.items() if name in names}


def _now() -> float:
    return asyncio.get_running_loop().time()


_Identity = tuple[int, Phase, int, int]


def _identity(state: PartitionState) -> _Identity:
    """Return a tuple that identifies the position that a request is for. If the tuple has changed
    when the response arrives, there was a seek, a reset or a change of the leader, and the response
    is ignored."""
    return state.epoch, state.phase, state.cursor.offset, state.cursor.leader_epoch


log = logging.getLogger("aiokafka.consumer.fetcher")

# A former leader that has lost its connection to the other brokers may send wrong responses. After
# more than this number of such responses in a row, assume that they are right:
# - A leader has an older epoch than the position: the topic was recreated.
# - According to metadata, another broker is the leader: apply the response nevertheless.
# - OFFSET_OUT_OF_RANGE, although the log has the position: the position is lost.
_PATIENCE_WITH_OLD_LEADERS = 10

# If no other broker responds, it stays unknown whether the sender is the leader. Then apply its
# response unconfirmed after more than this number of such responses in a row.
_PATIENCE_WITHOUT_VOTES = 3

# A response that would make the consumer skip records or read them again. It is applied only after
# other brokers have confirmed that the broker that sent it is the leader. The items are the
# partition, the error that `health()` shows until then, and the function that applies the response.
_Claim = tuple[PartitionState, type[BrokerResponseError], Callable[[], None]]
_Ask = Callable[[int, list[PartitionState]], Coroutine[Any, Any, list[_Claim]]]
_Request = Callable[[], Coroutine[Any, Any, list[_Claim]]]


class OffsetResolver:
    """Finds the position of each partition: the committed offset, or else the offset of the reset
    policy. Validates positions after a change of the leader.

    A newly assigned partition gets its position in these steps:

    1. It is assigned: UNSET. The Fetcher wakes the resolver, and does not fetch the partition.
    2. OffsetFetch returns the committed offset. If an open transaction commits an offset of the
       partition, the coordinator returns an error, and only this partition is requested again. With
       the older offset, the records of the transaction would be processed twice (KIP-447).
    3. A committed offset becomes the position. If its leader epoch differs from the leader's, the
       position is compared with the leader's log first, which may be truncated (VALIDATING).
    4. Without a committed offset the reset policy applies (RESETTING): ListOffsets to the leader.
       A partition that was created after the subscription is read from its beginning, even with
       the policy "latest".
    5. The position is known: READY. The Fetcher requests records.
    6. The leader does not have the position: OUT_OF_RANGE. ListOffsets returns the bounds of its
       log. If the log begins after the position, the reset policy applies. If the log ends before
       the position, the broker may be a former leader.

    A former leader that has lost its connections to the other brokers still responds as the leader,
    and before Kafka 2.1 no leader epoch shows that it is outdated. So before a response makes the
    consumer skip records or read them again, other brokers have to confirm that the sender is the
    leader (`_confirm()`).

    While a request is in flight, the application may call `seek()`, or the group may revoke the
    partition. A seek or revocation raises the `epoch` of the PartitionState, and the response is
    dropped: a position is only written in the phase and epoch of the request. Requests to several
    brokers run concurrently, so that a slow broker delays only its own partitions. Each partition
    has its own backoff.

    Owns: the partitions with a request in flight; the NewPartitions (with the policy "latest");
    the LeaderVotes.
    """

    def __init__(
        self,
        context: ConsumerContext,
        tasks: TaskOwner,
        targets: FetchTargets,
        committer: OffsetCommitter | None,
    ) -> None:
        config = context.config
        self.lookup = OffsetLookup(context.client, config, context.fenced_epochs)
        self._client = context.client
        self._config = config
        self._queue = context.queue
        self._meter = context.meter
        self._subscriptions = context.subscriptions
        self._log = SubjectLog(log, config.subject)
        self._tasks = tasks
        self._targets = targets
        self._committer = committer
        policy = OffsetSpec.from_policy(config.auto_offset_reset, config.reset_duration)
        # A copy, because `_spec_of()` recognizes a reset by the policy by the identity of this
        # object. `seek_to_end()` uses LATEST itself: then even a new partition is read from its
        # end.
        self._policy = None if policy is None else OffsetSpec(*policy)
        self._policy_of_losses = policy
        self._new_partitions: NewPartitions | None = None
        if policy == LATEST:
            self._new_partitions = NewPartitions(
                context.subscriptions, config.client.metadata_max_age
            )
            context.client.cluster.add_listener(self._new_partitions.update)
        self._signal = Signal()
        self._is_woken = False
        self._in_flight: set[PartitionState] = set()
        self._votes: LeaderVotes | None = None

    def wake(self) -> None:
        """Make `run()` check all partitions, because a partition may need a position."""
        self._is_woken = True
        self._signal.notify()

    async def run(self) -> None:
        """Look up positions whenever partitions need them, until cancelled."""
        while True:
            # `_dispatch()` may change a partition, and the change calls `wake()`. Then check all
            # partitions again at once.
            self._is_woken = False
            self._dispatch(asyncio.get_running_loop().time())
            if not self._is_woken:
                await self._signal.wait(self._next_retry())

    @property
    def is_looking(self) -> bool:
        """Whether there is a partition with a leader that needs a position, and whose requests have
        not failed."""
        return any(
            state.needs_offset and not state.retry.failures and state.target.node_id is not None
            for state in self._subscriptions.assignment.states()
        )

    def update_new_partitions(self) -> None:
        """With the policy "latest", find new partitions after a change of the assignment or the
        metadata. With another policy, do nothing."""
        if self._new_partitions is not None:
            self._new_partitions.update(self._client.cluster)

    # -- invalid positions -------------------------------------------------------

    def on_topic_changed(self, other: ChangedTopic) -> None:
        """Handle a topic name that has another topic id in the metadata than before. If `other` is
        new, the topic was recreated: reset the positions. If its id was seen before, continue at
        the positions that were stored for this id.

        1. A topic is recreated. A broker reports the new id, and the positions are reset.
        2. The next metadata comes from a broker with outdated metadata, and has the old id.
        3. The next metadata has the new id again. With the positions in the deleted topic, records
           of the new topic would be skipped or returned twice. So each topic id has its own
           positions.

        A partition without a Fetch response may already have a position in the new topic: the
        coordinator and the leaders find a topic by its name, and may know the new topic before the
        metadata does. So the position of such a partition is looked up again. A partition with a
        Fetch response is read from the beginning of the new topic.
        """
        topic, outdated = other.name, []
        for state in self._subscriptions.assignment.states():
            if state.tp.topic != topic:
                continue
            if not state.change_topic(other.now, other.is_new) and not state.is_unset:
                outdated.append(state)
        if not other.is_new:
            text = "The metadata has a former topic with the name %s again"
            self._log.info(text, topic, topic=topic)
        elif outdated:
            text = "Topic %s was deleted and created again: its positions are reset"
            self._log.warning(text, topic, topic=topic)
        for state in outdated:
            if state.timestamp is None:
                state.reset(None)
            else:
                self.begin_again(state)

    def begin_again(self, state: PartitionState) -> None:
        """Set the position of a partition whose topic was recreated: to the beginning, because all
        records of the new topic are new. The policy "none" permits no reset, so look up the
        committed offset of the new topic instead."""
        state.reset(None if self._policy is None else EARLIEST)

    def on_out_of_range(self, state: PartitionState) -> None:
        """Find out whether a position is lost after OFFSET_OUT_OF_RANGE from the leader. Do nothing
        if the position is not READY."""
        if state.phase is not Phase.READY:
            return  # for example, the position is being compared with the log of a new leader
        client = self._config.client
        now = asyncio.get_running_loop().time()
        self._log.debug("%s: offset %s is out of range", state.tp, state.cursor.offset)
        state.retry.lose(now, client.retry_backoff, client.retry_backoff_max)
        state.begin_check()

    # -- requests -------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        """Start one request for each broker and kind of request."""
        due = [state for state in self._waiting() if state.retry.at <= now]
        self._keep_new(due)
        unset = [state for state in due if state.phase is Phase.UNSET]
        # One OffsetFetch for all partitions goes to the coordinator; below, one request goes to
        # each leader.
        if unset and self._committer is not None:
            self._start(partial(self._ask_committed, unset), unset, "committed-offsets")
        else:
            for state in unset:
                self._apply_policy(state)
        if due:
            self._ask_leaders(due, Phase.RESETTING, self._ask_offsets, "ListOffsets")
            self._ask_leaders(due, Phase.VALIDATING, self._ask_epochs, "OffsetForLeaderEpoch")
            self._ask_leaders(due, Phase.OUT_OF_RANGE, self._ask_bounds, "ListOffsets")

    def _keep_new(self, waiting: Iterable[PartitionState]) -> None:
        if self._new_partitions is not None:
            for state in waiting:
                self._new_partitions.keep(state.tp)

    def _waiting(self) -> list[PartitionState]:
        states = self._subscriptions.assignment.states()
        return [state for state in states if state.needs_offset and state not in self._in_flight]

    def _next_retry(self) -> float | None:
        # Partitions without a leader have no retry time: after new metadata, `Fetcher.route()`
        # wakes this task.
        placed = [state for state in self._waiting() if state.target.node_id is not None]
        now = asyncio.get_running_loop().time()
        return min((s.retry.at for s in placed if s.retry.at > now), default=None)

    def _ask_leaders(
        self, due: Iterable[PartitionState], phase: Phase, ask: _Ask, request: str
    ) -> None:
        by_leader: dict[int, list[PartitionState]] = {}
        cluster, assignment = self._client.cluster, self._subscriptions.assignment
        for state in due:
            if state.phase is not phase:
                continue
            if assignment.is_foreign(state.tp.topic, cluster):
                # Leaders find the topic by name, and may return an offset in another topic.
                text = f"{state.tp}: the group has assigned another topic"
                self._postpone(state, UnknownTopicId(text))
                self._client.doubt_metadata(text)
            else:
                leader = cluster.leader_for_partition(state.tp)
                if leader is not None and leader >= 0:
                    by_leader.setdefault(leader, []).append(state)
        for node_id, states in by_leader.items():
            request_task = partial(self._ask_node, node_id, partial(ask, node_id, states), request)
            self._start(request_task, states, f"{request}-{node_id}")

    async def _ask_node(self, node_id: int, ask: _Request, request: str) -> None:
        node_health = self._targets.health_of(node_id)
        if node_health is None:
            claims = await ask()
        else:
            with node_health.asked(request):
                try:
                    claims = await ask()
                except KafkaError as error:
                    node_health.note(error)
                    raise
            # Record the success here: a paused partition has no fetch that would record a success.
            node_health.succeed()
        if claims:
            await self._confirm(node_id, claims)

    async def _confirm(self, node_id: int, claims: list[_Claim]) -> None:
        """Apply responses that make the consumer skip records or read them again, if other brokers
        confirm that their sender is the leader. Otherwise back off; the next request is sent to the
        broker that is the leader in the metadata by then. After several attempts, apply unconfirmed
        responses, too."""
        if self._votes is None:
            # Import this module only for clients that need it.
            from aiokafka._metadata.leader_votes import LeaderVotes

            self._votes = LeaderVotes(self._client, self._tasks)
        votes = self._votes
        asked = [_identity(state) for state, _, _ in claims]
        answers = await together(votes.confirm(state.tp, node_id) for state, _, _ in claims)
        for (state, error, apply), identity, is_leader in zip(claims, asked, answers, strict=True):
            if _identity(state) != identity:
                continue
            if not is_leader:
                state.retry.note_doubt()
                patience = _PATIENCE_WITHOUT_VOTES
                if is_leader is False:
                    patience = _PATIENCE_WITH_OLD_LEADERS
                if state.retry.doubts <= patience:
                    self._postpone(state, error)
                    continue
            apply()

    def _start(
        self,
        ask: Callable[[], Coroutine[Any, Any, None]],
        states: list[PartitionState],
        name: str,
    ) -> None:
        self._in_flight.update(states)
        now = asyncio.get_running_loop().time()
        for state in states:
            state.retry.begin(now)
        self._tasks.start(self._finish(ask, states), name=name)

    async def _finish(
        self, ask: Callable[[], Coroutine[Any, Any, None]], states: list[PartitionState]
    ) -> None:
        """Await a request; back off after an error. Then allow other requests of its partitions."""
        try:
            # The task starts in a later iteration of the event loop. If all positions are known by
            # then, no request is needed.
            if any(state.needs_offset for state in states):
                await ask()
        except KafkaError as error:
            self._on_failure(states, error)
        finally:
            # If there was a reset during the request, the response was ignored, and the partition
            # needs another request at once: `wake()`.
            self._in_flight.difference_update(states)
            self._queue.positions.notify()
            self.wake()

    # Each request first checks which of its partitions still need a position: the application may
    # have called `seek()` since the task was created.

    async def _ask_committed(self, states: list[PartitionState]) -> None:
        assert self._committer is not None
        epochs = {state: state.epoch for state in states if state.phase is Phase.UNSET}
        if not epochs:
            return

        def on_failure(error: KafkaError) -> None:
            now = asyncio.get_running_loop().time()
            again_at = now + self._config.client.retry_backoff_max
            for state, epoch in epochs.items():
                if state.epoch == epoch:
                    state.retry.record_failure(now, renewed(error), again_at)

        found, refused = await self._committer.fetch_each(
            [state.tp for state in epochs], on_failure
        )
        for state, epoch in epochs.items():
            if state.epoch != epoch or state.phase is not Phase.UNSET:
                continue
            committed = found.get(state.tp)
            if state.tp in refused and not self._is_missing(state, refused[state.tp]):
                self._on_refused(state, type(refused[state.tp]))
            elif committed is None:
                self._apply_policy(state)
            else:
                state.seek_to_committed(committed.offset, committed.leader_epoch)

    def _is_missing(self, state: PartitionState, error: BrokerResponseError) -> bool:
        """Return whether the partition counts as one without a committed offset: it has a leader,
        but more than `PATIENCE_WITH_UNKNOWN` responses in a row of the coordinator, including
        `error`, were UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID."""
        is_unknown = isinstance(error, (UnknownTopicOrPartitionError, UnknownTopicId))
        if not is_unknown or state.target.node_id is None:
            return False
        state.retry.note_doubt()
        return state.retry.doubts > PATIENCE_WITH_UNKNOWN

    async def _ask_offsets(self, node_id: int, states: list[PartitionState]) -> list[_Claim]:
        epochs = {state: state.epoch for state in states if state.phase is Phase.RESETTING}
        specs = {state.tp: self._spec_of(state) for state in epochs}
        ends = await self._ask_ends(node_id, specs)
        found = await self.lookup.ask(node_id, {tp: s.timestamp_now() for tp, s in specs.items()})
        claims: list[_Claim] = []
        was_reset: dict[TopicPartition, int] = {}
        for state, epoch in epochs.items():
            answer = found.get(state.tp, UnknownError)
            if isinstance(answer, FoundOffset) and answer.offset < 0:
                # All records are older than the requested time: continue at the end (KIP-1106).
                answer = ends.get(state.tp, answer)
            if state.epoch != epoch or state.phase is not Phase.RESETTING:
                continue
            if not isinstance(answer, FoundOffset):
                self._on_refused(state, answer)
            elif answer.offset >= 0:
                is_end = specs[state.tp] == LATEST or answer is ends.get(state.tp)
                known = state.end(self._config.read_committed) if is_end else None
                if known is not None and answer.offset < known:
                    # Records before the known end would be read again: other brokers must confirm
                    # the leader first.
                    move = partial(self._reset_to, state, answer, is_end=True)
                    claims.append((state, OffsetNotAvailable, move))
                    continue
                self._reset_to(state, answer, is_end=is_end)
                was_reset[state.tp] = answer.offset
            else:
                self._on_refused(state, UnknownError)
        if was_reset:
            self._log.info("Positions set by the reset policy: %s", some_positions(was_reset))
        return claims

    def _reset_to(self, state: PartitionState, found: FoundOffset, *, is_end: bool) -> None:
        if state.lost_at >= 0:
            self._note_skipped(state, found.offset)
        state.move(found.offset, NO_EPOCH if is_end else found.leader_epoch)
        if is_end:
            state.cursor.start_at_end(found.leader_epoch)
        self._log.debug("%s: position reset to %d", state.tp, found.offset)

    async def _ask_bounds(self, node_id: int, states: list[PartitionState]) -> list[_Claim]:
        """Compare positions that were out of range with the bounds of the leader's log.

        1. The log begins after the position: the records were deleted by retention. Apply the
           policy. The log of a former leader may begin earlier than the leader's, but not later, so
           no confirmation is needed.
        2. The log ends before the position: the log was truncated, or this is a former leader.
           Return the response for `_confirm()`.
        3. The log has the position: the broker has caught up, or another broker returned the error.
           Fetch again. After `_PATIENCE_WITH_OLD_LEADERS` such errors in a row, apply the policy.
        """
        asked = {state: _identity(state) for state in states if state.phase is Phase.OUT_OF_RANGE}
        starts = await self.lookup.ask(node_id, {s.tp: EARLIEST.timestamp for s in asked})
        rest: list[PartitionState] = []
        for state, start in self._bounds(asked, starts):
            if state.cursor.offset < start:
                self._on_lost(state)
            else:
                rest.append(state)
        if not rest:
            return []
        # Request the high watermark even with `read_committed`: the log also has the records after
        # the last stable offset.
        ends = await self.lookup.ask(node_id, {s.tp: LATEST.timestamp for s in rest}, isolation=0)
        claims: list[_Claim] = []
        for state, end in self._bounds({state: asked[state] for state in rest}, ends):
            if end < state.cursor.offset:
                claims.append((state, OffsetOutOfRangeError, partial(self._on_lost, state)))
            elif state.retry.losses > _PATIENCE_WITH_OLD_LEADERS:
                self._on_lost(state)
            else:
                state.end_validation()
        return claims

    def _bounds(
        self, asked: Mapping[PartitionState, _Identity], found: Offsets
    ) -> Iterator[tuple[PartitionState, int]]:
        """Yield each partition that has not changed since the request, with its offset in the
        response. Back off for partitions with an error."""
        for state, identity in asked.items():
            answer = found.get(state.tp, UnknownError)
            if _identity(state) != identity:
                continue
            if isinstance(answer, FoundOffset):
                yield state, answer.offset
            else:
                self._on_refused(state, answer)

    def _on_lost(self, state: PartitionState) -> None:
        """Apply the reset policy to a position that is not in the log. With the policy "none", keep
        the position, and make the next call of the application raise OffsetOutOfRangeError."""
        if self._policy is not None:
            # For the object `_policy`, `_spec_of()` returns the beginning of a new partition, from
            # which it is read for the first time. This is not the first time, so pass an equal, but
            # different object: for `_policy_of_losses`, `_spec_of()` returns the policy itself.
            state.lose(self._policy_of_losses)
            return
        tp, offset = state.tp, state.cursor.offset
        state.retry.succeed()
        # The application has to seek. Until then, further fetches would fail in the same way: wait
        # before the next one.
        now = asyncio.get_running_loop().time()
        state.retry.wait_until(now + self._config.client.retry_backoff_max)
        state.end_validation()
        self._queue.report(state, lambda: OffsetOutOfRangeError({tp: offset}))

    def _note_skipped(self, state: PartitionState, offset: int) -> None:
        """Count the offsets that the reset policy skips after the position was out of range. Log
        how many are skipped, or read again. `offset`: the new position."""
        count = offset - state.lost_at
        if count > 0:
            self._meter.skipped(state.tp.topic, count)
            effect = f"{count} offsets are skipped"
        else:
            effect = f"the last {-count} offsets are read again" if count else "nothing is skipped"
        # Log only the first reset as a WARNING: repeated resets count as a stall of the partition,
        # which is logged elsewhere.
        state.retry.resets += 1
        self._log.log(
            logging.WARNING if state.retry.resets == 1 and count else logging.DEBUG,
            "%s: offset %d is out of range, reset to %d: %s",
            state.tp,
            state.lost_at,
            offset,
            effect,
        )

    def _spec_of(self, state: PartitionState) -> OffsetSpec:
        """Return the position to request: the beginning for a new partition with the policy
        "latest", else `reset_to`. Called just before the request: later metadata may show that the
        partition is new."""
        spec = state.reset_to
        assert isinstance(spec, OffsetSpec)
        new = self._new_partitions
        if spec is self._policy and new is not None and new.is_new(state.tp):
            self._log.info("%s is new: it is read from its beginning", state.tp)
            return EARLIEST
        return spec

    async def _ask_ends(self, node_id: int, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        """Return the end offsets of the partitions that are looked up by time: if all records of a
        partition are older, its end offset becomes the position. Must be called before the look-up
        by time: a record written between the two requests would be skipped otherwise."""
        timed = {tp: LATEST.timestamp for tp, spec in specs.items() if spec.age is not None}
        return await self.lookup.ask(node_id, timed) if timed else {}

    async def _ask_epochs(self, node_id: int, states: list[PartitionState]) -> list[_Claim]:
        epochs = {state: _identity(state) for state in states if state.phase is Phase.VALIDATING}
        claims: list[_Claim] = []
        queries = {s.tp: EpochQuery(s.cursor.offset_epoch, s.cursor.leader_epoch) for s in epochs}
        found = await self.lookup.ask_epochs(node_id, queries)
        for state, identity in epochs.items():
            if _identity(state) != identity:
                continue
            answer = UnknownError if found is None else found.get(state.tp, UnknownError)
            if found is None or answer is ClusterAuthorizationFailedError:
                # Skip the comparison. The broker is too old for the request; or, before Kafka 2.3,
                # only brokers are authorized to send it.
                state.end_validation()
            elif isinstance(answer, EpochEnd):
                claims += self._compare(state, answer)
            else:
                self._on_refused(state, answer)
        return claims

    # -- responses -----------------------------------------------------------------------------

    def _apply_policy(self, state: PartitionState) -> None:
        """Apply the reset policy to a partition without a committed offset. With the policy "none",
        back off, and make the next call of the application raise NoOffsetForPartitionError."""
        if self._policy is not None:
            state.reset(self._policy)
            return
        tp = state.tp
        self._postpone(state)
        self._queue.report(state, lambda: NoOffsetForPartitionError(tp))

    def _compare(self, state: PartitionState, end: EpochEnd) -> list[_Claim]:
        """Compare the new leader's log with the fetched records, by the end of their epoch (`end`):
        continue, move the position back to where the logs differ, or reset it. If the log is
        truncated below the position, change nothing, and return the response for `_confirm()`."""
        cursor = state.cursor
        # The leader returns the end of the position's epoch or, without a record of this epoch, the
        # end of the last earlier epoch in its log:
        # 1. The end is after all fetched records: the log has these records.
        # 2. The end is unknown, and the leader's own epoch is older than the position's. The broker
        #    may be a former leader that has lost its connection to the other brokers, so request
        #    metadata from others. Or the topic was recreated: if the position is a committed
        #    offset, no change of the topic id shows this.
        # 3. The end is before fetched records, but not before the position: only buffered records
        #    are invalid.
        # 4. The end is before the position: the log no longer has records that were returned.
        # 5. The end is unknown, and no fetched record has the position's epoch: it was the leader's
        #    epoch when the position was set to the end of the log. There is nothing to compare, for
        #    example because record formats before Kafka 0.11 have no epochs.
        is_known = end.end_offset >= 0 and end.leader_epoch >= 0
        if is_known and end.end_offset >= cursor.offset:
            state.end_validation()
        elif not is_known and cursor.offset_epoch > cursor.leader_epoch:
            if self._may_be_former_leader(state):
                self._postpone(state, UnknownLeaderEpoch)
            elif self._policy is not None:
                self._log.warning("%s was created again: its position is reset", state.tp)
                self.begin_again(state)
            else:
                # A look-up of the committed offset would return the same epoch.
                self._on_truncated(state, None)
        elif not is_known and cursor.epochs.before(cursor.offset) < 0:
            state.end_validation()
        elif is_known and end.end_offset >= state.next_offset:
            state.move(state.next_offset, end.leader_epoch)
        else:
            apply = partial(self._on_truncated, state, end if is_known else None)
            return [(state, UnknownLeaderEpoch, apply)]
        return []

    def _on_truncated(self, state: PartitionState, end: EpochEnd | None) -> None:
        """Continue at `end`, where the log differs from the fetched records. If `end` is None
        (unknown), apply the reset policy. With the policy "none", make the next call of the
        application raise LogTruncationError instead."""
        position = state.next_offset
        self._log.warning("%s: log truncated below position %d (KIP-320)", state.tp, position)
        if self._policy is None:
            self._report_truncation(state, None if end is None else end.end_offset)
        elif end is not None:
            # Continue at the offset where the logs differ, so that no record is skipped.
            state.move(end.end_offset, end.leader_epoch)
        else:
            state.lose(self._policy)

    def _may_be_former_leader(self, state: PartitionState) -> bool:
        """Request metadata from other brokers, and return whether to retry, because the broker may
        be a former leader: there are other brokers, and there were not more than
        `_PATIENCE_WITH_OLD_LEADERS` such responses in a row."""
        client = self._client
        client.doubt_metadata(f"{state.tp}: the leader has an older epoch than the position")
        state.retry.note_doubt()
        has_others = len(client.cluster.node_ids) > 1
        return has_others and state.retry.doubts <= _PATIENCE_WITH_OLD_LEADERS

    def _report_truncation(self, state: PartitionState, divergent: int | None) -> None:
        tp, position = state.tp, state.next_offset
        self._postpone(state)
        # Drop the buffered records, which the log no longer has: otherwise they would be returned
        # before the error.
        self._queue.buffer.discard(state)
        self._queue.report(state, lambda: LogTruncationError(tp, position, divergent))

    def _on_refused(self, state: PartitionState, error: type[BrokerResponseError]) -> None:
        """Back off after an error of one partition. If the error is transient, request metadata;
        otherwise make the next call of the application raise it."""
        self._postpone(state, error if is_transient(error) else None)
        self._log.debug("%s: the offset lookup failed with %s", state.tp, error.__name__)
        if is_transient(error):
            why = f"{state.tp}: the offset lookup failed with {error.__name__}"
            if doubts_metadata(error, state.retry.failures):
                self._client.doubt_metadata(why)
            else:
                self._client.request_metadata(why)
            return
        self._queue.report(state, lambda: for_partition(error, state.tp))

    def _on_failure(self, states: list[PartitionState], error: KafkaError) -> None:
        """Back off after a request that failed as a whole, and request metadata. If the error is
        not retriable, make the next call of the application raise it."""
        self._log.debug("Offset lookup failed: %s", error)
        # A KafkaTimeoutError is not reported but retried, although it is not retriable: while a
        # coordinator is unavailable, the calls of the application wait.
        is_reported = not error.retriable and not isinstance(error, KafkaTimeoutError)
        # Drop the traceback, which would keep the frames of the failed call in memory.
        kept = None if is_reported else renewed(error)
        for state in states:
            self._postpone(state, kept)
        if is_reported:
            self._queue.report_all(states, lambda: renewed(error))
        self._client.request_metadata(f"offset lookup failed: {error}")

    def _postpone(
        self, state: PartitionState, error: KafkaError | type[BrokerResponseError] | None = None
    ) -> None:
        """Delay the next request for the partition. `error`: for `health()` and the log; None if a
        call of the application raises the error."""
        client = self._config.client
        now = asyncio.get_running_loop().time()
        state.retry.postpone(now, client.retry_backoff, client.retry_backoff_max, error)
