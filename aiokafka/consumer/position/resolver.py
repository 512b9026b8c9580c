"""Give every assigned partition a position that is in its log, and keep it true to the leader's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._log import SubjectLog
from aiokafka._reading import FoundOffset, Offsets, doubts_metadata, is_passing
from aiokafka.cluster import ClusterMetadata, TopicInfo
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._partition_state import (
    NO_EPOCH,
    PATIENCE_WITH_UNKNOWN,
    PartitionState,
    Phase,
)
from aiokafka.consumer._shared import Signal
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
    UnknownError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    for_partition,
    renewed,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.fetch.fetcher import FetchTargets, OtherTopic
    from aiokafka.consumer.position.committed import OffsetCommitter
    from aiokafka.consumer.subscription_state import Subscription, SubscriptionState

__all__ = ["Newcomers", "OffsetResolver"]


# -- Which partitions came into being while the consumer was already reading their topic. No I/O


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


log = logging.getLogger("aiokafka.consumer.fetcher")

# How often in a row a leader may have an older epoch than the position, before it is believed.
# Brokers that were cut off from the others know of no later leader, but those others do.
_PATIENCE_WITH_OLD_LEADERS = 10

_Ask = Callable[[int, list[PartitionState]], Coroutine[Any, Any, None]]
_Question = Callable[[], Coroutine[Any, Any, None]]


class OffsetResolver:
    """Finds positions: the committed offset, else the reset policy; checks them against new
    leaders.

    A partition that comes with a rebalance gets its position like this:

    1. It is assigned: UNSET. The Fetcher wakes the resolver, and fetches nothing of it.
    2. OffsetFetch asks for the committed offset. While offsets of the partition are in an open
       transaction the coordinator refuses, and the partition alone is asked about again: the offset
       before the transaction would have its records read twice (KIP-447).
    3. There is an offset: it is the position. If its leader epoch is older than the leader's, the
       leader is asked first where that epoch ended (VALIDATING): its log may have been truncated.
    4. There is none: RESETTING, by the policy. ListOffsets asks the leader. A partition that is
       newer than the consumer is read from its beginning by "latest" as well.
    5. The position is known: READY. The Fetcher asks for records.

    The application may call `seek()`, or the group revoke the partition, while a request is out.
    Both raise the partition's `epoch`, and a response to what was asked before is dropped. So a
    position is written only while it is unset or being validated, and for the epoch it was asked
    for. Brokers are asked side by side, so that a slow one holds up its own partitions only; each
    failure backs off by partition.

    Owns: which partitions are being asked about; which are new (`Newcomers`).
    """

    def __init__(
        self,
        shared: Shared,
        tasks: TaskOwner,
        targets: FetchTargets,
        committer: OffsetCommitter | None,
    ) -> None:
        config = shared.config
        self.lookup = OffsetLookup(shared.client, config, shared.old_epochs)
        self._client = shared.client
        self._config = config
        self._desk = shared.desk
        self._meter = shared.meter
        self._subscriptions = shared.subscriptions
        self._log = SubjectLog(log, config.subject)
        self._tasks = tasks
        self._targets = targets
        self._committer = committer
        policy = OffsetSpec.from_policy(config.auto_offset_reset, config.reset_duration)
        # An object of its own: `seek_to_end()` means the end, by whatever policy.
        self._policy = None if policy is None else OffsetSpec(*policy)
        self._policy_of_losses = policy
        self._newcomers: Newcomers | None = None
        if policy == LATEST:
            self._newcomers = Newcomers(shared.subscriptions, config.client.metadata_max_age)
            shared.client.cluster.add_listener(self._newcomers.look)
        self._signal = Signal()
        self._is_woken = False
        self._asked: set[PartitionState] = set()

    def wake(self) -> None:
        """Look again: a partition may need an offset."""
        self._is_woken = True
        self._signal.notify()

    async def run(self) -> None:
        """Resolve whatever needs it, until cancelled."""
        while True:
            # `wake()` may be called while `_dispatch` runs, as it changes partitions, when nothing
            # waits for the signal yet.
            self._is_woken = False
            self._dispatch(asyncio.get_running_loop().time())
            if not self._is_woken:
                await self._signal.wait(self._next_retry())

    @property
    def is_looking(self) -> bool:
        """Whether a partition with a leader has no position yet, and no attempt to find it has
        failed."""
        return any(
            state.needs_offset and not state.retry.failures and state.home.node_id is not None
            for state in self._subscriptions.assignment.states()
        )

    def look_for_newcomers(self) -> None:
        """Note which partitions are new, for the policy "latest": the assignment or the metadata
        changed."""
        if self._newcomers is not None:
            self._newcomers.look(self._client.cluster)

    # -- positions that turn out to be wrong -------------------------------------------------------

    def on_other_topic(self, other: OtherTopic) -> None:
        """Reset the positions in a topic that was deleted and created again; go back to those in a
        topic that was seen before.

        1. A topic is created again. All but one of the brokers say so, and positions are reset.
        2. That one is asked. As far as it knows the former topic is there, and it may lead it.
        3. The others are asked. Read on from the position in the former topic, the new one would
           lack records, or have them returned twice. So each topic has a position of its own.

        Of a partition that nothing was fetched of, the position may be one in the new topic: the
        coordinator and the leaders were asked by name, and know more than the metadata of before.
        It is looked up once more.
        """
        topic, outdated = other.name, []
        for state in self._subscriptions.assignment.states():
            if state.tp.topic != topic:
                continue
            if not state.change_topic(other.now, other.is_new) and not state.is_unset:
                outdated.append(state)
        if not other.is_new:
            text = "Another topic by the name %s is shown, which was seen before"
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
        """Read a partition from its beginning: another topic has the name now. Positions in the old
        one mean nothing in it, and all that it holds is still to be read."""
        state.reset(None if self._policy is None else EARLIEST)

    def on_out_of_range(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Find another position by the reset policy, or report `failure` if there is none: the
        position is not in the log."""
        client = self._config.client
        now = asyncio.get_running_loop().time()
        if self._policy is None:
            # The application gets the error, and has to seek. The next look finds nothing else
            # before that.
            state.retry.wait_until(now + client.retry_backoff_max)
            self._desk.report(state, failure)
            return
        self._log.debug("%s: offset %s is out of range", state.tp, state.cursor.offset)
        # By this object newcomers do not count: what there was to read is known not to be there.
        state.lose(self._policy_of_losses)
        state.retry.lose(now, client.retry_backoff, client.retry_backoff_max)

    # -- who is to be asked what -------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        """Start one request for each broker and kind of question."""
        due = [state for state in self._waiting() if state.retry.at <= now]
        self._keep_newcomers(due)
        unset = [state for state in due if state.phase is Phase.UNSET]
        # One request for all of them: the coordinator is one broker, unlike the leaders below.
        if unset and self._committer is not None:
            self._start(partial(self._ask_committed, unset), unset, "committed-offsets")
        else:
            for state in unset:
                self._apply_policy(state)
        self._ask_leaders(due, Phase.RESETTING, self._ask_offsets, "ListOffsets")
        self._ask_leaders(due, Phase.VALIDATING, self._ask_epochs, "OffsetForLeaderEpoch")

    def _keep_newcomers(self, waiting: Iterable[PartitionState]) -> None:
        newcomers = self._newcomers
        if newcomers is not None:
            for state in waiting:
                newcomers.keep(state.tp)

    def _waiting(self) -> list[PartitionState]:
        states = self._subscriptions.assignment.states()
        return [state for state in states if state.needs_offset and state not in self._asked]

    def _next_retry(self) -> float | None:
        # Partitions without a leader are tried again when metadata changes: `route()` touches them.
        placed = [state for state in self._waiting() if state.home.node_id is not None]
        now = asyncio.get_running_loop().time()
        return min((s.retry.at for s in placed if s.retry.at > now), default=None)

    def _ask_leaders(
        self, due: Iterable[PartitionState], phase: Phase, ask: _Ask, request: str
    ) -> None:
        homes: dict[int, list[PartitionState]] = {}
        cluster, assignment = self._client.cluster, self._subscriptions.assignment
        for state in due:
            if state.phase is not phase:
                continue
            if assignment.is_foreign(state.tp.topic, cluster):
                # Its leader is asked by name, and would tell of the log of the other topic.
                text = f"{state.tp}: the group has assigned another topic"
                self._postpone(state, UnknownTopicId(text))
                self._client.doubt_metadata(text)
            else:
                leader = cluster.leader_for_partition(state.tp)
                if leader is not None and leader >= 0:
                    homes.setdefault(leader, []).append(state)
        for node_id, states in homes.items():
            question = partial(self._ask_node, node_id, partial(ask, node_id, states), request)
            self._start(question, states, f"{request}-{node_id}")

    async def _ask_node(self, node_id: int, ask: _Question, request: str) -> None:
        contact = self._targets.contact_of(node_id)
        if contact is None:
            await ask()
            return
        with contact.asked(request):
            try:
                await ask()
            except KafkaError as error:
                contact.note(error)
                raise
        # A fetch may never tell: no records are asked for of a partition that is paused.
        contact.succeed()

    def _start(self, ask: _Question, states: list[PartitionState], name: str) -> None:
        self._asked.update(states)
        now = asyncio.get_running_loop().time()
        for state in states:
            state.retry.begin(now)
        self._tasks.start(self._finish(ask, states), name=name)

    async def _finish(self, ask: _Question, states: list[PartitionState]) -> None:
        """Await one question; its partitions may be asked about again, whatever its result."""
        try:
            # The task begins a turn later. What needs nothing any more costs no request.
            if any(state.needs_offset for state in states):
                await ask()
        except KafkaError as error:
            self._on_failure(states, error)
        finally:
            # However it ended. A partition that was sought or moved meanwhile takes nothing from
            # the response, and may need another one at once, so look again.
            self._asked.difference_update(states)
            self._desk.positions.notify()
            self.wake()

    # -- the questions -----------------------------------------------------------------------------

    # Each looks first which of its partitions still need a position: between the start of its task
    # and this first step the application may have sought elsewhere.

    async def _ask_committed(self, states: list[PartitionState]) -> None:
        assert self._committer is not None
        epochs = {state: state.epoch for state in states if state.phase is Phase.UNSET}
        if not epochs:
            return

        def blame(error: KafkaError) -> None:
            now = asyncio.get_running_loop().time()
            again_at = now + self._config.client.retry_backoff_max
            for state, epoch in epochs.items():
                if state.epoch == epoch:
                    state.retry.blame(now, renewed(error), again_at)

        found, refused = await self._committer.fetch_each([state.tp for state in epochs], blame)
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
        """Return whether the coordinator calls a partition with a leader unknown so often that it
        has no committed offset."""
        if not isinstance(error, UnknownTopicOrPartitionError) or state.home.node_id is None:
            return False
        state.retry.note_doubt()
        return state.retry.doubts > PATIENCE_WITH_UNKNOWN

    async def _ask_offsets(self, node_id: int, states: list[PartitionState]) -> None:
        epochs = {state: state.epoch for state in states if state.phase is Phase.RESETTING}
        specs = {state.tp: self._spec_of(state) for state in epochs}
        ends = await self._ask_ends(node_id, specs)
        found = await self.lookup.ask(node_id, {tp: s.timestamp_now() for tp, s in specs.items()})
        was_reset: list[TopicPartition] = []
        for state, epoch in epochs.items():
            answer = found.get(state.tp, UnknownError)
            if isinstance(answer, FoundOffset) and answer.offset < 0:
                # Nothing as young as asked for: what comes next is (KIP-1106).
                answer = ends.get(state.tp, answer)
            if state.epoch != epoch or state.phase is not Phase.RESETTING:
                continue
            if not isinstance(answer, FoundOffset):
                self._on_refused(state, answer)
            elif answer.offset >= 0:
                is_end = specs[state.tp] == LATEST or answer is ends.get(state.tp)
                if state.lost_at >= 0:
                    self._note_skipped(state, answer.offset)
                state.move(answer.offset, NO_EPOCH if is_end else answer.leader_epoch)
                if is_end:
                    state.cursor.start_at_end(answer.leader_epoch)
                self._log.debug("%s: position reset to %d", state.tp, answer.offset)
                was_reset.append(state.tp)
            else:
                self._on_refused(state, UnknownError)
        if was_reset:
            self._log.info("Positions set by the reset policy: %s", some_names(was_reset))

    def _note_skipped(self, state: PartitionState, offset: int) -> None:
        """Count and log what the reset policy skips, or has read again, because the log does not
        have the position any more."""
        count = offset - state.lost_at
        if count > 0:
            self._meter.skipped(state.tp.topic, count)
            effect = f"{count} offsets are skipped"
        else:
            effect = f"the last {-count} offsets are read again" if count else "nothing is skipped"
        # Once: what follows without a successful fetch is logged as a stall.
        self._log.log(
            logging.WARNING if state.retry.losses <= 1 and count else logging.DEBUG,
            "%s: offset %d is out of range, reset to %d: %s",
            state.tp,
            state.lost_at,
            offset,
            effect,
        )

    def _spec_of(self, state: PartitionState) -> OffsetSpec:
        """Return what to ask for. That a partition is new is not known before it is there, so not
        before now."""
        spec = state.reset_to
        assert isinstance(spec, OffsetSpec)
        newcomers = self._newcomers
        if spec is self._policy and newcomers is not None and newcomers.is_new(state.tp):
            self._log.info("%s is new: it is read from its beginning", state.tp)
            return EARLIEST
        return spec

    async def _ask_ends(self, node_id: int, specs: Mapping[TopicPartition, OffsetSpec]) -> Offsets:
        """Return the ends of those logs in which a time is to be found. They are asked for first:
        what is written between the two questions must not be missed by both."""
        timed = {tp: LATEST.timestamp for tp, spec in specs.items() if spec.age is not None}
        return await self.lookup.ask(node_id, timed) if timed else {}

    async def _ask_epochs(self, node_id: int, states: list[PartitionState]) -> None:
        epochs = {
            # A seek raises the first, another leader brings the second: then the response is to
            # another question.
            state: (state.epoch, state.cursor.leader_epoch, state.cursor.offset)
            for state in states
            if state.phase is Phase.VALIDATING
        }
        queries = {s.tp: EpochQuery(s.cursor.offset_epoch, s.cursor.leader_epoch) for s in epochs}
        found = await self.lookup.ask_epochs(node_id, queries)
        for state, epoch in epochs.items():
            is_same = epoch == (state.epoch, state.cursor.leader_epoch, state.cursor.offset)
            if not is_same or state.phase is not Phase.VALIDATING:
                continue
            answer = UnknownError if found is None else found.get(state.tp, UnknownError)
            if found is None or answer is ClusterAuthorizationFailedError:
                # Too old to know; or, before Kafka 2.3, it may tell only other brokers.
                state.end_validation()
            elif isinstance(answer, EpochEnd):
                self._compare(state, answer)
            else:
                self._on_refused(state, answer)

    # -- the responses -----------------------------------------------------------------------------

    def _apply_policy(self, state: PartitionState) -> None:
        """Begin the search by the reset policy, as there is no committed offset; report it if there
        is no policy."""
        if self._policy is not None:
            state.reset(self._policy)
            return
        tp = state.tp
        self._postpone(state)
        self._desk.report(state, lambda: NoOffsetForPartitionError(tp))

    def _compare(self, state: PartitionState, end: EpochEnd) -> None:
        """Compare the new leader's log with what was fetched. It has all of it, or was truncated
        below the position."""
        cursor = state.cursor
        # The leader says where our epoch, or the last one before it that it knows, ends in its log:
        # 1. Behind all that was fetched: its log has that, and goes on.
        # 2. Nowhere, and the leader's own epoch is older than ours. It may lead no more, and was
        #    cut off before it could hear of that: other brokers are asked who leads. Or the topic
        #    is another one. Its id tells that as well, but not that an offset was committed before.
        # 3. Before what was fetched, but not before what was returned: only the buffer is void.
        # 4. Before the position: records that the application got are not in the log any more.
        # 5. Nowhere, and the epoch is that of a leader, at the end of its log, and of no known
        #    record: those have none (formats before Kafka 0.11). There is nothing to compare.
        is_known = end.end_offset >= 0 and end.leader_epoch >= 0
        if is_known and end.end_offset >= cursor.offset:
            state.end_validation()
            return
        position = state.next_offset
        if not is_known and cursor.offset_epoch > cursor.leader_epoch:
            if self._may_be_cut_off(state):
                self._postpone(state, UnknownLeaderEpoch)
                return
            if self._policy is not None:
                self._log.warning("%s was created again: its position is reset", state.tp)
                self.begin_again(state)
                return
            # No search: the committed offset would be found again, and lead here, without end.
        elif not is_known and cursor.epochs.before(cursor.offset) < 0:
            state.end_validation()
            return
        if is_known and end.end_offset >= position:
            # Only data buffered ahead is gone.
            state.move(position, end.leader_epoch)
            return
        self._log.warning("%s: log truncated below position %d (KIP-320)", state.tp, position)
        if self._policy is None:
            self._report_truncation(state, end.end_offset if is_known else None)
        elif is_known:
            # With a policy the application has agreed to go on. Where the logs part, nothing is
            # skipped.
            state.move(end.end_offset, end.leader_epoch)
        else:
            state.lose(self._policy)

    def _may_be_cut_off(self, state: PartitionState) -> bool:
        """Return whether to ask another time, as the leader may be one of before; ask other brokers
        who leads."""
        client = self._client
        client.doubt_metadata(f"{state.tp}: the leader has an older epoch than the position")
        state.retry.note_doubt()
        has_others = len(client.cluster.node_ids) > 1
        return has_others and state.retry.doubts <= _PATIENCE_WITH_OLD_LEADERS

    def _report_truncation(self, state: PartitionState, divergent: int | None) -> None:
        tp, position = state.tp, state.next_offset
        self._postpone(state)
        # The records behind the position are of the log that was cut, and would be returned before
        # the error.
        self._desk.buffer.discard(state)
        self._desk.report(state, lambda: LogTruncationError(tp, position, divergent))

    def _on_refused(self, state: PartitionState, error: type[BrokerResponseError]) -> None:
        """Back off after an error of one partition; report it if no retry mends it."""
        self._postpone(state, error if is_passing(error) else None)
        self._log.debug("%s: offset lookup answered %s", state.tp, error.__name__)
        if is_passing(error):
            why = f"{state.tp}: offset lookup answered {error.__name__}"
            if doubts_metadata(error, state.retry.failures):
                self._client.doubt_metadata(why)
            else:
                self._client.request_metadata(why)
            return
        self._desk.report(state, lambda: for_partition(error, state.tp))

    def _on_failure(self, states: list[PartitionState], error: KafkaError) -> None:
        """Back off after a request without a response; report the error if no retry mends it."""
        self._log.debug("Offset lookup failed: %s", error)
        # A group's coordinator that is away for so long comes back, too: readers wait for it.
        is_reported = not error.retriable and not isinstance(error, KafkaTimeoutError)
        # Without the traceback, which would keep the callers of the failed call in memory.
        kept = None if is_reported else renewed(error)
        for state in states:
            self._postpone(state, kept)
        if is_reported:
            self._desk.report_all(states, lambda: renewed(error))
        self._client.request_metadata(f"offset lookup failed: {error}")

    def _postpone(
        self, state: PartitionState, error: KafkaError | type[BrokerResponseError] | None = None
    ) -> None:
        """Delay the next request for the partition. `error`: unless the application gets it."""
        client = self._config.client
        now = asyncio.get_running_loop().time()
        state.retry.postpone(now, client.retry_backoff, client.retry_backoff_max, error)
