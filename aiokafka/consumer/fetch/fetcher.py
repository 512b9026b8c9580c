"""FetchTargets: the broker that each partition is fetched from (the leader or a preferred read
replica). Fetcher: runs one NodeFetcher for each of these brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from aiokafka._health import NodeHealth, Outage, broker_health
from aiokafka._log import SubjectLog
from aiokafka._tasks import together
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._context import refuse_reading, running_callback
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.fetch.buffer import Wanted
from aiokafka.consumer.fetch.node import NodeFetcher
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.position.resolver import OffsetResolver

__all__ = ["ChangedTopic", "FetchTargets", "Fetcher", "TopicIds"]

log = logging.getLogger("aiokafka.consumer.fetcher")

# Number of topics whose ids are kept although no partition is assigned any more. If a rebalance
# soon assigns a partition of the topic again, the ids still distinguish a recreated topic from
# outdated metadata (`ChangedTopic.is_new`).
_MOST_FORMER_TOPICS = 1000

# Number of metadata snapshots without a leader after which a warning is logged. Several snapshots
# may arrive in a second.
_MISSES_BEFORE_WARNING = 5

# Seconds for which fetches request no preferred replica after a replica has failed: otherwise the
# leader would return the failed replica again.
_LEADERS_ONLY = 30.0


class ChangedTopic:
    """A subscribed topic whose id in the metadata has changed."""

    __slots__ = ("is_new", "name", "now")

    def __init__(self, name: str, now: bytes, is_new: bool) -> None:
        self.name = name
        self.now = now
        self.is_new = is_new
        """True: the id was never seen before, so the topic was deleted and created again. False: a
        broker with outdated metadata has returned the id of the deleted topic, or later metadata
        has the id of the new topic again."""


class TopicIds:
    """The ids of the topics with assigned partitions (KIP-516).

    Owns: the id of each topic in use (with assigned partitions), and all ids seen for these topics
    and for the last thousand topics that are no longer in use.

    If the group assigns topics by id (KIP-848), these ids take precedence over metadata: the
    metadata may have another topic of the same name, which may be assigned to another member.
    """

    def __init__(self) -> None:
        self.current: dict[str, bytes] = {}
        self._used: set[str] = set()
        # All known ids by topic name; the current id is the last. The topics are in the order of
        # their last use.
        self._seen: dict[str, dict[bytes, None]] = {}

    def update(
        self, topics: Iterable[str], assigned: Mapping[str, bytes], cluster: ClusterMetadata
    ) -> Iterator[ChangedTopic]:
        """Update the ids of `topics`: from `assigned` (by the group) if present there, else from
        the metadata. Yield the topics in use whose id has changed in the metadata."""
        names = dict.fromkeys(topics)
        found = ((name, assigned.get(name) or cluster.topic_id(name)) for name in names)
        self.current = {name: topic_id for name, topic_id in found if topic_id is not None}
        before = self._used
        self._used = {name for name in names if name in before or name in self.current}
        for name, topic_id in self.current.items():
            seen = self._seen.pop(name, None) or {topic_id: None}
            self._seen[name] = seen
            last, is_new = next(reversed(seen)), topic_id not in seen
            seen.pop(topic_id, None)
            seen[topic_id] = None
            # Report no change of a topic that was not in use before: it has no positions in the
            # former topic, and a `seek()` of the application was for the present topic.
            if topic_id != last and name in before and name not in assigned:
                yield ChangedTopic(name, topic_id, is_new)
        for name in list(self._seen)[: -(len(self.current) + _MOST_FORMER_TOPICS)]:
            del self._seen[name]


class _Leaderless:
    """A partition without a leader: `since` (loop time), and `misses`, the number of metadata
    snapshots without a leader."""

    __slots__ = ("is_confirmed", "misses", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.misses = 0
        self.is_confirmed = False
        """Whether the metadata has the topic, or an error for the topic."""


class FetchTargets:
    """Decides which broker each partition is fetched from: the leader, or the preferred read
    replica that the leader has returned (KIP-392).

    Owns: the FetchTarget of each partition, the partitions without a leader, the health of each
    target broker, and the time until which no preferred replica is requested. `update()` only
    changes a target and returns the previous broker; the Fetcher notifies the NodeFetchers.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self.leaders_only_until = 0.0
        """Loop time until which fetches do not request a preferred replica."""
        self._client = context.client
        self._config = context.config
        self._subscriptions = context.subscriptions
        self._health = context.health
        self._log = SubjectLog(log, context.config.subject)
        self._node_healths: dict[int, NodeHealth] = {}
        self._leaderless: dict[TopicPartition, _Leaderless] = {}

    # -- targets -----------------------------------------------------------------------------------

    def update(self, state: PartitionState) -> int | None:
        """Set the partition's target to its preferred replica, if that is still valid, else to the
        leader in the metadata. Return the node id of the previous target (None = none).

        Begin to validate the position if the leader epoch has changed (`_on_leader_epoch()`).
        Without a leader, request metadata.
        """
        target = state.target
        cluster = self._client.cluster
        leader, epoch = cluster.leader_for_partition(state.tp), cluster.leader_epoch(state.tp)
        # If the metadata has another topic of this name, ignore its leader epoch, which belongs to
        # another log.
        is_foreign = self._subscriptions.assignment.is_foreign(state.tp.topic, cluster)
        if leader is not None and leader >= 0 and not is_foreign:
            self._on_leader_epoch(state, epoch)
        if target.preferred is not None and (
            target.preferred_until <= _now() or cluster.broker_metadata(target.preferred) is None
        ):
            # The preferred read replica has expired, or has left the cluster. Fetch from the
            # leader, which may return another replica.
            target.preferred = None
        node_id = leader if target.preferred is None else target.preferred
        if node_id is None or node_id < 0:
            node_id = None
            self._on_no_leader(state.tp)
        else:
            self._leaderless.pop(state.tp, None)
        before, target.node_id = target.node_id, node_id
        if node_id not in (None, before) and state.phase is Phase.OUT_OF_RANGE:
            state.end_validation()  # the position may be in the log of the new leader
        if epoch < 0 and node_id not in (None, before):
            # Do not back off before a fetch from a new leader. Before Kafka 2.1 there are no leader
            # epochs, so a new leader shows by its node id only.
            state.retry.end_wait()
        return before

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Use the replica that the leader has returned, from the next `update()` on, for
        `metadata_max_age_ms`. If the replica is not in the metadata, request metadata and use the
        leader."""
        if self._client.cluster.broker_metadata(node_id) is None:
            self._client.request_metadata(f"{state.tp}: replica {node_id} is not known")
            self.refuse_replica(state)
            return
        state.target.preferred = node_id
        state.target.preferred_until = _now() + self._config.client.metadata_max_age

    def refuse_replica(self, state: PartitionState) -> None:
        """Fetch the partition from its leader from the next `update()` on, because its preferred
        replica cannot be used. For `_LEADERS_ONLY` seconds, send all fetches without the client's
        rack, so that leaders return no preferred replica (KIP-392)."""
        self.leaders_only_until = _now() + _LEADERS_ONLY
        state.target.preferred = None

    def _on_leader_epoch(self, state: PartitionState, epoch: int) -> None:
        """Store a changed leader epoch, and begin to validate the position (KIP-320) if the epoch
        differs from the epoch of the record before the position (conditions below). The new epoch
        may be older: the topic was recreated, or the metadata is outdated."""
        cursor = state.cursor
        if epoch == cursor.leader_epoch:
            return
        if epoch < 0:
            # The metadata no longer has an epoch. Send no epoch in fetches from now on: the leader
            # rejects an outdated epoch.
            cursor.follow_leader(epoch)
            return
        is_newer = epoch > cursor.leader_epoch
        is_of_another = 0 <= cursor.offset_epoch != epoch
        if is_newer:
            state.retry.end_wait()  # the previous leader has caused the failure
        # Validate the position in these cases:
        # 1. The partition is READY or OUT_OF_RANGE, and the record before the position has an older
        #    epoch: the new leader may have truncated that record, or never have replicated it.
        # 2. The partition is READY or OUT_OF_RANGE, and that record has a newer epoch: the topic
        #    was recreated, or the metadata is outdated. The validation finds out which. The record
        #    before a committed offset may also have a newer epoch than the first known leader.
        # 3. The partition is VALIDATING, and the leader has changed again: repeat the validation,
        #    because the response of the previous leader is ignored.
        # Otherwise only store the leader epoch: the record's epoch is unknown (-1) or equals the
        # leader's, the position is unknown, or the partition stays VALIDATING (older leader epoch).
        may_begin = state.phase in (Phase.READY, Phase.OUT_OF_RANGE)
        if (may_begin and is_of_another) or (state.phase is Phase.VALIDATING and is_newer):
            state.begin_validation(epoch)
        else:
            cursor.follow_leader(epoch)

    # -- partitions without a leader ---------------------------------------------------------------

    def _on_no_leader(self, tp: TopicPartition) -> None:
        self._client.look_for_leader(tp, f"leader of {tp} unknown")
        absence = self._leaderless.get(tp)
        if absence is None:
            absence = self._leaderless[tp] = _Leaderless(_now())
        absence.misses += 1
        cluster = self._client.cluster
        # Before the first metadata response with the topic, its leaders are always unknown.
        if cluster.known_partitions(tp.topic) is not None or cluster.topic_error(tp.topic):
            absence.is_confirmed = True

    def review_leaderless(self) -> None:
        """Stop tracking revoked partitions. Log one warning about each partition that has had no
        leader in five metadata snapshots."""
        for tp in self._leaderless.keys() - self._subscriptions.assignment.tps:
            del self._leaderless[tp]
        lasting = [tp for tp, a in self._leaderless.items() if a.misses == _MISSES_BEFORE_WARNING]
        if lasting:
            self._log.warning(
                "No leader, or no such partition: %s cannot be read", self.names(lasting)
            )

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        """Assigned partitions without a leader, except partitions of topics that were in no
        metadata response yet."""
        return [tp for tp, absence in self._leaderless.items() if absence.is_confirmed]

    def names(self, partitions: Collection[TopicPartition]) -> str:
        """Return the names of the first of these partitions, for a message. If a topic does not
        have one of the partitions, add how many partitions it has."""
        counts = []
        for topic in sorted({tp.topic for tp in partitions}):
            known = self._client.cluster.known_partitions(topic)
            if known is not None and any(
                tp.topic == topic and tp.partition not in known for tp in partitions
            ):
                counts.append(f"{topic} has {len(known)} partition{'s' * (len(known) != 1)}")
        return some_names(partitions) + (f" ({', '.join(counts)})" if counts else "")

    # -- health of brokers -------------------------------------------------------------------------

    def track_node(self, node_id: int) -> NodeHealth:
        """Start to track the health of a broker that has become a target."""
        node_health = broker_health(self._client, node_id, self._log, self._health.look)
        self._node_healths[node_id] = node_health
        return node_health

    def untrack_node(self, node_id: int) -> NodeHealth:
        """Stop tracking a broker that is no longer a target."""
        return self._node_healths.pop(node_id)

    def node_healths(self) -> list[NodeHealth]:
        """Return the health of all targets."""
        return list(self._node_healths.values())

    def health_of(self, node_id: int) -> NodeHealth | None:
        """Return the health of one broker; None if it is not a target."""
        return self._node_healths.get(node_id)

    def outages(self, now: float) -> dict[int, Outage]:
        """Return the outages of target brokers at `now` (loop time). The keys are the node ids."""
        found = {}
        for node_id, node_health in list(self._node_healths.items()):
            if (outage := node_health.outage(now)) is not None:
                found[node_id] = outage
        return found

    def throttles(self, now: float) -> dict[int, Outage]:
        """Return the waits for target brokers that throttle this client (`NodeHealth.throttle`).
        The keys are the node ids."""
        found = {}
        for node_id, node_health in list(self._node_healths.items()):
            if (throttle := node_health.throttle(now)) is not None:
                found[node_id] = throttle
        return found

    def silent_since(self, state: PartitionState, outages: Mapping[int, Outage]) -> float | None:
        """Return the loop time since which the partition has no leader, or its broker has an
        outage; None without either, and before the first metadata response with the topic.
        `outages`: the result of `outages()`."""
        if state.tp in self._leaderless:
            absence = self._leaderless[state.tp]
            return absence.since if absence.is_confirmed else None
        outage = outages.get(state.target.node_id) if state.target.node_id is not None else None
        return None if outage is None else outage.since


def _now() -> float:
    return asyncio.get_running_loop().time()


class Fetcher:
    """Runs a NodeFetcher for each broker that is the target of a partition.

    Owns: the NodeFetchers, their share of the buffer memory, and the topic ids. `route()` is called
    after changes of the assignment and of the metadata, `touch()` after a change of one partition.
    """

    def __init__(
        self,
        context: ConsumerContext,
        tasks: TaskOwner,
        targets: FetchTargets,
        resolver: OffsetResolver,
    ) -> None:
        self.targets = targets
        self.resolver = resolver
        self.topic_ids = TopicIds()
        self.share = context.config.fetch_buffer_memory
        """Bytes of one broker's responses that may be in memory: `fetch_buffer_memory`, divided by
        the number of brokers."""
        self.is_running = False
        self._context = context
        self._queue = context.queue
        self._buffer = context.queue.buffer
        self._tasks = tasks
        self._subscriptions = context.subscriptions
        self._nodes: dict[int, NodeFetcher] = {}

    def start(self) -> None:
        """Fetch the partitions of this and later assignments, from the next `route()` on."""
        self.is_running = True
        self._subscriptions.watch(self)

    async def close(self) -> None:
        """Drop all buffered records, and close the fetch sessions at the brokers. Called after the
        end of the tasks."""
        self.is_running = False
        # Report returned records to the metrics collector a last time.
        for state in self._subscriptions.assignment.states():
            self._context.meter.settle(state)
        self._subscriptions.watch(None)
        self._queue.close()
        nodes, self._nodes = self._nodes, {}
        for node_id in nodes:
            self.targets.untrack_node(node_id)
        await together(node.close() for node in nodes.values())

    def await_records(self, wanted: Wanted) -> None:
        """Fetch for a reader that is about to wait for records of these partitions (None = all).

        Raises IllegalStateError in a rebalance listener, in `on_consume` and in a deserializer: no
        records are returned until this callback has returned.
        """
        if self._buffer.is_calling or running_callback.get() is not None:
            refuse_reading(self._queue, self._buffer.is_calling)
        # A reader that waits for more records has finished the earlier records. A rebalance may
        # wait for that.
        if self._queue.polls.waiters:
            self._queue.polls.notify()
        self.on_waiting_reader(wanted)

    def on_waiting_reader(self, wanted: Wanted) -> None:
        """Make all NodeFetchers decide again whether to fetch, for a reader that waits for records
        of these partitions (None = all). Do nothing if the last waiting reader waited for the same
        partitions, and no records have arrived since."""
        buffer = self._buffer
        if not buffer.is_awaited or buffer.awaited != wanted:
            buffer.await_records(wanted)
            for node in self._nodes.values():
                node.wake()

    # -- partitions and brokers --------------------------------------------------------------------

    def route(self) -> None:
        """Update the fetch target of every assigned partition, and start and end NodeFetchers,
        after a change of the assignment or of the metadata. Before `start()`, only make the
        resolver look for partitions that were created after the subscription."""
        self.resolver.update_new_partitions()
        if not self.is_running:
            return
        # Update topic ids first: a position in a deleted topic must not be fetched from the new
        # topic with the same name.
        self._follow_topic_ids()
        states = self._subscriptions.assignment.states()
        for state in states:
            self._retarget(state)
            self.touch(state)
        if self._context.meter.topics:
            self._context.meter.keep_topics(
                self._subscriptions.topics.union(state.tp.topic for state in states)
            )
        used = {state.target.node_id for state in states}
        for node_id in [node_id for node_id in self._nodes if node_id not in used]:
            self._retire(node_id)
        self.targets.review_leaderless()

    def touch(self, state: PartitionState) -> None:
        """Notify the RecordQueue, the metrics, the OffsetResolver and the NodeFetcher of a change
        of the partition: of its position, its phase, or whether it may be fetched."""
        self._queue.touch(state)
        self._context.meter.settle(state)
        if state.needs_offset:
            self.resolver.wake()
        self._touch_node(state)

    def on_withheld(self, state: PartitionState) -> None:
        """Notify the NodeFetcher that `is_withheld` of the partition has changed, by `pause()`,
        `resume()` or a change of the subscription. If records of the partition may be returned
        again, wake its readers."""
        if not state.is_withheld:
            self._queue.wake_readers_of(state)
        # Copied from `_touch_node()` to save a call, because some applications pause and resume a
        # partition for each record.
        node_id = state.target.node_id
        if node_id is not None and node_id in self._nodes:
            self._nodes[node_id].touch(state)

    def on_read(self, state: PartitionState) -> None:
        """Fetch the partition again, because a record set was read to its end. Report the returned
        records to the metrics collector, if there is one."""
        if self._context.meter.collector is not None:
            self._context.meter.settle(state)
        self._touch_node(state)

    def _touch_node(self, state: PartitionState) -> None:
        node_id = state.target.node_id
        if node_id is not None and node_id in self._nodes:
            self._nodes[node_id].touch(state)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the returned records of these partitions to the metrics collector, if there is
        one."""
        if self._context.meter.collector is None:
            return
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            if state is not None:
                self._context.meter.settle(state)

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Fetch a partition from the preferred replica that its leader has returned (KIP-392)."""
        self.targets.prefer_replica(state, node_id)
        self._retarget(state)
        self._touch_node(state)

    def refuse_replica(self, state: PartitionState) -> None:
        """Fetch a partition from its leader, because the preferred replica has failed."""
        self.targets.refuse_replica(state)
        self._retarget(state)
        self._touch_node(state)

    def _retarget(self, state: PartitionState) -> None:
        """Update the fetch target of a partition. Notify the NodeFetcher of the previous target,
        and start a NodeFetcher for a new broker. The caller notifies the present NodeFetcher."""
        before = self.targets.update(state)
        node_id = state.target.node_id
        if before != node_id and before is not None and before in self._nodes:
            # The next request to the previous broker omits the partition. A response in flight is
            # still valid: the records are the same.
            self._nodes[before].touch(state)
        if node_id is not None and node_id not in self._nodes:
            node_health = self.targets.track_node(node_id)
            node = self._nodes[node_id] = NodeFetcher(node_id, self._context, self, node_health)
            self._divide_memory()
            self._tasks.start(node.run(), name=f"fetch-{node_id}")

    def _retire(self, node_id: int) -> None:
        """End the NodeFetcher of a broker that is no longer a target, and keep its last error for
        `health()`."""
        self._nodes.pop(node_id).retire()
        self._divide_memory()
        node_health = self.targets.untrack_node(node_id)
        if node_health.error is not None and node_health.error_at > self._queue.last_error[0]:
            self._queue.note_error(node_health.error_at, node_health.error)

    def _divide_memory(self) -> None:
        self.share = self._context.config.fetch_buffer_memory // max(1, len(self._nodes))

    def _follow_topic_ids(self) -> None:
        assignment = self._subscriptions.assignment
        topics = [tp.topic for tp in assignment.tps]
        cluster = self._context.client.cluster
        for other in self.topic_ids.update(topics, assignment.topic_ids, cluster):
            self.resolver.on_topic_changed(other)
        current = self.topic_ids.current
        for state in assignment.states():
            state.topic_id = current.get(state.tp.topic, state.topic_id)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of all fetch responses with unread records."""
        return sum(node.pinned for node in list(self._nodes.values()))
