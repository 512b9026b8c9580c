"""Acknowledgements of records by members of share groups (KIP-932)."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class LeaderIdAndEpoch(Struct):
    leader_id: I32
    leader_epoch: I32


class PartitionData(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: I32
    host: Str
    port: I32
    rack: NStr = None


class ShareAcknowledgeResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    acquisition_lock_timeout_ms: I32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class AcknowledgementBatch(Struct):
    first_offset: I64
    last_offset: I64
    acknowledge_types: list[I8]


class AcknowledgePartition(Struct):
    partition_index: I32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgeTopic(Struct):
    topic_id: Uuid
    partitions: list[AcknowledgePartition]


class ShareAcknowledgeRequest(
    Request[ShareAcknowledgeResponse], api_key=79, versions="1-2", flexible="0+"
):
    """Acknowledge records that the member has acquired with ShareFetch."""

    group_id: NStr = None
    member_id: NStr
    share_session_epoch: I32
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[AcknowledgeTopic]
