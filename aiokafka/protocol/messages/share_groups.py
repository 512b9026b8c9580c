"""Messages of share groups (KIP-932)."""

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


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ShareGroupHeartbeatResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    member_id: NStr = None
    member_epoch: I32
    heartbeat_interval_ms: I32
    assignment: Assignment | None = None


class ShareGroupHeartbeatRequest(
    Request[ShareGroupHeartbeatResponse], api_key=76, versions="1", flexible="0+"
):
    """Join, stay in, or leave a share group."""

    group_id: Str
    member_id: Str
    member_epoch: I32
    rack_id: NStr = None
    subscribed_topic_names: list[Str] | None = None


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


class AcknowledgePartitionData(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[AcknowledgePartitionData]


class ShareAcknowledgeResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    acquisition_lock_timeout_ms: I32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


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


class DescribedTopicPartitions(Struct):
    topic_id: Uuid
    topic_name: Str
    partitions: list[I32]


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions]


class Member(Struct):
    member_id: Str
    rack_id: NStr = None
    member_epoch: I32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    assignment: DescribedAssignment


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = None
    group_id: Str
    group_state: Str
    group_epoch: I32
    assignment_epoch: I32
    assignor_name: Str
    members: list[Member]
    authorized_operations: I32 = -2147483648


class ShareGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedGroup]


class ShareGroupDescribeRequest(
    Request[ShareGroupDescribeResponse], api_key=77, versions="1", flexible="0+"
):
    """Describe share groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: I32
    start_offset: I64
    leader_epoch: I32
    lag: I64 = field("1+", default=-1, ignorable=True)  # KIP-1226
    error_code: I16 = 0
    error_message: NStr = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: I16 = 0
    error_message: NStr = None


class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str
    partitions: list[I32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(
    Request[DescribeShareGroupOffsetsResponse], api_key=90, versions="0-1", flexible="0+"
):
    """Describe the start offsets of share groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: I32
    start_offset: I64


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(
    Request[AlterShareGroupOffsetsResponse], api_key=91, versions="0", flexible="0+"
):
    """Set the start offsets of an empty share group."""

    group_id: Str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    error_code: I16 = 0
    error_message: NStr = None


class DeleteShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str


class DeleteShareGroupOffsetsRequest(
    Request[DeleteShareGroupOffsetsResponse], api_key=92, versions="0", flexible="0+"
):
    """Delete the start offsets of topics of an empty share group."""

    group_id: Str
    topics: list[DeleteShareGroupOffsetsRequestTopic]
