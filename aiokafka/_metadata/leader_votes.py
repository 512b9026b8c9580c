"""The leader of a partition, according to several brokers."""

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

__all__ = ["LeaderVotes"]

_POLLED_BROKERS = 3  # brokers to which each poll sends Metadata
_POLL_TIMEOUT = 5.0  # seconds for the connect, and again for the response
_RESULT_MAX_AGE = 2.0  # seconds for which `confirm()` uses the result of the topic's last poll
_POLL_INTERVAL = 5.0  # seconds between polls in the background
_FIRST_WITHOUT_CREATION = 4  # a MetadataRequest of an earlier version may create the topic


def _is_older(seen: ClusterMetadata, cluster: ClusterMetadata, tp: TopicPartition) -> bool:
    """Return whether `seen` has an older leader epoch than `cluster`."""
    return 0 <= seen.leader_epoch(tp) < cluster.leader_epoch(tp)


def _has_other_leader(seen: ClusterMetadata, cluster: ClusterMetadata, topic: str) -> bool:
    """Return whether a partition of the topic has different leaders in `seen` and `cluster`, and
    the leader in `seen` does not have an older leader epoch."""
    for number in seen.known_partitions(topic) or ():
        tp = TopicPartition(topic, number)
        is_same = seen.leader_for_partition(tp) in (None, -1, cluster.leader_for_partition(tp))
        if not is_same and not _is_older(seen, cluster, tp):
            return True
    return False


class LeaderVotes:
    """Checks with several brokers which broker leads a partition. The client does this before it
    treats records as lost or a position as invalid.

    A single broker may be wrong:

    1. A leader loses its connections to the other brokers, and another leader is elected.
    2. The former leader has not noticed, and still responds to Fetch, ListOffsets and Metadata
       requests as the leader. Its log lacks the records sent to the new leader.
    3. A client may be connected only to the former leader, and get its metadata only from there. So
       this class sends Metadata to several brokers, and updates the client's metadata with newer
       leaders.
    4. Before Kafka 2.1, metadata has no leader epochs that show which leader is newer. So if a
       polled broker has another leader than the client's metadata, the next refresh goes to another
       broker than the last one.

    Owns: the running poll and the result of the last poll of each topic.
    """

    def __init__(self, client: AIOKafkaClient, tasks: TaskOwner) -> None:
        self._client = client
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, dict[int, ClusterMetadata]] = {}
        self._polled_at: dict[str, float] = {}

    def poll_soon(self, topic: str) -> None:
        """Request a topic's metadata from several brokers in the background, unless the last such
        poll ended less than `_POLL_INTERVAL` seconds ago."""
        if not self._is_younger(topic, _POLL_INTERVAL):
            self._poll(topic)

    async def confirm(self, tp: TopicPartition, leader: int | None) -> bool | None:
        """Return whether `leader` is the leader according to the client's metadata and to all
        polled brokers (other than `leader`) that responded.

        Returns True without a poll if the cluster has no other broker than `leader`. Returns None
        if no other broker has responded. A response with an older leader epoch than the client's
        does not count.
        """
        if set(self._client.cluster.node_ids) <= {leader}:
            return leader is not None
        if not self._is_younger(tp.topic, _RESULT_MAX_AGE):
            await asyncio.wait([self._poll(tp.topic)])
        cluster = self._client.cluster
        if leader is None or cluster.leader_for_partition(tp) != leader:
            return False
        votes = [
            seen.leader_for_partition(tp)
            for node_id, seen in self._results.get(tp.topic, {}).items()
            if node_id != leader and not _is_older(seen, cluster, tp)
        ]
        return all(vote == leader for vote in votes) if votes else None

    def _is_younger(self, topic: str, seconds: float) -> bool:
        at = self._polled_at.get(topic)
        return topic not in self._polls and at is not None and self._loop.time() - at < seconds

    def _poll(self, topic: str) -> asyncio.Task[None]:
        task = self._polls.get(topic)
        if task is None:
            task = self._tasks.start(self._poll_brokers(topic), name=f"others-{topic}")
            self._polls[topic] = task
        return task

    async def _poll_brokers(self, topic: str) -> None:
        try:
            nodes = sorted(self._client.cluster.node_ids)
            some = random.sample(nodes, min(_POLLED_BROKERS, len(nodes)))
            answers = await together(self._request_metadata(node_id, topic) for node_id in some)
            found = {
                node_id: seen
                for node_id, seen in zip(some, answers, strict=True)
                if seen is not None
            }
            self._results[topic] = found
            self._polled_at[topic] = self._loop.time()
            if any(_has_other_leader(seen, self._client.cluster, topic) for seen in found.values()):
                self._client.doubt_metadata(f"brokers name different leaders of topic {topic}")
        finally:
            del self._polls[topic]

    async def _request_metadata(self, node_id: int, topic: str) -> ClusterMetadata | None:
        """Fetch a broker's metadata of the topic, update the client's leaders with it, and return
        it. Return None if the broker does not respond, or its topic has another id."""
        limit = min(_POLL_TIMEOUT, self._client.config.request_timeout)
        try:
            seen = ClusterMetadata().updated(await self._send(node_id, topic, limit))
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

    async def _send(self, node_id: int, topic: str, limit: float) -> MetadataResponse:
        connection = await self._client.connection(node_id, timeout=limit)
        version = connection.pick(MetadataRequest)
        if version >= _FIRST_WITHOUT_CREATION:
            one = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=one, allow_auto_topic_creation=False)
        else:
            # Request all topics: in version 0 by an empty list, later by None.
            request = MetadataRequest(topics=None if version else [])
        return await connection.request(request, version=version, timeout=limit)
