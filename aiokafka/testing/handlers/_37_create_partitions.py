"""CreatePartitions: give topics more partitions."""

from __future__ import annotations

from aiokafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import await_controller, over_quota
from aiokafka.testing.script import RequestContext

REQUEST = CreatePartitionsRequest
_FIRST_QUOTA = 3


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Grow each topic, or only check."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    return CreatePartitionsResponse(
        throttle_time_ms=0, results=[_grow(context, request, topic) for topic in request.topics]
    )


def refuse(
    context: RequestContext, request: CreatePartitionsRequest, errno: int
) -> CreatePartitionsResponse:
    """Say no to every topic."""
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=errno)
            for topic in request.topics
        ],
    )


def _grow(
    context: RequestContext, request: CreatePartitionsRequest, asked: CreatePartitionsTopic
) -> CreatePartitionsTopicResult:
    topic = context.truth.topics.get(asked.name)
    result = CreatePartitionsTopicResult(name=asked.name)
    errno = context.check_topic(asked.name)
    if errno:
        result.error_code = errno
        return result
    if topic is None:
        result.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
        return result
    present = len(topic.partitions)
    if asked.count <= present:
        result.error_code = codes.INVALID_PARTITIONS
        result.error_message = f"The topic {asked.name} currently has {present} partition(s)."
        return result
    placed = [assignment.broker_ids for assignment in asked.assignments or []]
    factor = len(topic.partitions[0].replicas)
    count = asked.count - present
    if asked.assignments is not None and not _is_valid(context, placed, count, factor):
        result.error_code = codes.INVALID_REPLICA_ASSIGNMENT
        result.error_message = "The manual partition assignment is not valid."
        return result
    if asked.assignments is None and not context.truth.live_nodes():
        # Those that are cut off from the controller still answer clients.
        result.error_code = codes.INVALID_REPLICATION_FACTOR
        result.error_message = "All brokers are currently fenced."
        return result
    result.error_code = over_quota(context, asked.count - present, _FIRST_QUOTA)
    if not request.validate_only and not result.error_code:
        context.truth.add_partitions(topic, asked.count, placed)
    return result


def _is_valid(context: RequestContext, placed: list[list[int]], count: int, factor: int) -> bool:
    known = set(context.truth.nodes)
    return len(placed) == count and all(
        len(nodes) == len(set(nodes)) == factor and set(nodes) <= known for nodes in placed
    )
