"""The topics of a whole cluster at one moment, in little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokafka.protocol.messages.metadata import MetadataResponse

__all__ = ["AllTopics"]


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

    def names(self, exclude_internal: bool) -> set[str]:
        """Return the names of the topics, without Kafka's internal ones if so wanted."""
        return self._partitions.keys() - (self._internal if exclude_internal else set())

    def partitions(self, topic: str) -> set[int] | None:
        """Return the numbers of all partitions of `topic`, None if there is no such topic."""
        numbers = self._partitions.get(topic)
        return None if numbers is None else set(numbers)
