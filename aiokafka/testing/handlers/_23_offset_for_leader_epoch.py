"""OffsetForLeaderEpoch: where the epoch of a leader ended (KIP-320)."""

from __future__ import annotations

from aiokafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from aiokafka.testing.handlers._common import check_leader
from aiokafka.testing.script import RequestContext

REQUEST = OffsetForLeaderEpochRequest


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look all partitions up."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(context, topic.topic, p) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def refuse(
    context: RequestContext, request: OffsetForLeaderEpochRequest, errno: int
) -> OffsetForLeaderEpochResponse:
    """Say no to every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=p.partition, error_code=errno)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.state.partition(topic, asked.partition)
    errno = check_leader(context, partition, asked.current_leader_epoch)
    if errno or partition is None:
        return EpochEndOffset(partition=asked.partition, error_code=errno)
    epoch, end = partition.log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
