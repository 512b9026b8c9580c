"""Names of topic ids: responses of the newer group protocols have only the ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._retry import RetryNodes
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["TopicNames"]

log = logging.getLogger("aiokafka.cluster")


class TopicNames:
    """Finds the names of topic ids: in the metadata, or by a request to a broker.

    Owns: the names found by the last `learn()`, so that a deleted topic keeps its name while it is
    assigned.
    """

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._nodes = RetryNodes(client)
        self._names: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> str | None:
        """Return the topic's name; None if it was not found by the last `learn()`."""
        return self._names.get(topic_id)

    async def learn(self, topic_ids: Iterable[bytes]) -> set[bytes]:
        """Find the names of these ids, by one request if metadata lacks some of them, and forget
        all other names. Return the ids whose name was not found."""
        cluster = self._client.cluster
        # Prefer names found before: metadata drops a deleted topic before the group revokes it.
        found = ((i, self._names.get(i) or cluster.topic_name(i)) for i in topic_ids)
        names = dict(found)
        self._names = {i: name for i, name in names.items() if name is not None}
        missing = names.keys() - self._names.keys()
        if missing:
            try:
                self._names.update(await self._ask(missing))
            except (KafkaError, asyncio.TimeoutError) as error:
                log.debug("the names of %d topic ids were not found: %s", len(missing), error)
        return set(missing - self._names.keys())

    async def _ask(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        self._client.request_metadata("the group's coordinator assigned an unknown topic")
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        deadline = asyncio.get_running_loop().time() + self._client.config.request_timeout
        response = await self._nodes.ask(lambda node: self._client.send(node, request), deadline)
        return {
            topic.topic_id: topic.name
            for topic in response.topics
            if topic.name and not topic.error_code
        }
