"""Fetch each assigned partition from the right broker: its leader or preferred read replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._health import NodeHealth, Outage, broker_health
from aiokafka._log import SubjectLog
from aiokafka._tasks import together
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._listener_call import refuse_reading
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.fetch.buffer import Wanted
from aiokafka.consumer.fetch.node import NodeFetcher
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.position.resolver import OffsetResolver

__all__ = ["Fetcher", "OtherTopic", "Placement", "TopicIds"]


# -- The ids of the topics that are read, and which of them were deleted and created again


# Topics that were in use before. A partition may be away for the moment of a rebalance only.
_SPARE_TOPICS = 1000


class OtherTopic(NamedTuple):
    """A topic in use whose id in the metadata is another one than before."""

    name: str
    now: bytes
    is_new: bool
    """Whether the id was never seen: the topic was deleted and created again. Otherwise a broker
    that lags behind shows a former topic, or one that does not shows the latest again."""


class TopicIds:
    """Owns: the id of each topic in use, and all ids that it, and those used last, were seen with.

    Where the group assigns by id (KIP-848) a topic has that id, whatever the metadata says: another
    topic of its name may be another member's, and comes with an assignment of its own.
    """

    def __init__(self) -> None:
        self.current: dict[str, bytes] = {}
        self._used: set[str] = set()
        # By topic, those used last at the end: its ids, that of now at the end.
        self._seen: dict[str, dict[bytes, None]] = {}

    def update(
        self, topics: Iterable[str], given: Mapping[str, bytes], cluster: ClusterMetadata
    ) -> Iterator[OtherTopic]:
        """Take the ids of `topics` from the group (`given`), else from a snapshot. Yields each
        topic in use that has another id in the snapshot than before."""
        names = dict.fromkeys(topics)
        found = ((name, given.get(name) or cluster.topic_id(name)) for name in names)
        self.current = {name: topic_id for name, topic_id in found if topic_id is not None}
        before = self._used
        self._used = {name for name in names if name in before or name in self.current}
        for name, topic_id in self.current.items():
            seen = self._seen.pop(name, None) or {topic_id: None}
            self._seen[name] = seen
            last, is_new = next(reversed(seen)), topic_id not in seen
            seen.pop(topic_id, None)
            seen[topic_id] = None
            # What came into use just now has no position of before: one that the application has
            # sought already is in this topic.
            if topic_id != last and name in before and name not in given:
                yield OtherTopic(name, topic_id, is_new)
        for name in list(self._seen)[: -(len(self.current) + _SPARE_TOPICS)]:
            del self._seen[name]


# -- Decide which broker serves which partition, and know whether it answers


# Looks at the metadata, some in a second, that may find no leader before the log says so.
_MISSES_TO_MENTION = 5

# How long leaders are read after a replica named by one of them failed: the leader would name it
# again.
_REPLICA_REST = 30.0

log = logging.getLogger("aiokafka.consumer.fetcher")


class Absence:
    """A partition without a leader: since when (loop time), and how often it was missed."""

    __slots__ = ("is_told", "misses", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.misses = 0
        self.is_told = False
        """Whether a broker has said so; at first no broker was asked yet."""


class Placement:
    """Puts each partition at its leader, or at a closer replica that the leader named (KIP-392).

    Owns: each partition's `home`; the partitions without a leader; a NodeHealth for each broker
    with partitions of ours; until when replicas are not used. Moves nothing itself: `place()` says
    where a partition was before, and the Fetcher tells the NodeFetchers.
    """

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._on_change = shared.on_change
        self._log = SubjectLog(log, shared.config.subject)
        self._contacts: dict[int, NodeHealth] = {}
        self._leaderless: dict[TopicPartition, Absence] = {}
        self._leaders_only_until = 0.0

    # -- places ------------------------------------------------------------------------------------

    def place(self, state: PartitionState) -> int | None:
        """Bring one partition's home up to the metadata; returns where it was before."""
        home = state.home
        cluster = self._client.cluster
        leader, epoch = cluster.leader_for_partition(state.tp), cluster.leader_epoch(state.tp)
        # Epochs of another topic say nothing about the log of this one.
        is_foreign = self._subscriptions.assignment.is_foreign(state.tp.topic, cluster)
        if leader is not None and leader >= 0 and not is_foreign:
            self._note_leader_epoch(state, epoch)
        if home.preferred is not None and (
            home.preferred_until <= _now() or cluster.broker_metadata(home.preferred) is None
        ):
            # It has had its time, or has left the cluster: the leader names another if there is
            # one.
            home.preferred = None
        node_id = leader if home.preferred is None else home.preferred
        if node_id is None or node_id < 0:
            node_id = None
            self._miss_leader(state.tp)
        else:
            self._leaderless.pop(state.tp, None)
        before, home.node_id = home.node_id, node_id
        if epoch < 0 and node_id not in (None, before):
            state.retry.end_wait()  # before Kafka 2.1 nothing else tells of another leader
        return before

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Use a replica that the leader names, with the next `place()`; the leader, if the replica
        is not known."""
        if self._client.cluster.broker_metadata(node_id) is None:
            self._client.request_metadata(f"{state.tp}: replica {node_id} is not known")
            self.refuse_replica(state)
            return
        state.home.preferred = node_id
        state.home.preferred_until = _now() + self._config.client.metadata_max_age

    def refuse_replica(self, state: PartitionState) -> None:
        """Use the leader with the next `place()`, and for a while take no other advice."""
        self._leaders_only_until = _now() + _REPLICA_REST
        state.home.preferred = None

    def rack_id(self) -> str:
        """Return the rack to name to brokers; "" to have leaders serve us themselves."""
        if _now() < self._leaders_only_until:
            return ""
        return self._config.client.client_rack or ""

    def _note_leader_epoch(self, state: PartitionState, epoch: int) -> None:
        """Begin to validate the position if a newer leader took over since it was read (KIP-320),
        or an older one than it was read from: the topic may have been deleted and created again.
        """
        cursor = state.cursor
        if epoch == cursor.leader_epoch:
            return
        if epoch < 0:
            # The metadata no longer names an epoch, and the leader would refuse an outdated one.
            cursor.follow_leader(epoch)
            return
        is_newer = epoch > cursor.leader_epoch
        is_of_another = 0 <= cursor.offset_epoch != epoch
        if is_newer:
            state.retry.end_wait()  # another leader has had it wait
        # What leads to a comparison with the leader's log:
        # 1. READY, and the record before the position was written under an older leader. The new
        #    one may not have it: it was cut off, or never replicated.
        # 2. READY, and that record is from a later epoch than the leader has. Either the topic is
        #    another one, or this snapshot comes from a broker that lags behind: the leader knows.
        #    It may be the first leader that is known, of a position that was committed.
        # 3. VALIDATING, and yet another leader took over: what the last one says is of no use any
        #    more.
        # Otherwise there is nothing to compare. No record was fetched yet (-1), or by this leader;
        # or the position is still being looked up, and will be this leader's.
        if (state.phase is Phase.READY and is_of_another) or (
            state.phase is Phase.VALIDATING and is_newer
        ):
            state.begin_validation(epoch)
        else:
            cursor.follow_leader(epoch)

    # -- partitions without a leader ---------------------------------------------------------------

    def _miss_leader(self, tp: TopicPartition) -> None:
        self._client.look_for_leader(tp, f"leader of {tp} unknown")
        absence = self._leaderless.get(tp)
        if absence is None:
            absence = self._leaderless[tp] = Absence(_now())
        absence.misses += 1
        cluster = self._client.cluster
        # Without either no broker was asked about the topic yet, which is no reason for an alarm.
        if cluster.known_partitions(tp.topic) is not None or cluster.topic_error(tp.topic):
            absence.is_told = True

    def review_absences(self) -> None:
        """Forget partitions that are not ours any more. Log which have no leader, once, if this
        lasts."""
        for tp in self._leaderless.keys() - self._subscriptions.assignment.tps:
            del self._leaderless[tp]
        lasting = [tp for tp, a in self._leaderless.items() if a.misses == _MISSES_TO_MENTION]
        if lasting:
            self._log.warning(
                "No leader, or no such partition: %s cannot be read", self.names(lasting)
            )

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        """Partitions of ours without a leader, as a broker said."""
        return [tp for tp, absence in self._leaderless.items() if absence.is_told]

    def names(self, partitions: Collection[TopicPartition]) -> str:
        """Name some partitions, and say which of them their topics do not have."""
        counts = []
        for topic in sorted({tp.topic for tp in partitions}):
            known = self._client.cluster.known_partitions(topic)
            if known is not None and any(
                tp.topic == topic and tp.partition not in known for tp in partitions
            ):
                counts.append(f"{topic} has {len(known)} partition{'s' * (len(known) != 1)}")
        return some_names(partitions) + (f" ({', '.join(counts)})" if counts else "")

    # -- brokers that answer -----------------------------------------------------------------------

    def add_contact(self, node_id: int) -> NodeHealth:
        """Return a new NodeHealth for a broker that a partition was placed at."""
        contact = broker_health(self._client, node_id, self._log, self._on_change)
        self._contacts[node_id] = contact
        return contact

    def drop_contact(self, node_id: int) -> NodeHealth:
        """Forget a broker without partitions of ours; returns its NodeHealth."""
        return self._contacts.pop(node_id)

    def contacts(self) -> list[NodeHealth]:
        """Return the Contacts of the brokers with partitions of ours."""
        return list(self._contacts.values())

    def outages(self, now: float) -> dict[int, Outage]:
        """Return what is wrong with the brokers that do not answer, by their ids."""
        found = {}
        for node_id, contact in list(self._contacts.items()):
            if (outage := contact.outage(now)) is not None:
                found[node_id] = outage
        return found

    def contact_of(self, node_id: int) -> NodeHealth | None:
        """Return the NodeHealth of one broker; None if no partition is placed there."""
        return self._contacts.get(node_id)

    def silent_since(self, state: PartitionState, outages: Mapping[int, Outage]) -> float | None:
        """Return since when a partition's broker does not answer, or there is none; None if it
        does. `outages` are those of this moment: many partitions have the same broker."""
        if state.tp in self._leaderless:
            absence = self._leaderless[state.tp]
            return absence.since if absence.is_told else None
        outage = outages.get(state.home.node_id) if state.home.node_id is not None else None
        return None if outage is None else outage.since


def _now() -> float:
    return asyncio.get_running_loop().time()


class Fetcher:
    """Has a NodeFetcher, with a task, for each broker with partitions of ours.

    Owns: the NodeFetchers; the ids of the topics that are read. `route()` follows the assignment
    and the metadata, `touch(state)` the changes of one partition: it is the StateWatcher of all.
    """

    def __init__(
        self, shared: Shared, tasks: TaskOwner, placement: Placement, resolver: OffsetResolver
    ) -> None:
        self._shared = shared
        self._desk = shared.desk
        self._tasks = tasks
        self._placement = placement
        self._resolver = resolver
        self._subscriptions = shared.subscriptions
        self._topic_ids = TopicIds()
        self._nodes: dict[int, NodeFetcher] = {}
        self._is_running = False

    def start(self) -> None:
        """Begin to fetch what is assigned."""
        self._is_running = True
        self._subscriptions.watch(self)
        self.route()

    async def close(self) -> None:
        """Drop everything and give brokers their session slots back. After the tasks have ended."""
        self._is_running = False
        # Records that were returned and not told to the collector: there is no later moment for it.
        for state in self._subscriptions.assignment.states():
            self._shared.meter.settle(state)
        self._subscriptions.watch(None)
        self._desk.close()
        nodes, self._nodes = self._nodes, {}
        for node_id in nodes:
            self._placement.drop_contact(node_id)
        await together(node.close() for node in nodes.values())

    async def wait_for_records(self, wanted: Wanted, deadline: float | None) -> bool:
        """Wait until there may be something for a reader of these partitions; False at `deadline`.

        Raises IllegalStateError in a rebalance listener and in `on_consume`, where nothing can
        come.
        """
        refuse_reading(self._desk)
        # To ask for more says that what was returned is finished: a rebalance may be waiting for
        # that.
        self._desk.polls.notify()
        self._note_hunger(wanted)
        return await self._desk.wait(wanted, deadline)

    def _note_hunger(self, wanted: Wanted) -> None:
        """Ask all brokers that may have records for a reader that found none."""
        buffer = self._desk.buffer
        if not buffer.is_hungry or buffer.hungry_for != wanted:
            buffer.note_hunger(wanted)
            for node in self._nodes.values():
                node.wake()

    # -- partitions and brokers --------------------------------------------------------------------

    def route(self) -> None:
        """Fetch every assigned partition from where it is now: the assignment or the metadata
        changed.
        """
        self._resolver.look_for_newcomers()
        if not self._is_running:
            return
        # Before partitions are placed: a position in a topic that is gone must not be asked for in
        # the one that has its name now.
        self._follow_topic_ids()
        for state in self._subscriptions.assignment.states():
            self._place(state)
            self.touch(state)
        self._shared.meter.keep_topics(
            self._subscriptions.topics.union(
                state.tp.topic for state in self._subscriptions.assignment.states()
            )
        )
        homes = {state.home.node_id for state in self._subscriptions.assignment.states()}
        for node_id in [node_id for node_id in self._nodes if node_id not in homes]:
            self._retire(node_id)
        self._placement.review_absences()

    def touch(self, state: PartitionState) -> None:
        """Tell whatever works with a partition that its fetchability or position changed."""
        self._desk.touch(state)
        self._shared.meter.settle(state)
        if state.needs_offset:
            self._resolver.wake()
        node_id = state.home.node_id
        if node_id is not None and node_id in self._nodes:
            self._nodes[node_id].touch(state)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the collector, if there is one, of the records that these partitions have given."""
        if self._shared.meter.collector is None:
            return
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            if state is not None:
                self._shared.meter.settle(state)

    def _place(self, state: PartitionState) -> None:
        before = self._placement.place(state)
        node_id = state.home.node_id
        if before != node_id and before is not None and before in self._nodes:
            # It leaves the partition out from its next request on. A response that is on its way
            # still counts: the records are the same.
            self._nodes[before].touch(state)
        if node_id is not None:
            self._node(node_id).touch(state)

    def _node(self, node_id: int) -> NodeFetcher:
        node = self._nodes.get(node_id)
        if node is None:
            contact = self._placement.add_contact(node_id)
            node = self._nodes[node_id] = NodeFetcher(node_id, self._shared, self, contact)
            self._tasks.start(node.run(), name=f"fetch-{node_id}")
        return node

    def _retire(self, node_id: int) -> None:
        """End a NodeFetcher without partitions. Its last error stays known."""
        self._nodes.pop(node_id).retire()
        contact = self._placement.drop_contact(node_id)
        if contact.error is not None and contact.error_at > self._desk.last_error[0]:
            self._desk.note_error(contact.error_at, contact.error)

    def _follow_topic_ids(self) -> None:
        assignment = self._subscriptions.assignment
        topics = [tp.topic for tp in assignment.tps]
        cluster = self._shared.client.cluster
        for other in self._topic_ids.update(topics, assignment.topic_ids, cluster):
            self._resolver.on_other_topic(other)
        current = self._topic_ids.current
        for state in assignment.states():
            state.topic_id = current.get(state.tp.topic, state.topic_id)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of responses in which there are records that nothing has read."""
        return sum(node.pinned for node in list(self._nodes.values()))

    # -- for NodeFetchers: see NodeHost ------------------------------------------------------------

    @property
    def share(self) -> int:
        """Bytes that one broker's responses may pin."""
        return self._shared.config.fetch_buffer_memory // max(1, len(self._nodes))

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """The ids of the topics that are read."""
        return self._topic_ids.current

    def rack_id(self) -> str:
        """Return the rack to name to brokers; "" to have leaders serve us themselves."""
        return self._placement.rack_id()

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the readers of partitions whose records were buffered."""
        unserved = self._desk.announce(partitions)
        if unserved is not None:
            # Another reader goes without, and sleeps on.
            self._note_hunger(unserved)

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Move a partition to the replica that its leader names (KIP-392)."""
        self._placement.prefer_replica(state, node_id)
        self._place(state)

    def refuse_replica(self, state: PartitionState) -> None:
        """Move a partition back to its leader: the replica does not serve us."""
        self._placement.refuse_replica(state)
        self._place(state)

    def on_out_of_range(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Find another position, or report `failure`: the position is not in the leader's log."""
        self._resolver.on_out_of_range(state, failure)

    # -- names that Faust and kafkaesk know --------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return not self._is_running

    @property
    def _fetch_waiters(self) -> Collection[asyncio.Future[bool]]:
        return self._desk.waiters

    async def next_record(self, partitions: Iterable[TopicPartition]) -> ConsumerRecord[Any, Any]:
        """Return what `getone()` of the consumer does."""
        wanted = frozenset(partitions) or None
        self._desk.buffer.begin_call()
        while self._is_running:
            record = self._desk.next_of(wanted)
            if record is not None:
                return record
            await self.wait_for_records(wanted, None)
        raise ConsumerStoppedError("the consumer was stopped; make a new one")

    async def fetched_records(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return what `getmany()` of the consumer does, with `timeout` in seconds."""
        wanted = frozenset(partitions) or None
        limit = -1 if max_records is None else max_records
        deadline = asyncio.get_running_loop().time() + timeout
        self._desk.buffer.begin_call()
        records = self._desk.take(wanted, limit)
        while not records and self._is_running and await self.wait_for_records(wanted, deadline):
            records = self._desk.take(wanted, limit)
        return records or self._desk.take(wanted, limit)
