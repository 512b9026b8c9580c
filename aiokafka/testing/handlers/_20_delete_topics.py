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
from aiokafka.testing.handlers._common import await_controller, over_quota
from aiokafka.testing.script import RequestContext

REQUEST = DeleteTopicsRequest
_FIRST_QUOTA = 5


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic, by name or id."""
    errno = await await_controller(context, request.timeout_ms / 1000)
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
    errno = 0 if by_id else context.check_topic(wanted.name or "")
    if errno:
        return _refused(wanted, errno, None)
    truth = context.truth
    topic = (
        truth.topics_by_id.get(wanted.topic_id) if by_id else truth.topics.get(wanted.name or "")
    )
    if topic is None:
        errno = codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(wanted, errno, None)
    errno = context.check_topic(topic.name)
    errno = errno or over_quota(context, len(topic.partitions), _FIRST_QUOTA)
    if errno:
        return _refused(wanted, errno, None)
    if context.truth.config["delete.topic.enable"] != "true":
        return _refused(wanted, codes.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    context.truth.delete_topic(topic)
    context.services.topic_deleted(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _refused(wanted: DeleteTopicState, errno: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=errno, error_message=message
    )
