"""What other brokers than its leader know of a partition."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aiokafka._tasks import TaskOwner, together
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.protocol.messages.metadata import MetadataResponse

__all__ = ["OtherBrokers"]

_ASKED = 3  # brokers in each look
_PATIENCE = 5.0  # seconds for each of connecting and responding
_VALID = 2.0  # seconds in which a look stands for all ranges of its topic
_PAUSE = 5.0  # seconds between looks that no range waits for
_FIRST_WITHOUT_CREATION = 4  # MetadataRequest: before, to ask for a topic may make it


class OtherBrokers:
    """Says whether the leader of a partition leads in fact.

    1. A leader is cut off from the other brokers, and they elect the next one.
    2. It does not know, and goes on answering: fetches, look-ups of offsets, and metadata that
       names it as the leader. Its log lacks what the next leader was sent since.
    3. A client that is connected to it alone asks no other broker for metadata. So this does, and
       the client takes over what they know of newer leaders.

    Owns: the looks that are under way, and what the last look at each topic has brought.
    """

    def __init__(self, client: AIOKafkaClient, tasks: TaskOwner) -> None:
        self._client = client
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._said: dict[str, dict[int, ClusterMetadata]] = {}
        self._said_at: dict[str, float] = {}

    def look_soon(self, topic: str) -> None:
        """Look at a topic, unless that was done a moment ago. One look serves all partitions."""
        if not self._is_younger(topic, _PAUSE):
            self._look(topic)

    async def is_named(self, tp: TopicPartition, leader: int | None) -> bool:
        """Return whether `leader` leads, as the client knows it, and as others say if there are
        any."""
        if not self._is_younger(tp.topic, _VALID):
            await asyncio.wait([self._look(tp.topic)])
        cluster = self._client.cluster
        if leader is None or cluster.leader_for_partition(tp) != leader:
            return False
        if not set(cluster.node_ids) - {leader}:
            return True
        # One that is behind says nothing.
        votes = [
            seen.leader_for_partition(tp)
            for node_id, seen in self._said.get(tp.topic, {}).items()
            if node_id != leader and not 0 <= seen.leader_epoch(tp) < cluster.leader_epoch(tp)
        ]
        return bool(votes) and all(vote == leader for vote in votes)

    def _is_younger(self, topic: str, seconds: float) -> bool:
        at = self._said_at.get(topic)
        return topic not in self._looks and at is not None and self._loop.time() - at < seconds

    def _look(self, topic: str) -> asyncio.Task[None]:
        task = self._looks.get(topic)
        if task is None:
            task = self._tasks.start(self._ask_some(topic), name=f"others-{topic}")
            self._looks[topic] = task
        return task

    async def _ask_some(self, topic: str) -> None:
        try:
            nodes = sorted(self._client.cluster.node_ids)
            some = random.sample(nodes, min(_ASKED, len(nodes)))
            answers = await together(self._ask(node_id, topic) for node_id in some)
            found = dict(zip(some, answers, strict=True))
            self._said[topic] = {node: seen for node, seen in found.items() if seen is not None}
            self._said_at[topic] = self._loop.time()
        finally:
            del self._looks[topic]

    async def _ask(self, node_id: int, topic: str) -> ClusterMetadata | None:
        """Return what a broker knows of the topic; None if it does not respond, or knows another
        topic by this name."""
        patience = min(_PATIENCE, self._client.config.request_timeout)
        try:
            seen = ClusterMetadata().updated(await self._send(node_id, topic, patience))
        except KafkaError:
            return None
        client = self._client
        ids = {seen.topic_id(topic), client.cluster.topic_id(topic)} - {None}
        if len(ids) > 1:
            return None
        client.update_leaders(
            {
                tp: (leader, seen.leader_epoch(tp))
                for number in seen.known_partitions(topic) or ()
                if (leader := seen.leader_for_partition(tp := TopicPartition(topic, number)))
                is not None
                and leader >= 0
            }
        )
        return seen

    async def _send(self, node_id: int, topic: str, patience: float) -> MetadataResponse:
        connection = await self._client.connection(node_id, timeout=patience)
        version = connection.pick(MetadataRequest)
        if version >= _FIRST_WITHOUT_CREATION:
            one = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=one, allow_auto_topic_creation=False)
        else:
            # All topics, in version 0 by none.
            request = MetadataRequest(topics=None if version else [])
        return await connection.request(request, version=version, timeout=patience)
