"""The topics of a whole cluster at one moment, in little memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokafka.protocol.messages.metadata import MetadataResponse

__all__ = ["AllTopics"]


class Client(Protocol):
    """Who asks: an AIOKafkaClient."""

    async def fetch_all_topics(self, deadline: float | None = None) -> MetadataResponse:
        """Return what a broker says of all topics; each has a part of the time until then."""


class AllTopics:
    """Names of topics and numbers of their partitions; never changes.

    For the application's questions about topics that a client does not use. Of 10,000 partitions
    the leaders and replicas would be megabytes.
    """

    def __init__(self, response: MetadataResponse) -> None:
        """Take a response about all topics. One that has an error has no partitions."""
        self._partitions: dict[str, Collection[int]] = {}
        self._internal: set[str] = set()
        for topic in response.topics:
            numbers = {p.partition_index for p in topic.partitions if p.partition_index >= 0}
            if topic.name is None or topic.error_code or not numbers:
                continue
            usual = range(len(numbers))
            self._partitions[topic.name] = usual if max(numbers) == usual[-1] else numbers
            if topic.is_internal:
                self._internal.add(topic.name)

    @classmethod
    async def of(cls, client: Client, limit: float) -> AllTopics:
        """Ask the brokers for at most `limit` seconds, then raise KafkaTimeoutError."""
        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with timeout_at(deadline):
                return cls(await client.fetch_all_topics(deadline))
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(f"all topics: no broker has answered in {limit:g} s") from None

    def names(self, exclude_internal: bool) -> set[str]:
        """Return the names of the topics, without Kafka's internal ones if so wanted."""
        return self._partitions.keys() - (self._internal if exclude_internal else set())

    def partitions(self, topic: str) -> set[int] | None:
        """Return the numbers of all partitions of `topic`, None if there is no such topic."""
        numbers = self._partitions.get(topic)
        return None if numbers is None else set(numbers)
