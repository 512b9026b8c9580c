"""Keep the client's metadata about the topics of the subscription."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.consumer._partition_state import PartitionState
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["SubscribedTopics"]


class SubscribedTopics:
    """What a consumer does about its topics, with or without a group.

    Owns: the denied topics, each with a stand-in for its partitions, to report the error by.
    """

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._on_change = shared.on_change
        self._denied: dict[str, PartitionState] = {}

    async def follow(self, on_metadata: Callable[[], None]) -> None:
        """Call `on_metadata` after each new snapshot, until cancelled."""
        while True:
            # The future first: a snapshot that comes while this one is looked at is not missed.
            changed = self._client.metadata_changed()
            on_metadata()
            self._on_change()
            await changed

    def request(self) -> None:
        """Ask the client for the topics of the subscription; for all there are, with a pattern."""
        subscriptions = self._subscriptions
        if subscriptions.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(subscriptions.topics)

    def match_pattern(self) -> bool:
        """Subscribe to the topics that match the pattern; True if others did before."""
        hide_internal = self._config.exclude_internal_topics
        return self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal))

    def report_denied(self) -> None:
        """Report topics that we may not read, once per metadata response, while the others go
        on."""
        denied = self._client.cluster.unauthorized_topics & self._subscriptions.topics
        for topic in [topic for topic in self._denied if topic not in denied]:
            # With it goes what was reported of the topic's partitions.
            self._desk.buffer.pop_failure(self._denied.pop(topic))
        for topic in denied:
            state = self._denied.setdefault(topic, PartitionState(TopicPartition(topic, -1)))
            ours = self._subscriptions.assignment.states()
            # Some readers ask for certain partitions only.
            states = [state, *(each for each in ours if each.tp.topic == topic)]
            self._desk.report_all(states, partial(TopicAuthorizationFailedError, topic))

    @property
    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic in use has."""
        partitions = self._client.cluster.partitions_for_topic
        return {topic: len(partitions(topic) or ()) for topic in self._subscriptions.topics}
