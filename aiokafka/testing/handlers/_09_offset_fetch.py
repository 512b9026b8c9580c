"""OffsetFetch: read committed positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiokafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import find_topic
from aiokafka.testing.offsets import CommittedOffset
from aiokafka.testing.script import RequestContext

REQUEST = OffsetFetchRequest
_FIRST_SEVERAL = 8
_FIRST_MEMBER = 9
_FIRST_TOPIC_IDS = 10
_FIRST_GROUP_ERROR = 2
_NOTHING = CommittedOffset(-1)

P = TypeVar("P")


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the positions of one group, or of several."""
    if context.api_version >= _FIRST_SEVERAL:
        groups = [_group(context, request, group) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    groups_ = context.services.groups
    errno = groups_.check_coordinator(context.node_id, request.group_id)
    if errno:
        return refuse(context, request, errno)
    wanted = (
        _all_by_topic(context, request.group_id)
        if request.topics is None
        else {topic.name: topic.partition_indexes for topic in request.topics}
    )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _partition(
                        OffsetFetchResponsePartition,
                        *_look_up(context, request, request.group_id, name, index),
                    )
                    for index in indexes
                ],
            )
            for name, indexes in wanted.items()
        ]
    )


def refuse(context: RequestContext, request: OffsetFetchRequest, errno: int) -> OffsetFetchResponse:
    """Say no: by group, for the whole, or before v2 by partition."""
    if context.api_version >= _FIRST_SEVERAL:
        return OffsetFetchResponse(groups=[_refused(g, errno) for g in request.groups])
    if context.api_version >= _FIRST_GROUP_ERROR:
        return OffsetFetchResponse(error_code=errno)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _partition(OffsetFetchResponsePartition, i, _NOTHING, errno)
                    for i in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


def _refused(group: OffsetFetchRequestGroup, errno: int) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=errno)


def _all_by_topic(context: RequestContext, group_id: str) -> dict[str, list[int]]:
    """Return the partitions with a position, of topics that the client may know of."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(context.services.groups.committed_of(group_id)):
        if not context.check_topic(topic):
            found.setdefault(topic, []).append(index)
    return found


def _look_up(
    context: RequestContext, request: OffsetFetchRequest, group_id: str, topic: str, index: int
) -> tuple[int, CommittedOffset, int]:
    """Return (partition, position, error code)."""
    errno = context.check_topic(topic)
    if errno:
        return index, _NOTHING, errno
    offsets = context.services.groups.offsets.get(group_id)
    if offsets is None:
        return index, _NOTHING, codes.NONE
    if request.require_stable and offsets.is_unstable((topic, index)):
        return index, _NOTHING, codes.UNSTABLE_OFFSET_COMMIT
    return index, offsets.committed.get((topic, index), _NOTHING), codes.NONE


def _partition(kind: Callable[..., P], index: int, found: CommittedOffset, errno: int) -> P:
    """Return what a response says of a partition; `kind` is that of one group, or of several."""
    return kind(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=errno,
    )


def _group(
    context: RequestContext, request: OffsetFetchRequest, asked: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    groups = context.services.groups
    errno = context.services.acls.check_named(context, "group", asked.group_id, "describe")
    errno = errno or groups.check_coordinator(context.node_id, asked.group_id)
    errno = errno or _check_member(context, asked)
    if errno:
        return _refused(asked, errno)
    by_id = context.api_version >= _FIRST_TOPIC_IDS
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, topics=[])
    if asked.topics is None:
        for name, indexes in _all_by_topic(context, asked.group_id).items():
            topic = context.state.topics.get(name)
            topic_id = topic.topic_id if by_id and topic is not None else ZERO_UUID
            answer.topics.append(_topic(context, request, asked, name, topic_id, indexes))
        return answer
    for wanted in asked.topics:
        known = find_topic(context, wanted.name, wanted.topic_id) if by_id else None
        if by_id and known is None:
            answer.topics.append(_unknown(wanted.topic_id, wanted.partition_indexes))
            continue
        name = wanted.name if known is None else known.name
        answer.topics.append(
            _topic(context, request, asked, name, wanted.topic_id, wanted.partition_indexes)
        )
    return answer


def _check_member(context: RequestContext, asked: OffsetFetchRequestGroup) -> int:
    """Return the error code for the member that a request names (KIP-848); 0 if it names none."""
    group = context.services.groups.consumer.get(asked.group_id)
    if context.api_version < _FIRST_MEMBER or group is None or asked.member_id is None:
        return codes.NONE
    if asked.member_epoch < 0:
        return codes.NONE
    member = group.members.get(asked.member_id)
    if member is None:
        return codes.UNKNOWN_MEMBER_ID
    if member.epoch == asked.member_epoch:
        return codes.NONE
    is_classic = member.classic is not None
    return codes.ILLEGAL_GENERATION if is_classic else codes.STALE_MEMBER_EPOCH


def _topic(
    context: RequestContext,
    request: OffsetFetchRequest,
    asked: OffsetFetchRequestGroup,
    name: str,
    topic_id: bytes,
    indexes: list[int],
) -> OffsetFetchResponseTopics:
    found = [_look_up(context, request, asked.group_id, name, index) for index in indexes]
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[_partition(OffsetFetchResponsePartitions, *each) for each in found],
    )


def _unknown(topic_id: bytes, indexes: list[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name="",
        topic_id=topic_id,
        partitions=[
            _partition(OffsetFetchResponsePartitions, index, _NOTHING, codes.UNKNOWN_TOPIC_ID)
            for index in indexes
        ],
    )
