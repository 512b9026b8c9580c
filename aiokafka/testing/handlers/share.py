"""ShareFetch, ShareAcknowledge, and the heartbeats, descriptions and offsets of share groups
(KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka import errors
from aiokafka.protocol.messages.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartitionData,
    AcquiredRecords,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    Assignment,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    LeaderIdAndEpoch,
    Member,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.batches import Batch, Buffer
from aiokafka.testing.consumer_group import TopicIdPartition, TopicIdPartitions
from aiokafka.testing.handlers import answer_items, handles, refuse, require
from aiokafka.testing.handlers._common import (
    authorized_operations,
    await_change,
    grouped,
    leader_endpoints,
    require_group,
    require_leader,
)
from aiokafka.testing.script import RequestContext
from aiokafka.testing.share_group import (
    ASSIGNOR,
    JOINING,
    LEAVING,
    ShareGroup,
    ShareHeartbeat,
    ShareMember,
)
from aiokafka.testing.share_partition import (
    GAP,
    REJECT,
    RENEW,
    UNINITIALIZED,
    Acknowledgement,
    Acquired,
    AcquireLimits,
    LogRead,
    SharePartition,
    StoredState,
)
from aiokafka.testing.share_partition_manager import FINAL, FULL, ShareSession
from aiokafka.testing.state import Topic

_LONGEST_MEMBER_ID = 36
_FIRST_RENEWING = 2
_EXACT = 1  # the acquire mode record_limit (KIP-1206)
_WRONG_BROKER = {errors.NotLeaderForPartitionError.errno, errors.FencedLeaderEpoch.errno}


def _require_share_groups(context: RequestContext) -> None:
    if context.cluster_state.profile.level("share.version") < 1:
        raise RefusedError(errors.UnsupportedVersionError)


def _require_member_id(member_id: str | None) -> None:
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise RefusedError(errors.InvalidRequestError, "Invalid member id in the request.")


# -- Members


@handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Handle a heartbeat of a joining, present or leaving member. The response may have a new
    assignment."""
    _check_heartbeat(context, request)
    groups = context.services.groups
    group = groups.share_for_heartbeat(request.group_id, joining=request.member_epoch == JOINING)
    reply = group.heartbeat(
        ShareHeartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=request.subscribed_topic_names,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
        )
    )
    interval = groups.group_setting(request.group_id, "share.heartbeat.interval.ms")
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=int(interval) if reply.epoch >= 0 else 0,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


def _check_heartbeat(context: RequestContext, request: ShareGroupHeartbeatRequest) -> None:
    _require_share_groups(context)
    _require_member_id(request.member_id)
    for name in request.subscribed_topic_names or ():
        require(context.check_topic(name))
    joins_nothing = request.member_epoch == JOINING and not request.subscribed_topic_names
    if not request.group_id or request.rack_id == "" or joins_nothing:
        raise RefusedError(errors.InvalidRequestError)
    if request.member_epoch < LEAVING:
        raise RefusedError(errors.InvalidRequestError, "MemberEpoch is invalid.")
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))


def _assignment(slots: TopicIdPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in grouped(sorted(slots)).items()
        ]
    )


@handles(ShareGroupDescribeRequest)
def share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each share group; other groups have the error GROUP_ID_NOT_FOUND."""
    return answer_items(request, lambda group_id: _describe(context, request, group_id))


def _describe(
    context: RequestContext, request: ShareGroupDescribeRequest, group_id: str
) -> DescribedGroup:
    group = _require_share_group(context, group_id, "describe")
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_described(context, member) for member in group.members.values()],
        authorized_operations=authorized_operations(
            context, request.include_authorized_operations, "group", group_id
        ),
    )


def _described(context: RequestContext, member: ShareMember) -> Member:
    topics = context.state.topics_by_id
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=DescribedAssignment(
            topic_partitions=[
                DescribedTopicPartitions(
                    topic_id=topic_id, topic_name=topics[topic_id].name, partitions=indexes
                )
                for topic_id, indexes in grouped(sorted(member.assigned)).items()
                if topic_id in topics
            ]
        ),
    )


def _require_share_group(context: RequestContext, group_id: str, operation: str) -> ShareGroup:
    """Return a share group. Raises RefusedError if the cluster has no share groups, if this broker
    is not the coordinator, if the client is not authorized, or if the group does not exist."""
    _require_share_groups(context)
    require_group(context, group_id, operation)
    group = context.services.groups.share.get(group_id)
    if group is None:
        raise RefusedError(errors.GroupIdNotFound, f"Group {group_id} not found.")
    return group


def _require_empty(context: RequestContext, group_id: str, operation: str) -> ShareGroup:
    group = _require_share_group(context, group_id, operation)
    if group.members:
        raise RefusedError(errors.NonEmptyGroup, "The group is not empty.")
    return group


# -- Fetching and acknowledging


@dataclass(slots=True)
class _FetchedPartition:
    """A partition of a ShareFetch request: an error, or the share partition."""

    place: TopicIdPartition
    errno: int = 0
    partition: SharePartition | None = None
    log: Any = None
    leader: LeaderIdAndEpoch | None = None


@dataclass(slots=True)
class _Acknowledged:
    """The result of the acknowledgements of one partition."""

    errno: int = 0
    message: str | None = None
    leader: LeaderIdAndEpoch = field(
        default_factory=lambda: LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    )


@handles(ShareFetchRequest)
def share_fetch(
    context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """Handle the acknowledgements of the request, then acquire records of the session's partitions.
    Wait up to `max_wait_ms` for `min_bytes`."""
    key = _check_member(context, request)
    renews = context.api_version >= _FIRST_RENEWING and request.is_renew_ack
    if renews and any(
        (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    ):
        raise RefusedError(errors.InvalidRequestError)
    broker = context.services.shares.broker(context.node_id)
    acks = {
        (topic.topic_id, part.partition_index): part.acknowledgement_batches
        for topic in request.topics
        for part in topic.partitions
    }
    has_acks = any(acks.values())
    epoch = request.share_session_epoch
    if epoch == FINAL:
        session = broker.session(key)
    elif epoch == FULL:
        if has_acks:
            raise RefusedError(errors.InvalidRequestError)
        most = context.state.setting("group.share.max.share.sessions")
        try:
            session = broker.open_session(key, context.connection_id, acks, most)
        except RefusedError as refused:
            return _refuse_later(context, request, refused)
    else:
        session = broker.next_session(key, epoch)
        _update(session, acks, request)
    if epoch != FINAL and any(
        place[0] not in context.state.topics_by_id for place in session.partitions
    ):
        # Kafka (up to 4.3) returns this error until the client removes the deleted topic from its
        # session.
        raise RefusedError(errors.UnknownError)
    settled = _acknowledge_all(context, key, acks, renews) if has_acks else {}
    if epoch == FINAL or renews:
        return _fetched(context, request, session, [], settled)
    fetched = [_check_partition(context, key[0], place) for place in _rotated(session, epoch)]
    if not fetched or not request.max_records or not request.max_bytes:
        return _fetched(context, request, session, [], settled)
    if _is_enough(context, request, session, fetched):
        return _fetched(context, request, session, fetched, settled)
    return _wait_and_fetch(context, request, session, fetched, settled)


def _check_member(
    context: RequestContext, request: ShareFetchRequest | ShareAcknowledgeRequest
) -> tuple[str, str]:
    """Return the session key of a request, after a check of the group and the member."""
    _require_share_groups(context)
    group_id, member_id = request.group_id, request.member_id
    if group_id is None:
        raise RefusedError(errors.InvalidRequestError, "Invalid group id in the request.")
    require(context.services.acls.check_named(context, "group", group_id, "read"))
    _require_member_id(member_id)
    return group_id, member_id or ""


async def _refuse_later(
    context: RequestContext, request: ShareFetchRequest, refused: RefusedError
) -> ShareFetchResponse:
    """Reject a request after its `max_wait_ms`, so that the client does not retry at once."""
    await asyncio.sleep(max(request.max_wait_ms, 0) / 1000)
    return refuse(context, request, refused.errno)


def _update(
    session: ShareSession, named: Iterable[TopicIdPartition], request: ShareFetchRequest
) -> None:
    """Add the named partitions to a session, and remove the forgotten ones."""
    for place in named:
        session.partitions.setdefault(place, True)
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            session.partitions.pop((topic.topic_id, index), None)


def _rotated(session: ShareSession, epoch: int) -> list[TopicIdPartition]:
    """Return the partitions of a session. The response to each request begins with another
    partition, which `epoch` determines."""
    places = list(session.partitions)
    first = epoch % len(places) if places and epoch > 0 else 0
    return places[first:] + places[:first]


def _check_partition(
    context: RequestContext, group_id: str, place: TopicIdPartition
) -> _FetchedPartition:
    topic_id, index = place
    topic = context.state.topics_by_id.get(topic_id)
    if topic is None:
        return _FetchedPartition(place, errors.UnknownTopicId.errno)
    try:
        leader = require_leader(context, topic.name, index)
        partition = context.services.shares.load(context.node_id, group_id, place, leader)
    except RefusedError as refused:
        return _FetchedPartition(
            place, refused.errno, leader=_leader(context, topic, index, refused.errno)
        )
    return _FetchedPartition(place, 0, partition, leader.log_of(context.node_id))


def _leader(
    context: RequestContext, topic: Topic, index: int, errno: int
) -> LeaderIdAndEpoch | None:
    """Return the current leader if `errno` means that another broker leads the partition, else None
    (KIP-951)."""
    if errno not in _WRONG_BROKER:
        return None
    partition = topic.partitions[index]
    return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _endpoints(context: RequestContext, partitions: Iterable[Any]) -> list[NodeEndpoint]:
    """Return the addresses of the leaders of partitions that other brokers lead."""
    moved = [
        partition
        for partition in partitions
        if {partition.error_code, getattr(partition, "acknowledge_error_code", 0)} & _WRONG_BROKER
    ]
    return leader_endpoints(context, NodeEndpoint, moved)


def _limit(context: RequestContext, request: ShareFetchRequest, log: Any) -> int:
    """Return the first offset that the group may not read (``share.isolation.level``)."""
    group_id = request.group_id or ""
    level = context.state.group_setting(group_id, "share.isolation.level").lower()
    offset: int = log.last_stable_offset if level == "read_committed" else log.high_watermark
    return offset


def _can_acquire(context: RequestContext, session: ShareSession, one: _FetchedPartition) -> bool:
    """Return whether records of a partition may be acquired: this broker is still its leader, and
    not too many records are in flight."""
    known = context.services.shares.known(context.node_id, session.key[0], one.place)
    return known is not None and known is one.partition and known.can_acquire


def _is_enough(
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: list[_FetchedPartition],
) -> bool:
    """Return whether to respond now: `min_bytes` are available, the next offset to fetch was
    deleted from a log, all partitions have errors, or the client does not wait."""
    if request.max_wait_ms <= 0 or all(one.errno for one in fetched):
        return True
    total = 0
    is_possible = False
    for one in fetched:
        partition = one.partition
        if partition is None or not _can_acquire(context, session, one):
            continue
        is_possible = True
        offset = partition.next_fetch_offset()
        if offset < one.log.start_offset:
            return True
        total += one.log.readable(offset, request.min_bytes, _limit(context, request, one.log))
    return is_possible and total >= request.min_bytes


async def _wait_and_fetch(
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: list[_FetchedPartition],
    settled: dict[TopicIdPartition, _Acknowledged],
) -> ShareFetchResponse:
    """Wait until records can be acquired or `max_wait_ms` has passed. A partition whose leader
    changes meanwhile is not in the response."""
    loop = asyncio.get_running_loop()
    deadline = context.received_at + request.max_wait_ms / 1000
    while loop.time() < deadline and not _is_enough(context, request, session, fetched):
        sources = [one.log for one in fetched if one.log is not None]
        sources += [one.partition for one in fetched if one.partition is not None]
        await await_change(sources, deadline)
    return _fetched(context, request, session, fetched, settled)


def _fetched(
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: list[_FetchedPartition],
    settled: dict[TopicIdPartition, _Acknowledged],
) -> ShareFetchResponse:
    """Acquire records, and return the response."""
    is_full = request.share_session_epoch == FULL
    possible = [one.place for one in fetched if _can_acquire(context, session, one)]
    most_bytes = request.max_bytes // max(len(possible), 1)
    left = request.max_records
    found: dict[TopicIdPartition, PartitionData] = {}
    for one in fetched:
        if one.errno:
            data = _data(one.place[1], one.errno, one.leader)
            session.partitions[one.place] = True
        elif one.place in possible:
            data, count = _acquire(context, request, one, most_bytes, left)
            left -= count
            must_respond = session.partitions.get(one.place, False)
            if not data.records and not must_respond and not is_full:
                continue
            session.partitions[one.place] = False
        else:
            continue
        found[one.place] = data
    for place, outcome in settled.items():
        data = found.setdefault(place, _data(place[1], 0, None))
        data.acknowledge_error_code = outcome.errno
        data.acknowledge_error_message = outcome.message
        if outcome.errno in _WRONG_BROKER:
            data.current_leader = outcome.leader
    if request.share_session_epoch == FINAL:
        context.services.shares.close_session(context.node_id, session.key)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=_lock_duration(context, request.group_id),
        responses=[
            ShareFetchableTopicResponse(
                topic_id=topic_id,
                partitions=[found[topic_id, index] for index in indexes],
            )
            for topic_id, indexes in grouped(found).items()
        ],
        node_endpoints=_endpoints(context, found.values()),
    )


def _data(index: int, errno: int, leader: LeaderIdAndEpoch | None) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=errno,
        acknowledge_error_code=0,
        current_leader=leader or LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )


def _acquire(
    context: RequestContext,
    request: ShareFetchRequest,
    one: _FetchedPartition,
    most_bytes: int,
    most_records: int,
) -> tuple[PartitionData, int]:
    """Read a log and acquire records. Return the response of the partition, and the number of
    acquired records."""
    partition, log = one.partition, one.log
    data = _data(one.place[1], 0, None)
    if partition is None:
        return data, 0
    offset = partition.next_fetch_offset()
    if not log.start_offset <= offset <= log.end_offset:
        partition.log_start_moved(log.start_offset)
        return data, 0
    limit = _limit(context, request, log)
    batches, rest = log.read(offset, most_bytes, limit, at_least_one=True)
    level = context.state.group_setting(request.group_id or "", "share.isolation.level").lower()
    aborted = []
    if level == "read_committed" and batches:
        aborted = log.producers.aborted_between(offset, batches[-1].last_offset + 1)
    acquired = partition.acquire(
        LogRead(offset, batches, aborted),
        AcquireLimits(
            request.member_id or "",
            most_records,
            request.batch_size,
            request.share_acquire_mode == _EXACT,
        ),
    )
    if acquired:
        data.records = _payload(batches, rest, acquired)
        data.acquired_records = [
            AcquiredRecords(first_offset=a.first, last_offset=a.last, delivery_count=a.count)
            for a in acquired
        ]
    return data, sum(a.size for a in acquired)


def _payload(batches: list[Batch], rest: Buffer, acquired: list[Acquired]) -> Buffer:
    """Return the batches from the first to the last acquired record. A single batch is followed by
    the first bytes of the next batch, as far as they were read."""
    if len(batches) == 1:
        return b"".join([batches[0].data, rest])
    first, last = acquired[0].first, acquired[-1].last
    begin = max([i for i, batch in enumerate(batches) if batch.base_offset <= first], default=0)
    return b"".join(batch.data for batch in batches[begin:] if batch.base_offset <= last)


def _lock_duration(context: RequestContext, group_id: str | None) -> int:
    return int(context.state.group_setting(group_id or "", "share.record.lock.duration.ms"))


@handles(ShareAcknowledgeRequest)
def share_acknowledge(
    context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Handle acknowledgements without fetching."""
    key = _check_member(context, request)
    broker = context.services.shares.broker(context.node_id)
    epoch = request.share_session_epoch
    if epoch == FULL:
        raise RefusedError(errors.InvalidShareSessionEpoch)
    if epoch == FINAL:
        broker.session(key)
    else:
        broker.next_session(key, epoch)
    acks = {
        (topic.topic_id, part.partition_index): part.acknowledgement_batches
        for topic in request.topics
        for part in topic.partitions
    }
    renews = context.api_version >= _FIRST_RENEWING and request.is_renew_ack
    settled = _acknowledge_all(context, key, acks, renews)
    if epoch == FINAL:
        context.services.shares.close_session(context.node_id, key)
    answers = {
        place: AcknowledgePartitionData(
            partition_index=place[1],
            error_code=outcome.errno,
            error_message=outcome.message,
            current_leader=outcome.leader,
        )
        for place, outcome in settled.items()
    }
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=_lock_duration(context, request.group_id),
        responses=[
            ShareAcknowledgeTopicResponse(
                topic_id=topic_id, partitions=[answers[topic_id, index] for index in indexes]
            )
            for topic_id, indexes in grouped(answers).items()
        ],
        node_endpoints=_endpoints(context, answers.values()),
    )


def _acknowledge_all(
    context: RequestContext,
    key: tuple[str, str],
    acks: dict[TopicIdPartition, list[AcknowledgementBatch]],
    renews: bool,
) -> dict[TopicIdPartition, _Acknowledged]:
    """Handle the acknowledgements of each partition; return the results.

    A partition without acknowledgements has a result only if it has an error, or if another
    partition has acknowledgements.
    """
    found: dict[TopicIdPartition, _Acknowledged] = {}
    has_any = any(acks.values())
    for place, batches in acks.items():
        outcome = _Acknowledged()
        topic = context.state.topics_by_id.get(place[0])
        try:
            if topic is None:
                raise RefusedError(errors.UnknownTopicId)
            _check_batches(context, batches, renews)
            if batches:
                _acknowledge(context, key, place, topic, batches)
        except RefusedError as refused:
            outcome.errno, outcome.message = refused.errno, refused.message or None
            if topic is not None:
                leader = _leader(context, topic, place[1], refused.errno)
                outcome.leader = leader or outcome.leader
        if outcome.errno or has_any:
            found[place] = outcome
    return found


def _check_batches(
    context: RequestContext, batches: list[AcknowledgementBatch], renews: bool
) -> None:
    newest = RENEW if context.api_version >= _FIRST_RENEWING else REJECT
    end = -1
    for batch in batches:
        kinds = batch.acknowledge_types
        size = batch.last_offset - batch.first_offset + 1
        is_valid = size > 0 and batch.first_offset >= end and len(kinds) in {1, size}
        is_valid = is_valid and all(GAP <= kind <= newest for kind in kinds)
        if not is_valid or (RENEW in kinds and not renews):
            raise RefusedError(errors.InvalidRequestError)
        end = batch.last_offset


def _acknowledge(
    context: RequestContext,
    key: tuple[str, str],
    place: TopicIdPartition,
    topic: Topic,
    batches: list[AcknowledgementBatch],
) -> None:
    require(context.check_topic(topic.name))
    if place[1] >= len(topic.partitions):
        raise RefusedError(errors.UnknownTopicOrPartitionError)
    partition = context.services.shares.known(context.node_id, key[0], place)
    if partition is None:
        # The broker is not the leader, or no member has fetched from it since it became the leader.
        raise RefusedError(errors.UnknownTopicOrPartitionError)
    partition.acknowledge(
        key[1],
        [Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches],
    )


# -- Offsets


@handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Return the stored start offsets of each group, and the lags (KIP-1226)."""
    return answer_items(request, lambda group: _describe_offsets(context, group))


def _describe_offsets(
    context: RequestContext, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    _require_share_groups(context)
    require_group(context, asked.group_id, "describe")
    state, acls = context.state, context.services.acls
    stored = context.services.shares.of(asked.group_id)
    if asked.topics is None:
        places = [
            (state.topics_by_id[topic_id].name, index)
            for topic_id, index in sorted(stored)
            if topic_id in state.topics_by_id
        ]
        wanted = {
            name: indexes
            for name, indexes in grouped(places).items()
            if not acls.check_topic(context, name)
        }
    else:
        wanted = {topic.topic_name: topic.partitions for topic in asked.topics}
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id,
        topics=[_offsets(context, stored, name, indexes) for name, indexes in wanted.items()],
    )


def _offsets(
    context: RequestContext,
    stored: Any,
    name: str,
    indexes: list[int],
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = context.state.topics.get(name)
    errno = context.check_topic(name)
    topic_id = ZERO_UUID if topic is None or errno else topic.topic_id
    partitions = []
    for index in indexes:
        found = None if errno else stored.get((topic_id, index))
        data = DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=UNINITIALIZED, leader_epoch=0, error_code=errno
        )
        if found is not None and topic is not None:
            data.start_offset, data.leader_epoch = found.start, found.leader_epoch
            data.lag = _lag(topic, index, found)
        partitions.append(data)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, partitions=partitions
    )


def _lag(topic: Topic, index: int, stored: StoredState) -> int:
    if stored.start == UNINITIALIZED:
        return -1
    return topic.partitions[index].log.high_watermark - stored.start - stored.complete


@handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offsets of a group without members. Create the group if it does not exist."""
    _require_share_groups(context)
    require_group(context, request.group_id, "read")
    groups = context.services.groups
    if not groups.exists(request.group_id):
        groups.new_share(request.group_id)
    _require_empty(context, request.group_id, "read")
    return AlterShareGroupOffsetsResponse(
        responses=[_alter_topic(context, request.group_id, topic) for topic in request.topics]
    )


def _alter_topic(
    context: RequestContext, group_id: str, asked: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    topic = context.state.topics.get(asked.topic_name)
    errno = context.check_topic(asked.topic_name)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=part.partition_index,
                error_code=errno or _alter(context, group_id, topic, part),
            )
            for part in asked.partitions
        ],
    )


def _alter(
    context: RequestContext,
    group_id: str,
    topic: Topic | None,
    asked: AlterShareGroupOffsetsRequestPartition,
) -> int:
    index = asked.partition_index
    if topic is None or not 0 <= index < len(topic.partitions):
        return errors.UnknownTopicOrPartitionError.errno
    context.services.shares.alter(group_id, (topic.topic_id, index), asked.start_offset)
    return 0


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the start offsets of the requested topics. The group must have no members."""
    _require_empty(context, request.group_id, "delete")
    return answer_items(request, lambda topic: _delete_topic(context, request.group_id, topic))


def _delete_topic(
    context: RequestContext, group_id: str, asked: DeleteShareGroupOffsetsRequestTopic
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = context.state.topics.get(asked.topic_name)
    require(context.check_topic(asked.topic_name))
    if topic is None:
        raise RefusedError(errors.UnknownTopicOrPartitionError)
    if not context.services.shares.delete_topic(group_id, topic.topic_id):
        raise RefusedError(
            errors.UnknownTopicOrPartitionError, "There is no offset information to delete."
        )
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name, topic_id=topic.topic_id
    )
