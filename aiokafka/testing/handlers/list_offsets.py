"""ListOffsets and OffsetForLeaderEpoch: offsets by time, and by leader epoch."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiokafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from aiokafka.testing.handlers import handles, refuses
from aiokafka.testing.handlers._common import check_leader, per_partition
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.script import RequestContext

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_FIRST_VERSION = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_FIRST_VERSION[_EARLIEST_PENDING_UPLOAD] = 11
_READ_COMMITTED = 1
_NOWHERE = (-1, -1, -1)
_FIRST_NOT_AVAILABLE = 5


@handles(ListOffsetsRequest)
def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up the offset of the requested timestamp in each partition."""
    topics = per_partition(
        ListOffsetsTopicResponse,
        request.topics,
        lambda topic, asked: _find_offset(context, request, topic, asked),
    )
    return ListOffsetsResponse(topics=topics)


@refuses(ListOffsetsRequest)
def refuse_list_offsets(
    context: RequestContext, request: ListOffsetsRequest, errno: int
) -> ListOffsetsResponse:
    """Return a response with `errno` for every partition."""
    topics = per_partition(
        ListOffsetsTopicResponse,
        request.topics,
        lambda topic, asked: _refused_partition(asked, errno),
    )
    return ListOffsetsResponse(topics=topics)


def _refused_partition(asked: ListOffsetsPartition, errno: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=errno)


def _find_offset(
    context: RequestContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    partition = context.state.partition(topic, asked.partition_index)
    errno = check_leader(context, partition, asked.current_leader_epoch)
    if errno or partition is None:
        return _refused_partition(asked, errno)
    log = partition.log
    committed = request.isolation_level == _READ_COMMITTED
    limit = log.last_stable_offset if committed else log.high_watermark
    if context.api_version == 0:
        return _old_style(log, asked, limit)
    oldest = min(_FIRST_VERSION)
    if asked.timestamp < oldest or context.api_version < _FIRST_VERSION.get(asked.timestamp, 0):
        return _refused_partition(asked, errors.UnsupportedVersionError.errno)
    timestamp, offset, epoch = _look_up(log, asked.timestamp, limit)
    if log.high_watermark < log.epoch_start and (asked.timestamp == _LATEST or offset >= limit):
        # A new leader does not know the high watermark until its followers fetch (KIP-207).
        new = context.api_version >= _FIRST_NOT_AVAILABLE
        return _refused_partition(
            asked, errors.OffsetNotAvailable.errno if new else errors.LeaderNotAvailableError.errno
        )
    if asked.timestamp == _MAX_TIMESTAMP and offset >= limit:
        timestamp, offset, epoch = _NOWHERE  # the record cannot be read yet
    response = ListOffsetsPartitionResponse(
        partition_index=partition.index, timestamp=timestamp, offset=offset
    )
    if context.api_version >= 4:
        response.leader_epoch = epoch
    return response


def _look_up(log: PartitionLog, timestamp: int, limit: int) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch), each -1 if there is none."""
    if timestamp == _LATEST:
        return -1, limit, log.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.start_offset, log.epoch_of(log.start_offset)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):  # the fake has no tiered storage
        return _NOWHERE
    if timestamp == _MAX_TIMESTAMP:
        return log.offset_of_max_timestamp() or _NOWHERE
    return log.offset_for_time(timestamp, limit) or _NOWHERE


def _old_style(
    log: PartitionLog, asked: ListOffsetsPartition, limit: int
) -> ListOffsetsPartitionResponse:
    """Return the first offsets of segments up to the timestamp, the newest first, as version 0 does
    (before KIP-79). The fake's log is one segment.
    """
    offsets = [limit, log.start_offset] if asked.timestamp == _LATEST else [log.start_offset]
    if len(offsets) == 2 and offsets[0] == offsets[1]:
        offsets.pop()
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, old_style_offsets=offsets[: asked.max_num_offsets]
    )


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look up the end offset of the leader epoch in each partition (KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find_end(context, topic.topic, p) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find_end(
    context: RequestContext, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    partition = context.state.partition(topic, asked.partition)
    errno = check_leader(context, partition, asked.current_leader_epoch)
    if errno or partition is None:
        return EpochEndOffset(partition=asked.partition, error_code=errno)
    epoch, end = partition.log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
