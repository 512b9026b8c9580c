"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the offsets of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiokafka import errors
from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.group_members import ConsumerProtocolSubscription
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aiokafka.protocol.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from aiokafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.classic_group import ClassicGroup, GroupState
from aiokafka.testing.groups import CommittedOffset
from aiokafka.testing.handlers import answer_items, handles, refuses, require
from aiokafka.testing.handlers._common import find_topic, grouped
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import Topic
from aiokafka.testing.transactions import TransactionRefusedError

# -- Checks of the member that commits offsets

_OFFSET_COMMIT = 8
_TXN_OFFSET_COMMIT = 28
# First version with the error GROUP_ID_NOT_FOUND, by API key.
_FIRST_WITH_GROUP_ERROR = {_OFFSET_COMMIT: 9, _TXN_OFFSET_COMMIT: 6}
_FIRST_WITH_IDS = 6  # TxnOffsetCommit with topic ids (KIP-1319)


def _check_committer(
    context: RequestContext,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    generation: int,
) -> None:
    """Raise RefusedError unless the member may commit.

    A client without a generation (-1) may commit while the group has no members.
    """
    groups = context.services.groups
    require(groups.check_coordinator(context.node_id, group_id))
    if group_id in groups.consumer:
        _check_consumer(context, group_id, member_id, generation)
        return
    group = groups.classic.get(group_id)
    if group is None or group.state is GroupState.EMPTY:
        if generation < 0:
            return
        if groups.exists(group_id):
            raise RefusedError(errors.UnknownMemberIdError)
        first = _FIRST_WITH_GROUP_ERROR[context.api_key]
        missing = (
            errors.GroupIdNotFound
            if context.api_version >= first
            else errors.IllegalGenerationError
        )
        raise RefusedError(missing)
    group.check_member(member_id, instance_id, generation)
    if context.api_key != _OFFSET_COMMIT:
        return  # TxnOffsetCommit neither waits for a rebalance nor extends the session
    if group.state is GroupState.COMPLETING:
        raise RefusedError(errors.RebalanceInProgressError)
    if group.state is not GroupState.PREPARING:
        group.heartbeat(member_id, instance_id, generation)


def _check_consumer(context: RequestContext, group_id: str, member_id: str, epoch: int) -> None:
    group = context.services.groups.consumer[group_id]
    if not group.members and epoch < 0:
        return
    member = group.members.get(member_id)
    if member is None:
        raise RefusedError(errors.UnknownMemberIdError)
    if member.epoch != epoch:
        is_new = context.api_key == _OFFSET_COMMIT or context.api_version >= _FIRST_WITH_IDS
        wrong = (
            errors.StaleMemberEpoch
            if is_new and member.classic is None
            else errors.IllegalGenerationError
        )
        raise RefusedError(wrong)


_FIRST_TOPIC_IDS = 10


@handles(OffsetCommitRequest)
def offset_commit(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets for a member, or for a client without membership if the group has no
    members."""
    _check_committer(
        context,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )
    return OffsetCommitResponse(
        topics=[_commit_topics(context, request, t) for t in request.topics]
    )


def _check_offset(context: RequestContext, topic: str, index: int, metadata: str) -> int:
    """Return the error code for an offset to commit, 0 if the offset is valid."""
    errno = context.check_topic(topic)
    if errno:
        return errno
    if context.state.partition(topic, index) is None:
        return errors.UnknownTopicOrPartitionError.errno
    is_too_large = len(metadata.encode()) > context.state.setting("offset.metadata.max.bytes")
    return errors.OffsetMetadataTooLargeError.errno if is_too_large else 0


def _commit_topics(
    context: RequestContext, request: OffsetCommitRequest, asked: OffsetCommitRequestTopic
) -> OffsetCommitResponseTopic:
    topic = find_topic(context, asked.name, asked.topic_id)
    return OffsetCommitResponseTopic(
        # From version 10 on the name is not encoded, but tests that edit the response need it.
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
    metadata = part.committed_metadata or ""
    if topic is None:
        by_id = context.api_version >= _FIRST_TOPIC_IDS
        unknown = errors.UnknownTopicId if by_id else errors.UnknownTopicOrPartitionError
        errno = unknown.errno
    else:
        errno = _check_offset(context, topic.name, part.partition_index, metadata)
    if topic is not None and not errno:
        context.services.groups.offsets_of(request.group_id).commit(
            (topic.name, part.partition_index),
            CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata),
        )
    return OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=errno)


_FIRST_WITH_MEMBER = 3  # first version with the member id and the generation (KIP-447)
_FIRST_ABORTABLE_ERROR = 4
_FIRST_ADDING_GROUP = 5  # first version that adds the group to the transaction (KIP-890)
_FIRST_CHECKING_EPOCH = (2, 4)  # first release that rejects offsets with an older producer epoch
_FIRST_VERIFYING = (3, 6)


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Store the offsets as pending until the transaction ends."""
    if not request.group_id:
        raise RefusedError(errors.InvalidGroupIdError)
    if context.api_version >= _FIRST_WITH_MEMBER and (
        request.member_id or request.generation_id_or_member_epoch >= 0
    ):
        _check_committer(
            context,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
    else:  # the group cannot fence a request without a member (KIP-447)
        require(context.services.groups.check_coordinator(context.node_id, request.group_id))
    require(_check_transaction(context, request))
    return answer_items(request, lambda topic, part: _commit_in_txn(context, request, topic, part))


def _check_transaction(context: RequestContext, request: TxnOffsetCommitRequest) -> int:
    profile = context.profile
    if profile.release < _FIRST_VERIFYING:
        # These releases do not check with the transaction coordinator. From 2.4 on, the log that
        # stores the group's offsets rejects older producer epochs, as every log does.
        epochs = context.services.groups.epochs_of(request.group_id)
        is_past = epochs.is_past(request.producer_id, request.producer_epoch)
        is_refused = is_past and profile.release >= _FIRST_CHECKING_EPOCH
        return errors.InvalidProducerEpoch.errno if is_refused else 0
    transactions = context.services.transactions
    session = (request.transactional_id, request.producer_id, request.producer_epoch)
    second_version = context.cluster_state.profile.level("transaction.version") >= 2
    try:
        if context.api_version >= _FIRST_ADDING_GROUP and second_version:
            transactions.add_group(*session, request.group_id)
            return 0
        known = transactions.check_owner(*session)
    except TransactionRefusedError as exc:
        fenced = exc.errno == errors.ProducerFenced.errno
        return errors.InvalidProducerEpoch.errno if fenced else exc.errno
    if request.group_id in known.groups:
        return 0
    abortable = context.api_version >= _FIRST_ABORTABLE_ERROR
    return errors.TransactionAbortable.errno if abortable else errors.InvalidTxnState.errno


def _commit_in_txn(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    asked: TxnOffsetCommitRequestTopic,
    part: TxnOffsetCommitRequestPartition,
) -> None:
    metadata, topic = part.committed_metadata or "", asked.name
    if context.api_version >= _FIRST_WITH_IDS:
        found = find_topic(context, "", asked.topic_id)
        if found is None:
            raise RefusedError(errors.UnknownTopicId)
        topic = found.name
    require(_check_offset(context, topic, part.partition_index, metadata))
    groups = context.services.groups
    groups.epochs_of(request.group_id).update(request.producer_id, request.producer_epoch)
    groups.offsets_of(request.group_id).commit_in_transaction(
        request.producer_id,
        (topic, part.partition_index),
        CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata),
    )


_FIRST_SEVERAL = 8
_FIRST_MEMBER = 9
_FIRST_GROUP_ERROR = 2
_NOTHING = CommittedOffset(-1)

P = TypeVar("P")


@handles(OffsetFetchRequest)
def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the committed offsets of one group; since version 8, of several groups."""
    if context.api_version >= _FIRST_SEVERAL:
        groups = [_group(context, request, group) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    require(context.services.groups.check_coordinator(context.node_id, request.group_id))
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


@refuses(OffsetFetchRequest)
def refuse_offset_fetch(
    context: RequestContext, request: OffsetFetchRequest, errno: int
) -> OffsetFetchResponse:
    """Return a response with `errno`: since version 8 for every group, since version 2 at the top
    level, in earlier versions for every partition.
    """
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
    """Return the partitions with a committed offset, of topics that the client may describe."""
    committed = sorted(context.services.groups.committed_of(group_id))
    return grouped(place for place in committed if not context.check_topic(place[0]))


def _look_up(
    context: RequestContext, request: OffsetFetchRequest, group_id: str, topic: str, index: int
) -> tuple[int, CommittedOffset, int]:
    """Return (partition, committed offset, error code) for one partition of a group."""
    errno = context.check_topic(topic)
    if errno:
        return index, _NOTHING, errno
    offsets = context.services.groups.offsets.get(group_id)
    if offsets is None:
        return index, _NOTHING, 0
    if request.require_stable and offsets.is_unstable((topic, index)):
        return index, _NOTHING, errors.UnstableOffsetCommit.errno
    return index, offsets.committed.get((topic, index), _NOTHING), 0


def _partition(kind: Callable[..., P], index: int, found: CommittedOffset, errno: int) -> P:
    """Return the response for a partition, as an instance of `kind`, which depends on the
    version."""
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
    errno = errno or _check_reader(context, asked)
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


def _check_reader(context: RequestContext, asked: OffsetFetchRequestGroup) -> int:
    """Return the error code for the member id and epoch of a request (KIP-848); 0 if they are valid
    or missing."""
    group = context.services.groups.consumer.get(asked.group_id)
    if context.api_version < _FIRST_MEMBER or group is None or asked.member_id is None:
        return 0
    if asked.member_epoch < 0:
        return 0
    member = group.members.get(asked.member_id)
    if member is None:
        return errors.UnknownMemberIdError.errno
    if member.epoch == asked.member_epoch:
        return 0
    is_classic = member.classic is not None
    return errors.IllegalGenerationError.errno if is_classic else errors.StaleMemberEpoch.errno


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
            _partition(OffsetFetchResponsePartitions, index, _NOTHING, errors.UnknownTopicId.errno)
            for index in indexes
        ],
    )


@handles(OffsetDeleteRequest)
def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the offsets of partitions, except for topics to which a member subscribes."""
    groups = context.services.groups
    require(groups.check_coordinator(context.node_id, request.group_id))
    if not groups.exists(request.group_id):
        raise RefusedError(errors.GroupIdNotFound)
    in_use = _subscribed(context, request.group_id)

    def delete(topic: OffsetDeleteRequestTopic, part: OffsetDeleteRequestPartition) -> None:
        key = (topic.name, part.partition_index)
        require(context.check_topic(topic.name))
        if context.state.partition(*key) is None:
            raise RefusedError(errors.UnknownTopicOrPartitionError)
        if topic.name in in_use:
            raise RefusedError(errors.GroupSubscribedToTopic)
        groups.offsets_of(request.group_id).delete(key)

    return answer_items(request, delete)


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
            continue  # not a consumer group, or no protocol is chosen yet
        topics.update(subscription.topics)
    return topics
