"""Messages for creating, deleting and describing topics, and for deleting their records."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    ZERO_UUID,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class CreatableTopicConfigs(Struct):
    name: Str
    value: NStr
    read_only: Bool
    config_source: I8 = -1
    is_sensitive: Bool


class CreatableTopicResult(Struct):
    name: Str
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: I16 = 0
    error_message: NStr = field("1+", default="", ignorable=True)
    topic_config_error_code: I16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: I32 = field("5+", default=-1, ignorable=True)  # KIP-525
    replication_factor: I16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default=[], ignorable=True)


class CreateTopicsResponse(Response):
    throttle_time_ms: I32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]


class CreatableReplicaAssignment(Struct):
    partition_index: I32
    broker_ids: list[I32]


class CreatableTopicConfig(Struct):
    name: Str
    value: NStr


class CreatableTopic(Struct):
    name: Str
    num_partitions: I32
    replication_factor: I16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Request[CreateTopicsResponse], api_key=19, versions="0-7", flexible="5+"):
    """Create topics; with `validate_only`, check the request without creating topics."""

    topics: list[CreatableTopic]
    timeout_ms: I32 = 60000
    validate_only: Bool = field("1+", default=False)


class DeletableTopicResult(Struct):
    name: NStr = field(nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: I16 = 0
    error_message: NStr = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]


class DeleteTopicState(Struct):
    name: NStr = None
    topic_id: Uuid


class DeleteTopicsRequest(Request[DeleteTopicsResponse], api_key=20, versions="0-6", flexible="4+"):
    """Delete topics by name, from version 6 on also by id."""

    topics: list[DeleteTopicState] = field("6+", default=[])  # KIP-516
    topic_names: list[Str] = field("0-5", default=[], ignorable=True)
    timeout_ms: I32


class CreatePartitionsTopicResult(Struct):
    name: Str
    error_code: I16 = 0
    error_message: NStr = None


class CreatePartitionsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsAssignment(Struct):
    broker_ids: list[I32]


class CreatePartitionsTopic(Struct):
    name: Str
    count: I32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(
    Request[CreatePartitionsResponse], api_key=37, versions="0-3", flexible="2+"
):
    """Add partitions to topics (KIP-195)."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: I32
    validate_only: Bool


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: I16 = 0
    partition_index: I32
    leader_id: I32
    leader_epoch: I32 = -1
    replica_nodes: list[I32]
    isr_nodes: list[I32]
    eligible_leader_replicas: list[I32] | None = None  # KIP-966
    last_known_elr: list[I32] | None = None
    offline_replicas: list[I32]


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: I16 = 0
    name: NStr
    topic_id: Uuid
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: I32 = -2147483648


class Cursor(Struct):
    topic_name: Str
    partition_index: I32


class DescribeTopicPartitionsResponse(Response):
    throttle_time_ms: I32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None


class TopicRequest(Struct):
    name: Str


class DescribeTopicPartitionsRequest(
    Request[DescribeTopicPartitionsResponse], api_key=75, versions="0", flexible="0+"
):
    """Describe topics, in pages (`cursor`) if there are many partitions (KIP-966)."""

    topics: list[TopicRequest]
    response_partition_limit: I32 = 2000
    cursor: Cursor | None = None


class DeleteRecordsPartitionResult(Struct):
    partition_index: I32
    low_watermark: I64
    error_code: I16 = 0


class DeleteRecordsTopicResult(Struct):
    name: Str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Response):
    throttle_time_ms: I32 = 0
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsPartition(Struct):
    partition_index: I32
    offset: I64  # -1: up to the high watermark


class DeleteRecordsTopic(Struct):
    name: Str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(
    Request[DeleteRecordsResponse], api_key=21, versions="0-2", flexible="2+"
):
    """Delete the records of partitions before an offset (KIP-107)."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: I32
