"""CreateTopics."""

from __future__ import annotations

from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import await_controller, over_quota
from aiokafka.testing.script import RequestContext
from aiokafka.testing.settings import TOPIC_DEFAULTS
from aiokafka.testing.state import Topic, TopicRefusedError

REQUEST = CreateTopicsRequest
_FIRST_DEFAULTS = 4
_FIRST_QUOTA = 6
_FROM_TOPIC, _FROM_DEFAULT = 1, 5


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic, or only check."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    names = [topic.name for topic in request.topics]
    return CreateTopicsResponse(
        topics=[
            _twice(topic) if names.count(topic.name) > 1 else _create(context, request, topic)
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
    )


def refuse(
    context: RequestContext, request: CreateTopicsRequest, errno: int
) -> CreateTopicsResponse:
    """Say no to every topic."""
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=errno, error_message=None)
            for topic in request.topics
        ]
    )


def _twice(topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        error_code=codes.INVALID_REQUEST,
        error_message="Duplicate topic name.",
    )


def _create(
    context: RequestContext, request: CreateTopicsRequest, topic: CreatableTopic
) -> CreatableTopicResult:
    config = {entry.name: entry.value or "" for entry in topic.configs}
    assignment = {a.partition_index: a.broker_ids for a in topic.assignments}
    numbers = topic.num_partitions, topic.replication_factor
    if context.api_version < _FIRST_DEFAULTS and not assignment:
        numbers = max(0, numbers[0]), max(0, numbers[1])  # -1 is a number like others, and refused
    state = context.truth
    errno = context.check_topic(topic.name)
    if errno:
        return CreatableTopicResult(name=topic.name, error_code=errno, error_message=None)
    changes = len(assignment) or max(topic.num_partitions, 1)
    errno = over_quota(context, changes, _FIRST_QUOTA)
    if errno:
        return CreatableTopicResult(name=topic.name, error_code=errno, error_message=None)
    try:
        if assignment and numbers != (-1, -1):
            raise TopicRefusedError(
                codes.INVALID_REQUEST,
                "Both the numbers and the manual assignment were given; only one is allowed.",
            )
        created = state.create_topic(topic.name, *numbers, config=config, assignment=assignment)
        if request.validate_only:
            state.delete_topic(created)
    except TopicRefusedError as exc:
        return CreatableTopicResult(
            name=topic.name, error_code=exc.errno, error_message=exc.message
        )
    return _created(created)


def _created(topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name,
                value=topic.setting(name),
                read_only=False,
                config_source=_FROM_TOPIC if name in topic.config else _FROM_DEFAULT,
                is_sensitive=False,
            )
            for name in TOPIC_DEFAULTS
        ],
    )
