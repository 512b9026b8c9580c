"""Creating, deleting and growing topics, each with an outcome of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from aiokafka.admin._items import settle
from aiokafka.admin._routing import Call, Router, error_of, remaining_ms
from aiokafka.admin._topic_values import TopicCreation, TopicSetting, uuid_of
from aiokafka.admin._topics import creatable, grown
from aiokafka.admin.enums import ConfigSource
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.errors import (
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import topics as wire
from aiokafka.protocol.schema import ZERO_UUID

Topic = str | uuid.UUID
GONE = (UnknownTopicOrPartitionError, UnknownTopicId)
"""A topic that the controller does not know will not turn up."""


async def create_each(
    router: Router, topics: Iterable[NewTopic], validate_only: bool, deadline: float
) -> dict[str, TopicCreation]:
    """Create topics, or check whether they could be; return what each is like."""
    wanted = {topic.name: topic for topic in topics}

    async def ask(left: list[str]) -> dict[str, TopicCreation | KafkaError]:
        def build(version: int) -> wire.CreateTopicsRequest:
            return wire.CreateTopicsRequest(
                topics=[creatable(wanted[name], version) for name in left],
                timeout_ms=remaining_ms(deadline),
                validate_only=validate_only,
            )

        call = Call(wire.CreateTopicsRequest, build, lambda r: [t.error_code for t in r.topics])
        response = await router.to_controller(call, deadline)
        return {
            each.name: error_of(each.error_code, each.error_message, each.name) or _creation(each)
            for each in response.topics
        }

    return await settle(router, wanted, ask, deadline)


def _creation(topic: wire.CreatableTopicResult) -> TopicCreation:
    configs = None
    if topic.configs and not topic.topic_config_error_code:
        configs = {
            each.name: TopicSetting(
                each.value, ConfigSource(each.config_source), each.is_sensitive, each.read_only
            )
            for each in topic.configs
        }
    return TopicCreation(
        topic_id=uuid_of(topic.topic_id),
        num_partitions=topic.num_partitions if topic.num_partitions >= 0 else None,
        replication_factor=topic.replication_factor if topic.replication_factor >= 0 else None,
        configs=configs,
    )


async def delete_each(router: Router, topics: Iterable[Topic], deadline: float) -> None:
    """Delete topics by name or id."""

    async def ask(left: list[Topic]) -> dict[Topic, bool | KafkaError]:
        def build(version: int) -> wire.DeleteTopicsRequest:
            timeout_ms = remaining_ms(deadline)
            if version >= 6:
                states = [_state(topic) for topic in left]
                return wire.DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
            names = [topic for topic in left if isinstance(topic, str)]
            if len(names) < len(left):
                raise UnsupportedVersionError("DeleteTopics: topics by id need Kafka 2.8")
            return wire.DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)

        call = Call(wire.DeleteTopicsRequest, build, lambda r: [t.error_code for t in r.responses])
        response = await router.to_controller(call, deadline)
        found: dict[Topic, bool | KafkaError] = {}
        for each in response.responses:
            topic_id = uuid_of(each.topic_id)
            item: Topic = topic_id if topic_id in left else str(each.name)
            found[item] = error_of(each.error_code, each.error_message, item) or True
        return found

    await settle(router, topics, ask, deadline, final=GONE)


def _state(topic: Topic) -> wire.DeleteTopicState:
    if isinstance(topic, uuid.UUID):
        return wire.DeleteTopicState(name=None, topic_id=topic.bytes)
    return wire.DeleteTopicState(name=topic, topic_id=ZERO_UUID)


async def grow_each(
    router: Router,
    topics: Mapping[str, NewPartitions | int],
    validate_only: bool,
    deadline: float,
) -> None:
    """Add partitions to topics, or check whether that could be done."""
    wanted = {name: grown(name, new) for name, new in topics.items()}

    async def ask(left: list[str]) -> dict[str, bool | KafkaError]:
        def build(version: int) -> wire.CreatePartitionsRequest:
            return wire.CreatePartitionsRequest(
                topics=[wanted[name] for name in left],
                timeout_ms=remaining_ms(deadline),
                validate_only=validate_only,
            )

        call = Call(
            wire.CreatePartitionsRequest, build, lambda r: [t.error_code for t in r.results]
        )
        response = await router.to_controller(call, deadline)
        return {
            each.name: error_of(each.error_code, each.error_message, each.name) or True
            for each in response.results
        }

    await settle(router, wanted, ask, deadline, final=GONE)
