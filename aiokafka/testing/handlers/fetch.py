"""Fetch, ListOffsets and OffsetForLeaderEpoch: batches, and offsets by time or epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass

from aiokafka import errors
from aiokafka.protocol.messages.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    NodeEndpoint,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    PartitionData,
)
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.batches import Batch, Buffer, to_message_set
from aiokafka.testing.fetch_sessions import FetchPosition, FetchSession
from aiokafka.testing.handlers import answer_items, handles, refuses
from aiokafka.testing.handlers._common import (
    await_change,
    check_epoch,
    is_offline,
    leader_endpoints,
    leads,
    require_leader,
)
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Partition

_ZSTD = 4
_FIRST_WITHOUT_PARTIAL = 3  # first version that returns the first batch whole (KIP-74)
_FIRST_BATCH_V2 = 4
_FIRST_ZSTD = 10
_FIRST_DIVERGING = 12
_FIRST_TOPIC_IDS = 13
_FIRST_ENDPOINTS = 16
_READ_COMMITTED = 1
_UNKNOWN = (errors.UnknownTopicOrPartitionError.errno, errors.UnknownTopicId.errno)


@handles(FetchRequest)
def fetch(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the partitions of the request and of its fetch session. Wait up to `max_wait_ms` for
    `min_bytes`."""
    sessions = context.services.fetch_sessions(context.node_id)
    session, incremental = sessions.open(
        request.session_id,
        request.session_epoch,
        _positions(context, request),
        _forgotten(context, request),
    )
    positions = tuple(session.positions.values())
    reads, enough = _check_all(context, request, positions)
    if not enough:
        return _wait_and_read(context, request, (session, incremental), positions)
    return _read_all(context, request, session, incremental, reads)


async def _wait_and_read(
    context: RequestContext,
    request: FetchRequest,
    opened: tuple[FetchSession, bool],
    positions: Sequence[FetchPosition],
) -> FetchResponse:
    reads = await _wait_until_enough(context, request, positions)
    return _read_all(context, request, *opened, reads)


def _read_all(
    context: RequestContext,
    request: FetchRequest,
    session: FetchSession,
    incremental: bool,
    reads: list[_PartitionRead],
) -> FetchResponse:
    response = FetchResponse(session_id=session.session_id, responses=[])
    budget = request.max_bytes
    for one in reads:
        data, size = _read(context, request, one, budget)
        budget -= size
        if size:
            session.served(one.position)
        if _has_changed(one, data) or not incremental:
            _add(context, response, one.position, data)
    if context.api_version >= _FIRST_ENDPOINTS:
        partitions = (part for topic in response.responses for part in topic.partitions)
        response.node_endpoints = leader_endpoints(context, NodeEndpoint, partitions)
    return response


@refuses(FetchRequest)
def refuse_fetch(context: RequestContext, request: FetchRequest, errno: int) -> FetchResponse:
    """Return a response with `errno`; before version 7 with `errno` for every partition."""
    if context.api_version >= 7:
        return FetchResponse(error_code=errno, responses=[])
    response = FetchResponse(responses=[])
    for position in _positions(context, request):
        _add(context, response, position, _failed(position.partition, errno))
    return response


def _positions(context: RequestContext, request: FetchRequest) -> Iterator[FetchPosition]:
    for topic in request.topics:
        key = topic.topic_id if context.api_version >= _FIRST_TOPIC_IDS else topic.topic
        for part in topic.partitions:
            yield FetchPosition(
                key,
                part.partition,
                part.fetch_offset,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.partition_max_bytes,
            )


def _forgotten(context: RequestContext, request: FetchRequest) -> Iterator[tuple[str | bytes, int]]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if context.api_version >= _FIRST_TOPIC_IDS else topic.topic
        for index in topic.partitions:
            yield key, index


def _failed(index: int, errno: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=errno,
        high_watermark=-1,
        aborted_transactions=[] if errno in _UNKNOWN else None,
        records=b"",
    )


def _read(
    context: RequestContext, request: FetchRequest, one: _PartitionRead, budget: int
) -> tuple[PartitionData, int]:
    """Return the response for one partition, and the size of its records in bytes."""
    partition, log = one.partition, one.log
    if one.errno or partition is None or log is None:
        return _refused(context, one), 0
    data = PartitionData(
        partition_index=partition.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if one.diverging is not None:
        data.diverging_epoch = DivergingEpoch(epoch=one.diverging[0], end_offset=one.diverging[1])
        return data, 0
    if one.preferred_replica != -1:
        data.preferred_read_replica = one.preferred_replica
        return data, 0
    batches, rest = log.read(
        one.position.offset,
        min(budget, one.position.max_bytes),
        one.limit,
        at_least_one=budget == request.max_bytes or context.api_version < _FIRST_WITHOUT_PARTIAL,
    )
    if any(batch.codec == _ZSTD for batch in batches) and context.api_version < _FIRST_ZSTD:
        return _failed(partition.index, errors.UnsupportedCompressionType.errno), 0
    if request.isolation_level == _READ_COMMITTED:
        data.aborted_transactions = _aborted(log, one.position.offset, batches)
    payload = _payload(context, one.position, batches, rest)
    data.records = payload
    return data, len(payload)


def _payload(
    context: RequestContext, position: FetchPosition, batches: list[Batch], rest: Buffer
) -> Buffer:
    """Encode batches in the record format of this version of Fetch."""
    if context.api_version >= _FIRST_BATCH_V2:
        if len(batches) == 1 and not rest:
            return batches[0].data
        return b"".join([*(batch.data for batch in batches), rest])
    magic = 1 if context.api_version >= 2 else 0
    data = b"".join(to_message_set(batch.data, magic) for batch in batches)
    if context.api_version < _FIRST_WITHOUT_PARTIAL:
        return data[: position.max_bytes]  # in these versions the records may end inside a message
    return data


def _aborted(log: PartitionLog, start: int, batches: list[Batch]) -> list[AbortedTransaction]:
    if not batches:
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.producers.aborted_between(start, batches[-1].last_offset + 1)
    ]


def _refused(context: RequestContext, one: _PartitionRead) -> PartitionData:
    data = _failed(one.position.partition, one.errno)
    wrong_broker = (errors.NotLeaderForPartitionError.errno, errors.FencedLeaderEpoch.errno)
    if one.partition is None or one.errno not in wrong_broker:
        return data
    if context.api_version >= _FIRST_DIVERGING:
        data.current_leader = LeaderIdAndEpoch(
            leader_id=one.partition.leader, leader_epoch=one.partition.leader_epoch
        )
    return data


def _has_changed(one: _PartitionRead, data: PartitionData) -> bool:
    """Return whether an incremental response must include the partition (KIP-227).

    This is the case if the partition has records, an error, a diverging epoch or a preferred read
    replica, or if its high watermark, last stable offset or log start offset has changed. Stores
    these three offsets, to compare them with the offsets of the next response.
    """
    reported = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
    changed = reported != one.position.reported or bool(data.records) or one.urgent
    one.position.reported = () if data.error_code else reported
    return changed


def _add(
    context: RequestContext, response: FetchResponse, position: FetchPosition, data: PartitionData
) -> None:
    """Add a partition to the response. Consecutive partitions of a topic share a topic entry."""
    by_id = isinstance(position.topic, bytes)
    last = response.responses[-1] if response.responses else None
    if last is None or position.topic != (last.topic_id if by_id else last.topic):
        last = FetchableTopicResponse(partitions=[])
        if isinstance(position.topic, bytes):
            last.topic_id = position.topic
        else:
            last.topic = position.topic
        response.responses.append(last)
    last.partitions.append(data)


# -- The check of each partition, and the decision whether to respond or to wait


_FIRST_FROM_FOLLOWER = 11  # first version that followers serve (KIP-392)


@dataclass(slots=True)
class _PartitionRead:
    """The result of the check of a fetched partition: an error, or the log and the offset up to
    which the client may read it."""

    position: FetchPosition
    errno: int = 0
    partition: Partition | None = None
    log: PartitionLog | None = None
    """The log of this broker's replica."""
    limit: int = 0
    """First offset that the client may not read."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) from which the client's records differ from the log (KIP-595)."""
    preferred_replica: int = -1

    @property
    def urgent(self) -> bool:
        """Whether the partition must be in a response at once, without waiting for `min_bytes`."""
        return bool(self.errno) or self.diverging is not None or self.preferred_replica != -1


def _check_partition(
    context: RequestContext, request: FetchRequest, position: FetchPosition
) -> _PartitionRead:
    """Check whether this broker can serve a fetched partition: the topic, the permission, the disk,
    the leadership (since KIP-392, a replica suffices), the leader epoch and the offset."""
    state = context.state
    if isinstance(position.topic, bytes):
        topic = state.topics_by_id.get(position.topic)
        missing = errors.UnknownTopicId.errno
    else:
        topic = state.topics.get(position.topic)
        missing = errors.UnknownTopicOrPartitionError.errno
    if topic is None:
        return _PartitionRead(position, missing)
    errno = context.check_topic(topic.name)
    if errno:
        return _PartitionRead(position, errno)
    partition = state.partition(topic.name, position.partition)
    if partition is None:
        return _PartitionRead(position, errors.UnknownTopicOrPartitionError.errno)
    if is_offline(context, partition):
        return _PartitionRead(position, errors.KafkaStorageError.errno, partition)
    follower = not leads(context, partition)
    may_follow = context.api_version >= _FIRST_FROM_FOLLOWER and partition.leader != -1
    if follower and not (may_follow and context.node_id in partition.replicas):
        return _PartitionRead(position, errors.NotLeaderForPartitionError.errno, partition)
    errno = check_epoch(partition, position.leader_epoch)
    if errno:
        return _PartitionRead(position, errno, partition)
    return _check_log(context, request, position, partition, follower)


def _check_log(
    context: RequestContext,
    request: FetchRequest,
    position: FetchPosition,
    partition: Partition,
    follower: bool,
) -> _PartitionRead:
    log = partition.log_of(context.node_id)
    if position.last_fetched_epoch >= 0:
        epoch, end = log.end_of_epoch(position.last_fetched_epoch)
        if end == -1:
            return _PartitionRead(position, errors.OffsetOutOfRangeError.errno, partition, log)
        if end < position.offset or epoch < position.last_fetched_epoch:
            return _PartitionRead(position, partition=partition, log=log, diverging=(epoch, end))
    if not log.start_offset <= position.offset <= log.end_offset:
        return _PartitionRead(position, errors.OffsetOutOfRangeError.errno, partition, log)
    committed = request.isolation_level == _READ_COMMITTED
    limit = log.last_stable_offset if committed else log.high_watermark
    replica = -1 if follower else _closer_replica(context, request, partition)
    return _PartitionRead(
        position, partition=partition, log=log, limit=limit, preferred_replica=replica
    )


def _closer_replica(context: RequestContext, request: FetchRequest, partition: Partition) -> int:
    """Return the broker id of an in-sync replica in the client's rack (KIP-392). Returns -1 if
    there is none, if the client has no rack, or if this broker is in the client's rack.
    """
    nodes = context.state.nodes
    if not request.rack_id or nodes[context.node_id].rack == request.rack_id:
        return -1
    in_rack = [n for n in context.state.isr(partition) if nodes[n].rack == request.rack_id]
    return in_rack[0] if in_rack else -1


def _check_all(
    context: RequestContext, request: FetchRequest, positions: Sequence[FetchPosition]
) -> tuple[list[_PartitionRead], bool]:
    """Return the checked partitions, and whether to respond now: if there are `min_bytes`, if a
    partition is urgent, or if the client does not wait.
    """
    reads = [_check_partition(context, request, position) for position in positions]
    return reads, request.max_wait_ms <= 0 or _is_enough(reads, request.min_bytes)


async def _wait_until_enough(
    context: RequestContext,
    request: FetchRequest,
    positions: Sequence[FetchPosition],
) -> list[_PartitionRead]:
    """Check the partitions now and at each change of their logs, until the response can be sent or
    `max_wait_ms` has passed.
    """
    loop = asyncio.get_running_loop()
    deadline = context.received_at + request.max_wait_ms / 1000
    while True:
        # Repeat the check that `fetch()` has made: the partitions may have changed before this
        # task ran.
        reads, enough = _check_all(context, request, positions)
        if enough or deadline <= loop.time():
            return reads
        logs = [one.log for one in reads if one.log is not None]
        await await_change(logs, deadline)


def _is_enough(reads: list[_PartitionRead], min_bytes: int) -> bool:
    if min_bytes <= 0 or not reads or any(one.urgent for one in reads):
        return True
    found = 0
    for one in reads:
        if one.log is not None:
            position = one.position
            enough = min(min_bytes - found, position.max_bytes)
            found += one.log.readable(position.offset, enough, one.limit)
            if found >= min_bytes:
                return True
    return False


# -- Offsets by time and by leader epoch

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_FIRST_VERSION = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_FIRST_VERSION[_EARLIEST_PENDING_UPLOAD] = 11
_NOWHERE = (-1, -1, -1)
_FIRST_NOT_AVAILABLE = 5


@handles(ListOffsetsRequest)
def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up the offset of the requested timestamp in each partition."""
    return answer_items(
        request, lambda topic, asked: _find_offset(context, request, topic.name, asked)
    )


def _find_offset(
    context: RequestContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    log = require_leader(context, topic, asked.partition_index, asked.current_leader_epoch).log
    committed = request.isolation_level == _READ_COMMITTED
    limit = log.last_stable_offset if committed else log.high_watermark
    if context.api_version == 0:
        return _old_style(log, asked, limit)
    oldest = min(_FIRST_VERSION)
    if asked.timestamp < oldest or context.api_version < _FIRST_VERSION.get(asked.timestamp, 0):
        raise RefusedError(errors.UnsupportedVersionError)
    timestamp, offset, epoch = _look_up_offset(log, asked.timestamp, limit)
    if log.high_watermark < log.epoch_start and (asked.timestamp == _LATEST or offset >= limit):
        # A new leader does not know the high watermark until its followers fetch (KIP-207).
        new = context.api_version >= _FIRST_NOT_AVAILABLE
        raise RefusedError(
            errors.OffsetNotAvailable.errno if new else errors.LeaderNotAvailableError.errno
        )
    if asked.timestamp == _MAX_TIMESTAMP and offset >= limit:
        timestamp, offset, epoch = _NOWHERE  # the client cannot read the record yet
    response = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset
    )
    if context.api_version >= 4:
        response.leader_epoch = epoch
    return response


def _look_up_offset(log: PartitionLog, timestamp: int, limit: int) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch) for a requested timestamp; -1 for missing values."""
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
    """Return the base offsets of the segments up to the timestamp, the newest segment first, as
    version 0 does (before KIP-79). The fake's log is one segment. For the timestamp -1 (latest),
    the end, `limit`, comes before the base offsets.
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
    return answer_items(request, lambda topic, asked: _find_end(context, topic.topic, asked))


def _find_end(
    context: RequestContext, topic: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    log = require_leader(context, topic, asked.partition, asked.current_leader_epoch).log
    epoch, end = log.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
