"""DeleteRecords: move the start of partitions forward."""

from __future__ import annotations

from aiokafka.protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import check_leader
from aiokafka.testing.script import RequestContext

REQUEST = DeleteRecordsRequest
_TO_THE_END = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete what is before the offsets."""
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(context, topic.name, p) for p in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def refuse(
    context: RequestContext, request: DeleteRecordsRequest, errno: int
) -> DeleteRecordsResponse:
    """Say no to every partition."""
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_refused(p, errno) for p in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _refused(asked: DeleteRecordsPartition, errno: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=errno
    )


def _delete(
    context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    partition = context.state.partition(topic, asked.partition_index)
    errno = check_leader(context, partition)
    if errno or partition is None:
        return _refused(asked, errno)
    policy = context.state.topics[topic].setting("cleanup.policy")
    if "compact" in policy and "delete" not in policy:
        return _refused(asked, codes.POLICY_VIOLATION)
    log = partition.log
    offset = log.high_watermark if asked.offset == _TO_THE_END else asked.offset
    if not 0 <= offset <= log.high_watermark:
        return _refused(asked, codes.OFFSET_OUT_OF_RANGE)
    log.delete_before(offset)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=log.start_offset
    )
