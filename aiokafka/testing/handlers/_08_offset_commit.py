"""OffsetCommit: store positions of a group."""

from __future__ import annotations

from aiokafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._committing import check_committer
from aiokafka.testing.handlers._common import find_topic
from aiokafka.testing.offsets import CommittedOffset
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Topic

REQUEST = OffsetCommitRequest
_FIRST_TOPIC_IDS = 10


def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Store them if the committer is a member, or the group has none."""
    errno = check_committer(
        context,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )
    if errno:
        return refuse(context, request, errno)
    return OffsetCommitResponse(topics=[_commit(context, request, t) for t in request.topics])


def refuse(
    context: RequestContext, request: OffsetCommitRequest, errno: int
) -> OffsetCommitResponse:
    """Say no to every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_answer(part, errno) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(part: OffsetCommitRequestPartition, errno: int = 0) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=errno)


def _commit(
    context: RequestContext, request: OffsetCommitRequest, asked: OffsetCommitRequestTopic
) -> OffsetCommitResponseTopic:
    topic = find_topic(context, asked.name, asked.topic_id)
    return OffsetCommitResponseTopic(
        # Later versions do not send it; scripts that change a response look for it.
        name=asked.name if topic is None else topic.name,
        topic_id=asked.topic_id,
        partitions=[_commit_one(context, request, topic, part) for part in asked.partitions],
    )


def _commit_one(
    context: RequestContext,
    request: OffsetCommitRequest,
    topic: Topic | None,
    part: OffsetCommitRequestPartition,
) -> OffsetCommitResponsePartition:
    if topic is None and context.api_version >= _FIRST_TOPIC_IDS:
        return _answer(part, codes.UNKNOWN_TOPIC_ID)
    errno = 0 if topic is None else context.check_topic(topic.name)
    if errno:
        return _answer(part, errno)
    if topic is None or context.state.partition(topic.name, part.partition_index) is None:
        return _answer(part, codes.UNKNOWN_TOPIC_OR_PARTITION)
    metadata = part.committed_metadata or ""
    if len(metadata.encode()) > context.state.setting("offset.metadata.max.bytes"):
        return _answer(part, codes.OFFSET_METADATA_TOO_LARGE)
    context.services.groups.offsets_of(request.group_id).commit(
        (topic.name, part.partition_index),
        CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata),
    )
    return _answer(part)
