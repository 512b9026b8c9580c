"""Creating and deleting topics, and adding partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from aiokafka.admin._arguments import items_of
from aiokafka.admin._config_values import text_of
from aiokafka.admin._routing import Call, Router, raise_for, remaining_ms
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.results import (
    CreatedTopic,
    CreatedTopics,
    DeletedTopics,
    TopicError,
    TopicResults,
)
from aiokafka.errors import KafkaTimeoutError, ThrottlingQuotaExceeded, UnsupportedVersionError
from aiokafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from aiokafka.protocol.schema import ZERO_UUID

_OVER_QUOTA = ThrottlingQuotaExceeded.errno
_FIRST_PAUSE = 0.05  # seconds, where the broker names no pause
_FIRST_WITH_DEFAULTS = 4


class _Answer(Protocol):
    """What a response says about one topic."""

    @property
    def name(self) -> str | None:
        """Name of the topic."""

    @property
    def error_code(self) -> int:
        """Kafka's code; 0 is success."""


A = TypeVar("A", bound=_Answer)
Names = Collection[str | None] | None


async def _within_quota(
    ask: Callable[[Names], Awaitable[tuple[int, list[A]]]], deadline: float
) -> tuple[int, list[A]]:
    """Ask about all topics, then again about those over the quota for changes (KIP-599).

    Pauses as the broker demands, and gives up at the deadline. `ask` takes names (None: of all
    topics) and returns the throttle time with one result per topic.
    """
    loop = asyncio.get_running_loop()
    throttle_time_ms, answers = await ask(None)
    found = {answer.name: answer for answer in answers}
    pause = _FIRST_PAUSE
    while late := [name for name, each in found.items() if each.error_code == _OVER_QUOTA]:
        pause = max(pause * 2, throttle_time_ms / 1000)
        if loop.time() + pause >= deadline:
            break
        await asyncio.sleep(pause)
        try:
            throttle_time_ms, answers = await ask(late)
        except KafkaTimeoutError:
            break  # what is known of the others counts all the same
        found.update((answer.name, answer) for answer in answers)
    return throttle_time_ms, list(found.values())


async def create_topics(
    router: Router, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> CreatedTopics:
    """Create topics, or with `validate_only` only check whether they could be."""
    wanted = list(topics)

    async def ask(names: Names) -> tuple[int, list[CreatableTopicResult]]:
        def build(version: int) -> CreateTopicsRequest:
            chosen = [topic for topic in wanted if names is None or topic.name in names]
            return CreateTopicsRequest(
                topics=[creatable(topic, version) for topic in chosen],
                timeout_ms=remaining_ms(deadline),
                validate_only=validate_only,
            )

        call = Call(CreateTopicsRequest, build, lambda found: [t.error_code for t in found.topics])
        response = await router.to_controller(call, deadline)
        return response.throttle_time_ms, response.topics

    throttle_time_ms, found = await _within_quota(ask, deadline)
    results = CreatedTopics(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message or None) for t in found]
    )
    results.details = {t.name: _details(t) for t in found if _is_told(t)}
    return results


def _is_told(topic: CreatableTopicResult) -> bool:
    return not topic.error_code and (
        topic.num_partitions > 0 or bool(topic.topic_config_error_code)
    )


def _details(topic: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.configs is not None and not topic.topic_config_error_code:
        configs = {entry.name: entry.value for entry in topic.configs}
    return CreatedTopic(topic.num_partitions, topic.replication_factor, configs)


def creatable(topic: NewTopic, version: int) -> CreatableTopic:
    """Return a new topic as a version of the request has it.

    Raises UnsupportedVersionError for numbers that are left to brokers which have no defaults.
    """
    is_open = -1 in (topic.num_partitions, topic.replication_factor)
    if version < _FIRST_WITH_DEFAULTS and is_open and not topic.replica_assignments:
        raise UnsupportedVersionError(
            f"CreateTopics: {topic.name}: to leave the numbers of partitions and replicas to the "
            "brokers needs Kafka 2.4 (KIP-464): give both"
        )
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.replica_assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=None if value is None else text_of(name, value))
            for name, value in topic.topic_configs.items()
        ],
    )


async def delete_topics(router: Router, topics: Iterable[str], deadline: float) -> DeletedTopics:
    """Delete topics by name."""
    wanted = list(topics)

    async def ask(names: Names) -> tuple[int, list[DeletableTopicResult]]:
        chosen = [name for name in wanted if names is None or name in names]

        def build(version: int) -> DeleteTopicsRequest:
            timeout_ms = remaining_ms(deadline)
            if version < 6:
                return DeleteTopicsRequest(topic_names=chosen, timeout_ms=timeout_ms)
            states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in chosen]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)

        call = Call(
            DeleteTopicsRequest, build, lambda found: [t.error_code for t in found.responses]
        )
        response = await router.to_controller(call, deadline)
        return response.throttle_time_ms, response.responses

    throttle_time_ms, found = await _within_quota(ask, deadline)
    return DeletedTopics(
        throttle_time_ms,
        [TopicError(str(t.name), t.error_code, t.error_message) for t in found],
    )


async def create_partitions(
    router: Router,
    topics: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> TopicResults:
    """Add partitions to topics. Raises the first error of a topic."""
    for name, new in items_of("topic_partitions", topics):
        if isinstance(new, bool) or not (isinstance(new, int) or hasattr(new, "total_count")):
            raise TypeError(f"topic_partitions: {name}={new!r}: must be a NewPartitions or an int")
    wanted = [grown(name, new) for name, new in topics.items()]

    async def ask(names: Names) -> tuple[int, list[CreatePartitionsTopicResult]]:
        def build(version: int) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=[topic for topic in wanted if names is None or topic.name in names],
                timeout_ms=remaining_ms(deadline),
                validate_only=validate_only,
            )

        call = Call(
            CreatePartitionsRequest, build, lambda found: [t.error_code for t in found.results]
        )
        response = await router.to_controller(call, deadline)
        return response.throttle_time_ms, response.results

    throttle_time_ms, found = await _within_quota(ask, deadline)
    for topic in found:
        raise_for(topic.error_code, topic.error_message, topic.name)
    return TopicResults(
        throttle_time_ms, [TopicError(t.name, t.error_code, t.error_message) for t in found]
    )


def grown(name: str, new: NewPartitions | int) -> CreatePartitionsTopic:
    """Return a topic with more partitions as the request has it."""
    new = NewPartitions(new) if isinstance(new, int) else new
    assignments = None
    if new.new_assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(b)) for b in new.new_assignments]
    return CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)
