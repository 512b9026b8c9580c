"""Names of the topics that a broker calls by their ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._any_node import AnyNode
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["TopicNames"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


class TopicNames:
    """Looks in the metadata first, then asks a broker.

    Owns: the names of the ids that it was asked for last, so that a topic that is deleted keeps its
    name for as long as it is assigned.
    """

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._nodes = AnyNode(client)
        self._names: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> str | None:
        """Return the name; None if it is not known."""
        return self._names.get(topic_id)

    async def learn(self, topic_ids: Iterable[bytes]) -> set[bytes]:
        """Learn the names of these ids and forget all others. Returns those without a known
        name."""
        cluster = self._client.cluster
        # What is known goes first: the metadata forgets a deleted topic, whose partitions are
        # assigned for a moment longer.
        found = ((i, self._names.get(i) or cluster.topic_name(i)) for i in topic_ids)
        names = dict(found)
        self._names = {i: name for i, name in names.items() if name is not None}
        missing = names.keys() - self._names.keys()
        if missing:
            try:
                self._names.update(await self._ask(missing))
            except (KafkaError, asyncio.TimeoutError) as error:
                log.debug("names of %d topics not found: %s", len(missing), error)
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
