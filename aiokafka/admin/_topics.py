"""Making and deleting topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin._routing import Call, Router, raise_for, remaining_ms
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.results import DeletedTopics, TopicError, TopicResults
from aiokafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from aiokafka.protocol.schema import ZERO_UUID


async def create_topics(
    router: Router, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> TopicResults:
    """Create topics, or with `validate_only` only check whether they could be."""
    wanted = [_creatable(topic) for topic in topics]

    def build(version: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=wanted, timeout_ms=remaining_ms(deadline), validate_only=validate_only
        )

    call = Call(CreateTopicsRequest, build, lambda answer: [t.error_code for t in answer.topics])
    response = await router.to_controller(call, deadline)
    return TopicResults(
        response.throttle_time_ms,
        [TopicError(t.name, t.error_code, t.error_message or None) for t in response.topics],
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.replica_assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value)
            for name, value in topic.topic_configs.items()
        ],
    )


async def delete_topics(router: Router, topics: Iterable[str], deadline: float) -> DeletedTopics:
    """Delete topics by name."""
    names = list(topics)

    def build(version: int) -> DeleteTopicsRequest:
        timeout_ms = remaining_ms(deadline)
        if version < 6:
            return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)

    call = Call(DeleteTopicsRequest, build, lambda answer: [t.error_code for t in answer.responses])
    response = await router.to_controller(call, deadline)
    return DeletedTopics(
        response.throttle_time_ms,
        [TopicError(str(t.name), t.error_code, t.error_message) for t in response.responses],
    )


async def create_partitions(
    router: Router,
    topics: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> TopicResults:
    """Give topics more partitions; the first error of a topic is raised."""
    wanted = [_grown(name, new) for name, new in topics.items()]

    def build(version: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=wanted, timeout_ms=remaining_ms(deadline), validate_only=validate_only
        )

    call = Call(
        CreatePartitionsRequest, build, lambda answer: [t.error_code for t in answer.results]
    )
    response = await router.to_controller(call, deadline)
    for topic in response.results:
        raise_for(topic.error_code, topic.error_message, topic.name)
    return TopicResults(
        response.throttle_time_ms,
        [TopicError(t.name, t.error_code, t.error_message) for t in response.results],
    )


def _grown(name: str, new: NewPartitions | int) -> CreatePartitionsTopic:
    new = NewPartitions(new) if isinstance(new, int) else new
    assignments = None
    if new.new_assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(b)) for b in new.new_assignments]
    return CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)
