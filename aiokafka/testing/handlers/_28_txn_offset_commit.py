"""TxnOffsetCommit: positions of a group that count when the transaction commits."""

from __future__ import annotations

from aiokafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._committing import check_committer
from aiokafka.testing.offsets import CommittedOffset
from aiokafka.testing.script import RequestContext
from aiokafka.testing.transactions import TransactionRefusedError

REQUEST = TxnOffsetCommitRequest
_FIRST_WITH_MEMBER = 3  # KIP-447
_FIRST_ABORTABLE_ERROR = 4
_FIRST_ADDING_GROUP = 5  # KIP-890
_FIRST_CHECKING_EPOCH = (2, 4)  # releases
_FIRST_VERIFYING = (3, 6)


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Keep the positions apart until the transaction ends."""
    if not request.group_id:
        return refuse(context, request, codes.INVALID_GROUP_ID)
    errno = _check_member(context, request) or _check_transaction(context, request)
    if errno:
        return refuse(context, request, errno)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[_commit(context, request, topic.name, p) for p in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def refuse(
    context: RequestContext, request: TxnOffsetCommitRequest, errno: int
) -> TxnOffsetCommitResponse:
    """Say no to every partition."""
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[_answer(part, errno) for part in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(
    part: TxnOffsetCommitRequestPartition, errno: int = 0
) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=errno)


def _check_member(context: RequestContext, request: TxnOffsetCommitRequest) -> int:
    """Return the error code for the member that a request names: only such a one can be fenced by
    the group (KIP-447).
    """
    names_member = context.api_version >= _FIRST_WITH_MEMBER and (
        request.member_id or request.generation_id >= 0
    )
    if not names_member:
        groups = context.services.groups
        return groups.check_coordinator(context.node_id, request.group_id)
    return check_committer(
        context,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
    )


def _check_transaction(context: RequestContext, request: TxnOffsetCommitRequest) -> int:
    profile = context.profile
    if profile.release < _FIRST_VERIFYING:
        # Nothing is asked of the coordinator of the transaction: the log of the group's offsets
        # refuses epochs of which it has a later one, as any log does. At first it took them all.
        epochs = context.services.groups.epochs_of(request.group_id)
        is_past = epochs.is_past(request.producer_id, request.producer_epoch)
        is_refused = is_past and profile.release >= _FIRST_CHECKING_EPOCH
        return codes.INVALID_PRODUCER_EPOCH if is_refused else codes.NONE
    transactions = context.services.transactions
    session = (request.transactional_id, request.producer_id, request.producer_epoch)
    second_version = context.truth.profile.level("transaction.version") >= 2
    try:
        if context.api_version >= _FIRST_ADDING_GROUP and second_version:
            transactions.add_group(*session, request.group_id)
            return codes.NONE
        known = transactions.check_owner(*session)
    except TransactionRefusedError as exc:
        fenced = exc.errno == codes.PRODUCER_FENCED
        return codes.INVALID_PRODUCER_EPOCH if fenced else exc.errno
    if request.group_id in known.groups:
        return codes.NONE
    abortable = context.api_version >= _FIRST_ABORTABLE_ERROR
    return codes.TRANSACTION_ABORTABLE if abortable else codes.INVALID_TXN_STATE


def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    topic: str,
    part: TxnOffsetCommitRequestPartition,
) -> TxnOffsetCommitResponsePartition:
    errno = context.check_topic(topic)
    if errno:
        return _answer(part, errno)
    if context.state.partition(topic, part.partition_index) is None:
        return _answer(part, codes.UNKNOWN_TOPIC_OR_PARTITION)
    metadata = part.committed_metadata or ""
    if len(metadata.encode()) > context.state.setting("offset.metadata.max.bytes"):
        return _answer(part, codes.OFFSET_METADATA_TOO_LARGE)
    groups = context.services.groups
    groups.epochs_of(request.group_id).note(request.producer_id, request.producer_epoch)
    groups.offsets_of(request.group_id).commit_in_transaction(
        request.producer_id,
        (topic, part.partition_index),
        CommittedOffset(part.committed_offset, part.committed_leader_epoch, metadata),
    )
    return _answer(part)
