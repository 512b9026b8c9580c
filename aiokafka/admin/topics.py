"""Topics: their names, partitions, replicas and leaders."""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Collection, Iterable, Mapping

from aiokafka.admin import _describe_topics, _readiness, _topic_changes
from aiokafka.admin._room import Room
from aiokafka.admin._topic_values import TopicCreation, TopicDescription, TopicListing
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic

__all__ = ["Topics"]


class Topics(Room):
    """Calls about topics: `admin.topics`.

    A topic is given by its name or, from Kafka 3.1 on, by its id as a `uuid.UUID`.
    """

    async def list(
        self,
        pattern: str | re.Pattern[str] | None = None,
        *,
        include_internal: bool = False,
        timeout_ms: float | None = None,
    ) -> list[TopicListing]:
        """Return the topics that the user may see, by name (Java: listTopics).

        Args:
            pattern: which names: a shell pattern such as "orders-*", or a compiled expression that
                matches the whole name; default all.
            include_internal: also topics in which Kafka keeps its own state.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        if isinstance(pattern, str):
            pattern = re.compile(fnmatch.translate(pattern))
        found = await _describe_topics.list_each(self._router, self._deadline(timeout_ms))
        return [
            topic
            for topic in found
            if (include_internal or not topic.is_internal)
            and (pattern is None or pattern.fullmatch(topic.name))
        ]

    async def describe(
        self,
        topics: Iterable[str | uuid.UUID] | None = None,
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str | uuid.UUID, TopicDescription]:
        """Return partitions, leaders and replicas of topics (Java: describeTopics, KIP-966).

        Args:
            topics: names or ids; default all topics, internal ones included. None is created.
            include_authorized_operations: also what the user may do with each (KIP-430).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Brokers before Kafka 3.7 do not tell which other replicas may become leaders. Raises
        UnknownTopicOrPartitionError, UnknownTopicId: AdminItemsError if several were asked for.
        """
        wanted = None if topics is None else _topics("topics", topics)
        deadline = self._deadline(timeout_ms)
        operations = include_authorized_operations
        if wanted is None:
            every = await _describe_topics.describe_all(self._router, operations, deadline)
            return dict(every.items())
        return await _describe_topics.describe_each(self._router, wanted, operations, deadline)

    async def create(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, TopicCreation]:
        """Create topics, and return what each is like (Java: createTopics, KIP-525).

        Args:
            topics: what to create.
            validate_only: only check whether they could be created (Kafka 0.10.2).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The controller responds when it has decided; use `wait_until_ready` to have all brokers know
        the topics. Changes beyond the user's quota are delayed and sent again (KIP-599). Raises
        TopicAlreadyExistsError, also if the response to a first attempt was lost,
        InvalidReplicationFactorError and so on: AdminItemsError if several topics were asked for.
        """
        wanted = list(topics)
        names = [topic.name for topic in wanted]
        if len(set(names)) < len(names):
            raise ValueError(f"topics: each may be given once, not {names}")
        return await _topic_changes.create_each(
            self._router, wanted, validate_only, self._deadline(timeout_ms)
        )

    async def delete(
        self, topics: Iterable[str | uuid.UUID], *, timeout_ms: float | None = None
    ) -> None:
        """Delete topics with all their records (Java: deleteTopics; by id from Kafka 2.8 on).

        Raises UnknownTopicOrPartitionError, also if the response to a first attempt was lost,
        UnknownTopicId, TopicDeletionDisabled: AdminItemsError if several topics were given.
        """
        wanted = _topics("topics", topics)
        await _topic_changes.delete_each(self._router, wanted, self._deadline(timeout_ms))

    async def create_partitions(
        self,
        topics: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Raise the number of partitions of topics (Java: createPartitions, KIP-195, Kafka 1.0).

        Args:
            topics: the total number that each is to have, or with their places a NewPartitions.
            validate_only: only check whether it could be done.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Records with a key go to other partitions from then on. Raises InvalidPartitionsError if a
        topic has as many already: AdminItemsError if several topics were given.
        """
        for name, new in topics.items():
            if isinstance(new, bool) or not isinstance(new, int | NewPartitions):
                raise TypeError(f"topics: {name}={new!r}: must be an int or a NewPartitions")
        await _topic_changes.grow_each(
            self._router, topics, validate_only, self._deadline(timeout_ms)
        )

    async def wait_until_ready(
        self, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Wait until every broker knows all partitions of these topics, each with a leader.

        A topic may be new: it need not be there yet. Raises KafkaTimeoutError that says what is
        amiss: AdminItemsError if several topics were given.
        """
        names = [topic for topic in _topics("topics", topics) if isinstance(topic, str)]
        await _readiness.wait_until_ready(self._router, names, self._deadline(timeout_ms))


def _topics(argument: str, topics: Iterable[str | uuid.UUID]) -> Collection[str | uuid.UUID]:
    """Return names and ids, each once."""
    if isinstance(topics, str | uuid.UUID):
        raise TypeError(f"{argument}: must be several topics, not one {type(topics).__name__}")
    wanted = dict.fromkeys(topics)
    for topic in wanted:
        if not isinstance(topic, str | uuid.UUID):
            raise TypeError(f"{argument}: {topic!r}: must be a name, or an id as a uuid.UUID")
    return wanted
