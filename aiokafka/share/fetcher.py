"""The share sessions of a consumer: one for each broker that leads an assigned partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from aiokafka._health import NodeHealth
from aiokafka._log import SubjectLog
from aiokafka._metadata.topic_names import TopicNames
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal, TaskOwner
from aiokafka.cluster import ClusterMetadata
from aiokafka.share.acquired import Acknowledgements, TopicIdPartition
from aiokafka.share.buffer import ShareBuffer
from aiokafka.share.session import NodeShareSession
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.share._metrics import ShareMeter

__all__ = ["DEFAULT_LOCK_TIMEOUT", "ShareFetcher"]

log = logging.getLogger("aiokafka.share")

DEFAULT_LOCK_TIMEOUT = 30.0
"""Assumed duration of acquisition locks in seconds until a broker reports it: the default of
group.share.record.lock.duration.ms."""


class ShareFetcher:
    """Distributes the assigned partitions over the share sessions of their leaders.

    Owns: the NodeShareSession of each broker and its task; the assigned partitions, with their
    names; the acquisition lock timeout, as brokers reported it last.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ShareConsumerConfig,
        member_id: str,
        tasks: TaskOwner,
        acknowledgements: Acknowledgements,
        buffer: ShareBuffer,
        meter: ShareMeter,
    ) -> None:
        self.client = client
        self.config = config
        self.member_id = member_id
        self.acknowledgements = acknowledgements
        self.buffer = buffer
        self.meter = meter
        self.lock_timeout = DEFAULT_LOCK_TIMEOUT
        self.is_lock_timeout_known = False
        self.leaderless_since: float | None = None
        """The loop time since which there are `leaderless` partitions."""
        self.partitions: dict[TopicIdPartition, TopicPartition] = {}
        """The assigned partitions whose names are known."""
        self.leaderless: list[TopicPartition] = []
        """The assigned partitions without a known leader."""
        self._assigned: frozenset[TopicIdPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        self._nodes: dict[int, NodeShareSession] = {}
        self._running: dict[NodeShareSession, asyncio.Task[None]] = {}
        self._names = TopicNames(client)
        self._changed = Signal()
        self._is_changed = False
        self._tasks = tasks
        self._log = SubjectLog(log, config.subject)
        self._loop = asyncio.get_running_loop()

    # -- called by the other parts of the consumer

    def assign(self, assigned: Iterable[TopicIdPartition]) -> None:
        """Fetch these partitions from now on."""
        self._assigned = frozenset(assigned)
        self._note_change()

    def set_topics(self, topics: frozenset[str]) -> None:
        """Fetch only partitions of these topics from now on. Partitions of other topics may still
        be assigned, until the group's coordinator revokes them."""
        self._topics = topics
        self._note_change()

    def wake(self) -> None:
        """Make all sessions check whether a request is due."""
        for node in self._nodes.values():
            node.wake()

    def note_lock_timeout(self, lock_timeout: float) -> None:
        """Store the timeout of acquisition locks in seconds, as a broker has reported it."""
        if lock_timeout > 0:
            self.lock_timeout = lock_timeout
            self.is_lock_timeout_known = True

    def node_healths(self) -> list[NodeHealth]:
        """Return the health of each broker that leads an assigned partition."""
        # A broker that leads no partition any more stays in `_nodes` until its session is closed.
        return [node.health for node in self._nodes.values() if node.is_leader]

    async def close(self, deadline: float) -> None:
        """Send the pending acknowledgements, and close the share sessions, until `deadline` (loop
        time)."""
        for node in self._running:
            node.close()
        if self._running:
            limit = max(0.0, deadline - self._loop.time())
            await asyncio.wait(self._running.values(), timeout=limit)

    # -- tasks

    async def run(self) -> None:
        """Distribute the partitions again after each change of the assignment or the metadata,
        until cancelled."""
        cluster_changed = self._on_metadata
        self.client.cluster.add_listener(cluster_changed)
        client = self.config.client
        backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._tasks.start(self._wake_for_records(), name="share-demand")
        try:
            while True:
                if not self._is_changed:
                    await self._changed.wait()
                self._is_changed = False
                assigned = self._assigned
                unknown = await self._names.learn(sorted({tip.topic_id for tip in assigned}))
                if assigned != self._assigned:
                    continue
                self._distribute(assigned)
                if unknown or self.leaderless:
                    # A topic was deleted, or its brokers do not know it yet; or a partition has no
                    # leader, for example during an election.
                    self.client.request_metadata("assigned partitions have no leader")
                    await self._changed.wait(self._loop.time() + backoff.next())
                    self._is_changed = True
                else:
                    backoff.reset()
        finally:
            self.client.cluster.remove_listener(cluster_changed)

    async def _wake_for_records(self) -> None:
        while True:
            await self.buffer.wanted.wait()
            self.wake()

    def _on_ended(self, node: NodeShareSession, _: asyncio.Task[None]) -> None:
        self._running.pop(node, None)

    def _on_metadata(self, _: ClusterMetadata) -> None:
        self._note_change()

    def _note_change(self) -> None:
        self._is_changed = True
        self._changed.notify()

    def _distribute(self, assigned: Iterable[TopicIdPartition]) -> None:
        """Pass each partition to the session of its leader."""
        self.partitions = {}
        self.leaderless = []
        by_node: dict[int, dict[TopicIdPartition, TopicPartition]] = {}
        for tip in sorted(assigned):
            name = self._names.get(tip.topic_id)
            if name not in self._topics:
                continue
            tp = self.partitions[tip] = TopicPartition(name, tip.partition)
            leader = self.client.cluster.leader_for_partition(tp)
            if leader is None or leader < 0:
                self.leaderless.append(tp)
            else:
                by_node.setdefault(leader, {})[tip] = tp
        if not self.leaderless:
            self.leaderless_since = None
        elif self.leaderless_since is None:
            self.leaderless_since = self._loop.time()
        for node_id in [node_id for node_id in by_node if node_id not in self._nodes]:
            node = self._nodes[node_id] = NodeShareSession(node_id, self)
            task = self._tasks.start(node.run(), name=f"share-node-{node_id}")
            self._running[node] = task
            task.add_done_callback(partial(self._on_ended, node))
        for node_id, node in list(self._nodes.items()):
            node.set_partitions(by_node.get(node_id, {}))
            if node.is_unused:
                del self._nodes[node_id]
                node.close()
