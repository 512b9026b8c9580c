"""Topics: their names, partitions, replicas and leaders."""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aiokafka._partitions import as_partition
from aiokafka.admin import _describe_topics, _readiness, _replicas, _topic_changes
from aiokafka.admin._arguments import as_new_topics, items_of
from aiokafka.admin._declared import DeclaredTopic, TopicStep, carry_out, declared_of, plan
from aiokafka.admin._room import Room
from aiokafka.admin._topic_values import (
    Reassignment,
    TopicCreation,
    TopicDescription,
    TopicListing,
)
from aiokafka.admin.enums import ElectionType
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.structs import TopicPartition

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
            pattern: which names: a shell pattern such as `orders-*`, or a compiled expression that
                matches the whole name; default all.
            include_internal: also topics in which Kafka keeps its own state.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        if isinstance(pattern, str):
            pattern = re.compile(fnmatch.translate(pattern))
        elif not isinstance(pattern, re.Pattern | None):
            raise TypeError(f"pattern={pattern!r}: must be a str or a compiled expression")
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
        wanted = as_new_topics("topics", topics)
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
        topic has as many already, also if the response to a first attempt was lost: AdminItemsError
        if several topics were given.
        """
        for name, new in items_of("topics", topics):
            if isinstance(new, bool) or not isinstance(new, int | NewPartitions):
                raise TypeError(f"topics: {name}={new!r}: must be an int or a NewPartitions")
        await _topic_changes.grow_each(
            self._router, topics, validate_only, self._deadline(timeout_ms)
        )

    async def wait_until_ready(
        self, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Wait until every broker knows all partitions of these topics, each with a leader.

        A topic, given by its name, may be new: it need not be there yet. Raises KafkaTimeoutError
        that says what is amiss: AdminItemsError if several topics were given.
        """
        names: list[str] = []
        for topic in _topics("topics", topics):
            if not isinstance(topic, str):
                raise TypeError(f"topics: {topic!r}: must be a name; ids are not waited for")
            names.append(topic)
        await _readiness.wait_until_ready(self._router, names, self._deadline(timeout_ms))

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Let the preferred replicas lead, or any where there is no leader (Java: electLeaders).

        Args:
            partitions: which; default all. Then brokers leave out partitions without an election.
            election_type: UNCLEAN takes a replica that is not in sync, and so loses records, where
                there is no leader (KIP-460, Kafka 2.4).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns True for a partition that got a leader, False if it had the right one already.
        Raises PreferredLeaderNotAvailable, EligibleLeadersNotAvailable: AdminItemsError if several
        partitions were given. Needs Kafka 2.2.
        """
        kind = ElectionType(election_type)
        if partitions is None:
            deadline = self._deadline(timeout_ms)
            return await _replicas.elect_all(self._router, kind, deadline)
        wanted = [as_partition(tp) for tp in partitions]
        return await _replicas.elect_each(self._router, wanted, kind, self._deadline(timeout_ms))

    async def reassign(
        self,
        moves: Mapping[TopicPartition, Sequence[int]],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Begin to move partitions to other brokers (Java: alterPartitionReassignments, KIP-455).

        Args:
            moves: the ids of the brokers that are to keep each partition, first the one that is to
                lead.
            allow_replication_factor_change: False refuses moves to more or fewer brokers than there
                are (KIP-860, Kafka 4.1).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Copying goes on after the call: see `reassignments`. A move replaces one that is under way.
        Raises InvalidReplicationAssignmentError and so on: AdminItemsError if several partitions
        were given. Needs Kafka 2.4.
        """
        wanted = {as_partition(tp): list(brokers) for tp, brokers in items_of("moves", moves)}
        for tp, brokers in wanted.items():
            if not brokers or len(set(brokers)) < len(brokers):
                raise ValueError(f"moves: {tp}: {brokers}: must be one broker or more, each once")
        await _replicas.reassign_each(
            self._router, wanted, allow_replication_factor_change, self._deadline(timeout_ms)
        )

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Take back moves that are under way (KIP-455).

        Raises NoReassignmentInProgress for a partition that does not move, also if the response to
        a first attempt was lost: AdminItemsError if several were given.
        """
        wanted = dict.fromkeys(as_partition(tp) for tp in partitions)
        await _replicas.reassign_each(self._router, wanted, True, self._deadline(timeout_ms))

    async def reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves that are under way (Java: listPartitionReassignments, KIP-455).

        Args:
            partitions: which to look at; default all. Those that do not move are left out.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = None if partitions is None else [as_partition(tp) for tp in partitions]
        return await _replicas.list_reassignments(self._router, wanted, self._deadline(timeout_ms))

    async def apply(
        self,
        declared: Mapping[str, DeclaredTopic | Mapping[str, Any] | None],
        *,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> Sequence[TopicStep]:
        """Bring topics to a declared state, and return what had to be done.

        Args:
            declared: by name what a topic is to be like, as a `DeclaredTopic` or a dict with its
                fields; None if it is to be deleted. Topics that are not named stay as they are.
            dry_run: only return what would be done.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Creates first, then adds partitions, changes settings, and deletes. Raises
        IllegalArgumentError, before anything is done, for fewer partitions than there are and for
        another replication factor. If a step fails, its error is raised and later ones are not
        made: the call may be repeated. If the response to a step was lost, it may fail because it
        was made already (TopicAlreadyExistsError). Changing settings needs Kafka 2.3.
        """
        wanted = declared_of(declared)
        deadline = self._deadline(timeout_ms)
        steps = await plan(self._router, wanted, deadline)
        if not dry_run:
            await carry_out(self._router, steps, deadline)
        return steps


def _topics(argument: str, topics: Iterable[str | uuid.UUID]) -> Collection[str | uuid.UUID]:
    """Return names and ids, each once."""
    if isinstance(topics, str | uuid.UUID):
        raise TypeError(f"{argument}: must be several topics, not one {type(topics).__name__}")
    wanted = dict.fromkeys(topics)
    for topic in wanted:
        if not isinstance(topic, str | uuid.UUID):
            raise TypeError(f"{argument}: {topic!r}: must be a name, or an id as a uuid.UUID")
    return wanted
