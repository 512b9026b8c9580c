"""Which broker serves which partition, and what ties fetching, positions and readers together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka._vitals import Contact
from aiokafka.consumer._listener_call import refuse_in_listener
from aiokafka.consumer._names import some_names
from aiokafka.consumer._signal import Arrivals, Signal
from aiokafka.consumer.fetch.answers import FetchAnswers
from aiokafka.consumer.fetch.buffer import FetchBuffer, Wanted
from aiokafka.consumer.fetch.node import NodeFetcher
from aiokafka.consumer.partition_state import PartitionState, Phase
from aiokafka.consumer.position.newcomers import Newcomers
from aiokafka.consumer.position.reset import EARLIEST, LATEST, OffsetSpec
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.position.resolver import OffsetResolver
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["Fetcher"]

# Looks at the metadata, some in a second, that may find no leader before the log tells.
_MISSES_TO_MENTION = 5

# How long leaders are read after a replica named by one of them failed: the leader would name it
# again.
_REPLICA_REST = 30.0

# Errors kept for an application that does not ask.
_MOST_COMPLAINTS = 10

log = logging.getLogger("aiokafka.consumer.fetcher")


class Absence:
    """A partition without a leader: since when (loop time), and how often it was missed."""

    __slots__ = ("is_told", "misses", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.misses = 0
        self.is_told = False
        """Whether a broker has said so; at first nobody has asked yet."""


class Fetcher:
    """Places partitions on brokers and hears of every change of a partition's state.

    Owns the NodeFetchers (one task each), the FetchBuffer, and each partition's placement
    (`cursor.node_id`, `cursor.preferred`). `route()` follows the assignment and the metadata;
    `touch(state)` one partition.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
    ) -> None:
        self.client = client
        self.config = config
        self.log = SubjectLog(log, config.subject)
        self.buffer = FetchBuffer()
        self.answers = FetchAnswers(self)
        self.topic_ids: dict[str, bytes] = {}
        # By topic: a broker that is behind tells an old id once more.
        self._former_ids: dict[str, set[bytes]] = {}
        self.resolver: OffsetResolver | None = None
        self.positions = Signal()
        self.polls = Signal()
        self.on_change: Callable[[], None] = _nothing
        """Told whenever the consumer may be doing better or worse than before."""
        self.fetched_at: float | None = None
        """When a broker last answered a fetch (loop time)."""
        self.last_error: tuple[float, BaseException | None] = (0.0, None)
        """What the application was, or will be, told last of (loop time, error)."""
        self.next: Callable[[], ConsumerRecord[Any, Any] | None] = self.buffer.next
        self._is_held = False
        self._complaints: list[BaseException] = []
        self._arrivals = Arrivals()
        self._reset_spec = OffsetSpec.from_policy(config.auto_offset_reset, config.reset_duration)
        self._subscriptions = subscriptions
        self.newcomers: Newcomers | None = None
        """Partitions to be read from their beginning, by the policy "latest" as well."""
        if self._reset_spec == LATEST:
            self.newcomers = Newcomers(subscriptions, config.client.metadata_max_age)
            client.cluster.add_listener(self.newcomers.look)
        # Knows the fetcher and not the consumer, which can then be missed by its owner and say so.
        self.tasks = TaskOwner(config.client.client_id, self._on_task_failed)
        self._nodes: dict[int, NodeFetcher] = {}
        self._is_running = False
        self._leaders_only_until = 0.0
        self._leaderless: dict[TopicPartition, Absence] = {}

    def start(self) -> None:
        """Begin to fetch what is assigned."""
        self._is_running = True
        self._subscriptions.watch(self)
        self.route()

    def refuse_readers(self) -> None:
        """Hand out nothing more and wake every waiter: the consumer stops."""
        self.buffer.clear()
        self.wake_readers()
        self.positions.notify()

    async def close(self) -> None:
        """Drop everything and give brokers their session slots back. After the tasks have ended."""
        self._is_running = False
        self._subscriptions.watch(None)
        self.refuse_readers()
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.close() for node in nodes.values()))

    def _on_task_failed(self, error: BaseException) -> None:
        """Nobody waits for the dead: readers look again, and see the failure."""
        self.on_change()
        self.wake_readers()
        self.positions.notify()

    # -- for readers -------------------------------------------------------------------------------

    async def wait(self, wanted: Wanted, deadline: float | None) -> bool:
        """Until something may have come for a reader of these partitions; False at `deadline`.

        Raises IllegalStateError in a rebalance listener, where nothing can come.
        """
        refuse_in_listener(self, "getone() and getmany()")
        self.polls.notify()
        self.note_hunger(wanted)
        return await self._arrivals.wait_for(wanted, deadline)

    def note_hunger(self, wanted: Wanted) -> None:
        """A reader found nothing."""
        if not self.buffer.is_hungry or self.buffer.hungry_for != wanted:
            self.buffer.note_hunger(wanted)
            for node in self._nodes.values():
                node.wake()

    @property
    def has_readers(self) -> bool:
        """Whether somebody waits for records."""
        return self._arrivals.has_waiters

    def wake_readers(self) -> None:
        """Have every waiting reader look again."""
        self._arrivals.notify()

    # While a rebalance holds records back, and while there is something to raise, the short way
    # `next` leads to the long one.

    def hold(self) -> None:
        """Hand out nothing until `release()`."""
        self._is_held = True
        self.next = _nothing

    def release(self) -> None:
        """Hand out records again."""
        self._is_held = False
        if not self._complaints:
            self.next = self.buffer.next
        self.wake_readers()

    def complain(self, error: BaseException) -> None:
        """Have the next call of a reader raise this, whatever partitions it asks for."""
        self.last_error = (asyncio.get_running_loop().time(), error)
        self._complaints.append(error)
        del self._complaints[:-_MOST_COMPLAINTS]
        self.next = _nothing
        self.wake_readers()

    def recant(self, kinds: tuple[type[BaseException], ...]) -> None:
        """What there was to complain of is over: readers need not hear of it any more."""
        if not self._complaints:
            return
        self._complaints = [one for one in self._complaints if not isinstance(one, kinds)]
        if not self._complaints and not self._is_held:
            self.next = self.buffer.next

    def next_of(self, wanted: Wanted) -> ConsumerRecord[Any, Any] | None:
        """As the buffer's, unless records are held back. Raises what there is to complain of."""
        self._raise_complaint()
        return None if self._is_held else self.buffer.next_of(wanted)

    def take(
        self, wanted: Wanted, limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """As the buffer's, unless records are held back. Raises what there is to complain of."""
        self._raise_complaint()
        return {} if self._is_held else self.buffer.take(wanted, limit)

    def _raise_complaint(self) -> None:
        if not self._complaints:
            return
        error = self._complaints.pop(0)
        if not self._complaints and not self._is_held:
            self.next = self.buffer.next
        raise error

    # -- names that Faust and kafkaesk know --------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return not self._is_running

    @property
    def _fetch_waiters(self) -> Collection[asyncio.Future[bool]]:
        return self._arrivals.waiters

    async def next_record(self, partitions: Iterable[TopicPartition]) -> ConsumerRecord[Any, Any]:
        """What `getone()` of the consumer gives."""
        wanted = frozenset(partitions) or None
        self.buffer.begin_call()
        while self._is_running:
            record = self.next_of(wanted)
            if record is not None:
                return record
            await self.wait(wanted, None)
        raise ConsumerStoppedError("the consumer was stopped; make a new one")

    async def fetched_records(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """What `getmany()` of the consumer gives, with `timeout` in seconds."""
        wanted = frozenset(partitions) or None
        limit = -1 if max_records is None else max_records
        deadline = asyncio.get_running_loop().time() + timeout
        self.buffer.begin_call()
        records = self.take(wanted, limit)
        while not records and self._is_running and await self.wait(wanted, deadline):
            records = self.take(wanted, limit)
        return records or self.take(wanted, limit)

    # -- placement ---------------------------------------------------------------------------------

    @property
    def share(self) -> int:
        """Bytes that one broker's responses may pin."""
        return self.config.fetch_buffer_memory // max(1, len(self._nodes))

    def route(self) -> None:
        """Place every assigned partition anew: the assignment or the metadata changed."""
        if self.newcomers is not None:
            self.newcomers.look(self.client.cluster)
        if not self._is_running:
            return
        now = asyncio.get_running_loop().time()
        self._refresh_topic_ids()
        for state in self._subscriptions.assignment.states():
            self._place(state, now)
            self.touch(state)
        homes = {state.cursor.node_id for state in self._subscriptions.assignment.states()}
        for node_id in [node_id for node_id in self._nodes if node_id not in homes]:
            self._retire(self._nodes.pop(node_id))
        for tp in self._leaderless.keys() - self._subscriptions.assignment.tps:
            del self._leaderless[tp]
        self._mention_absences()

    def _retire(self, node: NodeFetcher) -> None:
        contact = node.contact
        if contact.error is not None and contact.error_at > self.last_error[0]:
            self.last_error = (contact.error_at, contact.error)
        node.retire()

    def touch(self, state: PartitionState) -> None:
        """One partition's fetchability or position changed."""
        self.buffer.discard_stale(state)
        if state.needs_offset:
            if self.resolver is not None:
                self.resolver.wake()
        elif self.positions.has_waiters:
            self.positions.notify()
        node_id = state.cursor.node_id
        if node_id is not None and node_id in self._nodes:
            self._nodes[node_id].touch(state)
        if self._arrivals.has_waiters:
            self._arrivals.notify_of((state.tp,))

    def use_replica(self, state: PartitionState, node_id: int) -> None:
        """The leader names a closer replica to read from (KIP-392)."""
        if self.client.cluster.broker_metadata(node_id) is None:
            self.client.request_metadata(f"{state.tp}: replica {node_id} is not known")
            self.leave_replica(state)
            return
        loop = asyncio.get_running_loop()
        state.cursor.preferred = node_id
        state.cursor.preferred_until = loop.time() + self.config.client.metadata_max_age
        self._place(state, loop.time())

    def leave_replica(self, state: PartitionState) -> None:
        """The replica does not serve us: back to the leader, and for a while take no other
        advice."""
        now = asyncio.get_running_loop().time()
        self._leaders_only_until = now + _REPLICA_REST
        state.cursor.forget_replica()
        self._place(state, now)

    def rack_id(self, now: float) -> str:
        """What to tell brokers of where we are; "" to have leaders serve us themselves."""
        if now < self._leaders_only_until:
            return ""
        return self.config.client.client_rack or ""

    def _place(self, state: PartitionState, now: float) -> None:
        cursor = state.cursor
        cluster = self.client.cluster
        leader = cluster.leader_for_partition(state.tp)
        self._note_leader_epoch(state, cluster.leader_epoch(state.tp))
        if cursor.preferred is not None and (
            cursor.preferred_until <= now or cluster.broker_metadata(cursor.preferred) is None
        ):
            cursor.forget_replica()
        home = leader if cursor.preferred is None else cursor.preferred
        if home is None or home < 0:
            home = None
            self._miss_leader(state.tp)
        old, cursor.node_id = cursor.node_id, home
        if old != home and old is not None and old in self._nodes:
            self._nodes[old].touch(state)
        if home is not None:
            self._leaderless.pop(state.tp, None)
            self._node(home).touch(state)

    def _miss_leader(self, tp: TopicPartition) -> None:
        """A partition cannot be read for now."""
        self.client.request_metadata(f"leader of {tp} unknown")
        absence = self._leaderless.get(tp)
        if absence is None:
            absence = self._leaderless[tp] = Absence(asyncio.get_running_loop().time())
        absence.misses += 1
        cluster = self.client.cluster
        if cluster.partitions_for_topic(tp.topic) is not None or cluster.topic_error(tp.topic):
            absence.is_told = True

    def _mention_absences(self) -> None:
        """Say which partitions have no leader, once, if this is not over soon."""
        lasting = [tp for tp, a in self._leaderless.items() if a.misses == _MISSES_TO_MENTION]
        if lasting:
            self.log.warning(
                "No leader, or no such partition: %s cannot be read", self.names(lasting)
            )

    def _node(self, node_id: int) -> NodeFetcher:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeFetcher(node_id, self)
            self.tasks.start(node.run(), name=f"fetch-{node_id}")
        return node

    def _note_leader_epoch(self, state: PartitionState, epoch: int) -> None:
        """Have the position checked if a newer leader took over since it was read (KIP-320), or an
        older one than it was read from: the topic may have been made anew."""
        cursor = state.cursor
        if epoch < 0 or epoch == cursor.leader_epoch:
            return
        is_newer = epoch > cursor.leader_epoch
        was_newer = not is_newer and cursor.offset_epoch > epoch
        if (state.phase is Phase.READY and (0 <= cursor.offset_epoch < epoch or was_newer)) or (
            state.phase is Phase.VALIDATING and is_newer
        ):
            state.begin_validation(epoch)
        else:
            cursor.leader_epoch = epoch

    def _refresh_topic_ids(self) -> None:
        cluster = self.client.cluster
        topics = dict.fromkeys(state.tp.topic for state in self._subscriptions.assignment.states())
        found = ((topic, cluster.topic_id(topic)) for topic in topics)
        self.topic_ids = {topic: topic_id for topic, topic_id in found if topic_id is not None}
        self._former_ids = {t: ids for t, ids in self._former_ids.items() if t in topics}
        for topic, topic_id in self.topic_ids.items():
            known = self._former_ids.setdefault(topic, {topic_id})
            if topic_id not in known:
                known.add(topic_id)
                self._on_made_anew(topic)

    def _on_made_anew(self, topic: str) -> None:
        self.log.warning("Topic %s was deleted and made anew: its positions are reset", topic)
        for state in list(self._subscriptions.assignment.states()):
            if state.tp.topic == topic and not state.is_unset:
                self.begin_anew(state)

    def begin_anew(self, state: PartitionState) -> None:
        """The topic was deleted and there is another one of its name. Positions in the old one mean
        nothing in it; all that it holds is still to be read."""
        state.reset(None if self._reset_spec is None else EARLIEST)

    # -- who answers -------------------------------------------------------------------------------

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        """Partitions of ours without a leader, as a broker said."""
        return [tp for tp, absence in self._leaderless.items() if absence.is_told]

    def names(self, partitions: Collection[TopicPartition]) -> str:
        """Names of some partitions, with a word on those that their topics do not have."""
        counts = []
        for topic in sorted({tp.topic for tp in partitions}):
            known = self.client.cluster.partitions_for_topic(topic)
            if known is not None and any(
                tp.topic == topic and tp.partition not in known for tp in partitions
            ):
                counts.append(f"{topic} has {len(known)} partition{'s' * (len(known) != 1)}")
        return some_names(partitions) + (f" ({', '.join(counts)})" if counts else "")

    def contacts(self) -> list[Contact]:
        """Of the brokers with partitions of ours."""
        return [node.contact for node in self._nodes.values()]

    def contact_of(self, node_id: int) -> Contact | None:
        """Of one broker; None if no partition is placed there."""
        node = self._nodes.get(node_id)
        return None if node is None else node.contact

    def silent_since(self, state: PartitionState, now: float) -> float | None:
        """Since when a partition's broker does not answer, or there is none; None if it does."""
        absence = self._leaderless.get(state.tp)
        if absence is not None:
            return absence.since if absence.is_told else None
        node = None if state.cursor.node_id is None else self._nodes.get(state.cursor.node_id)
        return None if node is None else node.contact.silent_since(now)

    # -- called by NodeFetchers, their answers, and the resolver ----------------------------------

    def arrived(self, partitions: Iterable[TopicPartition]) -> None:
        """Records of these were buffered."""
        self._arrivals.notify_of(partitions)
        wanted = self._arrivals.unserved()
        if wanted is not None:
            # Somebody goes without, and sleeps on.
            self.note_hunger(wanted)

    def report(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Have the next reader of this partition see what `failure` makes."""
        if state.phase is not Phase.RETIRED:
            self.last_error = (asyncio.get_running_loop().time(), failure())
            self.buffer.add_failure(state, failure)
            self._arrivals.notify_of((state.tp,))
            self.positions.notify()

    def report_all(
        self, states: Iterable[PartitionState], failure: Callable[[], KafkaError]
    ) -> None:
        """As `report`, for one failure of many partitions: it is raised once."""
        for state in states:
            self.report(state, failure)

    def on_lost_position(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """The position is not in the log: find another by the reset policy, or report it if there
        is none."""
        cursor = state.cursor
        client = self.config.client
        now = asyncio.get_running_loop().time()
        if self._reset_spec is None:
            cursor.retry_at = now + client.retry_backoff_max
            self.report(state, failure)
            return
        self.log.info("%s: offset %s is out of range, resetting", state.tp, cursor.offset)
        losses = cursor.losses
        cursor.losses += 1
        state.lose(self._reset_spec)
        if losses:
            # What the broker named before was not in its log either.
            cursor.failures = losses - 1
            cursor.back_off(now, client.retry_backoff, client.retry_backoff_max)

    def make_room(self, node: NodeFetcher) -> bool:
        """Drop what nobody reads, if a reader goes without for it; True if the broker may be asked
        again."""
        if not self.buffer.is_hungry:
            return False
        later = asyncio.get_running_loop().time() + self.config.fetch_max_wait
        for state in self.buffer.unserved():
            if state.cursor.node_id == node.node_id:
                self.buffer.discard(state)
                state.cursor.retry_at = later
                node.plan.touch(state)
        return node.pinned * 2 <= self.share


def _nothing() -> None:
    """In place of `FetchBuffer.next`."""
