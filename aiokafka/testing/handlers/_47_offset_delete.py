"""OffsetDelete: committed positions of topics that the group does not consume."""

from __future__ import annotations

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from aiokafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from aiokafka.testing import codes
from aiokafka.testing.classic_group import ClassicGroup
from aiokafka.testing.script import RequestContext

REQUEST = OffsetDeleteRequest


def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete those that no member consumes."""
    groups = context.services.groups
    errno = groups.check_coordinator(context.node_id, request.group_id)
    if not errno and not groups.exists(request.group_id):
        errno = codes.GROUP_ID_NOT_FOUND
    if errno:
        return refuse(context, request, errno)
    in_use = _subscribed(context, request.group_id)
    response = OffsetDeleteResponse(throttle_time_ms=0, topics=[])
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answer)
        for part in topic.partitions:
            key = (topic.name, part.partition_index)
            errno = codes.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in in_use else codes.NONE
            if context.state.partition(*key) is None:
                errno = codes.UNKNOWN_TOPIC_OR_PARTITION
            errno = context.check_topic(topic.name) or errno
            if not errno:
                groups.offsets_of(request.group_id).delete(key)
            answer.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index, error_code=errno
                )
            )
    return response


def refuse(
    context: RequestContext, request: OffsetDeleteRequest, errno: int
) -> OffsetDeleteResponse:
    """Say no to the whole."""
    return OffsetDeleteResponse(error_code=errno, throttle_time_ms=0, topics=[])


def _subscribed(context: RequestContext, group_id: str) -> set[str]:
    groups = context.services.groups
    classic = groups.classic.get(group_id)
    if classic is not None:
        return _subscribed_classic(classic)
    consumer = groups.consumer.get(group_id)
    members = consumer.members.values() if consumer is not None else ()
    return {topic for member in members for topic in member.topics}


def _subscribed_classic(group: ClassicGroup) -> set[str]:
    topics: set[str] = set()
    for member in group.members.values():
        try:
            subscription, _ = codec(ConsumerProtocolSubscription, 0).decode_prefix(
                member.metadata(group.protocol)[2:]
            )
        except KafkaProtocolError:
            continue  # not a consumer group, or not yet voted
        topics.update(subscription.topics)
    return topics
