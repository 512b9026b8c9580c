"""DeleteTopics."""

from __future__ import annotations

from aiokafka.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import check_controller, find_topic
from aiokafka.testing.script import RequestContext

REQUEST = DeleteTopicsRequest


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic, by name or id."""
    errno = check_controller(context)
    if errno:
        return refuse(context, request, errno)
    return DeleteTopicsResponse(responses=[_delete(context, t) for t in _wanted(context, request)])


def refuse(
    context: RequestContext, request: DeleteTopicsRequest, errno: int
) -> DeleteTopicsResponse:
    """Say no to every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=errno)
            for wanted in _wanted(context, request)
        ]
    )


def _wanted(context: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if context.api_version >= 6:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _delete(context: RequestContext, wanted: DeleteTopicState) -> DeletableTopicResult:
    by_id = wanted.topic_id != ZERO_UUID
    if by_id and wanted.name is not None:
        return _refused(wanted, codes.INVALID_REQUEST, "Both name and id were given.")
    topic = find_topic(context, wanted.name or "", wanted.topic_id)
    if topic is None:
        errno = codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(wanted, errno, None)
    if context.state.config["delete.topic.enable"] != "true":
        return _refused(wanted, codes.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    context.state.delete_topic(topic)
    context.services.topic_deleted(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _refused(wanted: DeleteTopicState, errno: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=errno, error_message=message
    )
