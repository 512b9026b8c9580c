"""Have every assigned partition fetched from the right broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka._tasks import together
from aiokafka.consumer._listener_call import refuse_reading
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer.fetch.buffer import Wanted
from aiokafka.consumer.fetch.node import NodeFetcher
from aiokafka.consumer.fetch.topic_ids import TopicIds
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka._tasks import TaskOwner
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.fetch.placement import Placement
    from aiokafka.consumer.position.resolver import OffsetResolver

__all__ = ["Fetcher"]


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
