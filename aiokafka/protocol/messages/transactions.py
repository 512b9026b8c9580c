"""Requests of transactional producers to their coordinators, and transaction markers."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    ZERO_UUID,
    Bool,
    Message,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: I32
    partition_error_code: I16


class AddPartitionsToTxnTopicResult(Struct):
    name: Str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: Str
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=[])


class AddPartitionsToTxnTopic(Struct):
    name: Str
    partitions: list[I32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: Str
    producer_id: I64
    producer_epoch: I16
    verify_only: Bool = False  # KIP-890
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(
    Request[AddPartitionsToTxnResponse], api_key=24, versions="0-5", flexible="3+"
):
    """Add partitions to the transaction; only brokers send version 4 and later."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=[])
    v3_and_below_transactional_id: Str = field("0-3", default="")
    v3_and_below_producer_id: I64 = field("0-3", default=0)
    v3_and_below_producer_epoch: I16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=[])


class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0


class AddOffsetsToTxnRequest(
    Request[AddOffsetsToTxnResponse], api_key=25, versions="0-4", flexible="3+"
):
    """Add a group to the transaction, before TxnOffsetCommit commits offsets of the group."""

    transactional_id: Str
    producer_id: I64
    producer_epoch: I16
    group_id: Str


class EndTxnResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    producer_id: I64 = field("5+", default=-1, ignorable=True)  # KIP-890
    producer_epoch: I16 = field("5+", default=-1, ignorable=True)


class EndTxnRequest(Request[EndTxnResponse], api_key=26, versions="0-5", flexible="3+"):
    """Commit or abort the transaction.

    The response to version 5 has the next producer epoch. Version 5 requires transaction.version 2
    (KIP-890).
    """

    transactional_id: Str
    producer_id: I64
    producer_epoch: I16
    committed: Bool


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: I32
    error_code: I16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: Str = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)  # KIP-1319
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response):
    throttle_time_ms: I32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: I32
    committed_offset: I64
    committed_leader_epoch: I32 = field("2+", default=-1, ignorable=True)  # KIP-320
    committed_metadata: NStr


class TxnOffsetCommitRequestTopic(Struct):
    name: Str = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)  # KIP-1319
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(
    Request[TxnOffsetCommitResponse], api_key=28, versions="0-6", flexible="3+"
):
    """Commit offsets of a group within the transaction.

    Version 5 also adds the group to the transaction, which replaces AddOffsetsToTxn. Use version 5
    and later only if transaction.version is at least 2 (KIP-890). Version 6 has topic ids instead
    of names (KIP-1319).
    """

    transactional_id: Str
    group_id: Str
    producer_id: I64
    producer_epoch: I16
    generation_id_or_member_epoch: I32 = field("3+", default=-1)  # KIP-447
    member_id: Str = field("3+", default="")
    group_instance_id: NStr = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a transaction marker, after its int16 version. `type` 0: abort, 1: commit."""

    type: I16


class EndTxnMarker(Message, versions="0"):
    """The value of a transaction marker, after its int16 version."""

    coordinator_epoch: I32
