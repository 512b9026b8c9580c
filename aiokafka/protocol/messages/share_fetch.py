"""Messages for fetching records as a member of a share group (KIP-932)."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    Bool,
    NStr,
    Records,
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


class AcquiredRecords(Struct):
    first_offset: I64
    last_offset: I64
    delivery_count: I16


class PartitionData(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None
    acknowledge_error_code: I16
    acknowledge_error_message: NStr = None
    current_leader: LeaderIdAndEpoch
    records: Records = field(nullable="none", default=None)
    acquired_records: list[AcquiredRecords]


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: I32
    host: Str
    port: I32
    rack: NStr = None


class ShareFetchResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    acquisition_lock_timeout_ms: I32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class AcknowledgementBatch(Struct):
    first_offset: I64
    last_offset: I64
    acknowledge_types: list[I8]  # 0 gap, 1 accept, 2 release, 3 reject, 4 renew


class FetchPartition(Struct):
    partition_index: I32
    acknowledgement_batches: list[AcknowledgementBatch]


class FetchTopic(Struct):
    topic_id: Uuid
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: Uuid
    partitions: list[I32]


class ShareFetchRequest(Request[ShareFetchResponse], api_key=78, versions="1-2", flexible="0+"):
    """Acquire records for the member, and acknowledge records that the member acquired before."""

    group_id: NStr = None
    member_id: NStr
    share_session_epoch: I32
    max_wait_ms: I32
    min_bytes: I32
    max_bytes: I32 = 0x7FFFFFFF
    max_records: I32
    batch_size: I32
    share_acquire_mode: I8 = field("2+", default=0, ignorable=True)  # KIP-1206
    is_renew_ack: Bool = field("2+", default=False)  # KIP-1222
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
